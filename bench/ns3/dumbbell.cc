// The dumbbell of `evenkeel-bench sim`, in ns-3: ten hosts on either side of two routers, a FIFO of 100 packets before the link between
// them. Prints one line of JSON: packets that the bottleneck sent, wall-clock seconds of the run itself, peak memory.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>

using namespace ns3;

static uint64_t sent = 0;

static void
Sent(Ptr<const Packet>)
{
    ++sent;
}

// The most memory this process had, in KiB.
static long
Peak()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
    {
        if (line.rfind("VmHWM:", 0) == 0)
        {
            return std::stol(line.substr(6));
        }
    }
    return 0;
}

int
main(int argc, char* argv[])
{
    bool tcp = false;
    uint32_t flows = 10;
    double seconds = 10;
    CommandLine cmd(__FILE__);
    cmd.AddValue("tcp", "TCP (NewReno) in place of UDP at a constant rate", tcp);
    cmd.AddValue("flows", "number of flows, a multiple of ten", flows);
    cmd.AddValue("seconds", "virtual seconds", seconds);
    cmd.Parse(argc, argv);

    const uint32_t hosts = 10;
    const uint32_t payload = 1400; // 1428 bytes of IP with UDP
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));

    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    access.SetChannelAttribute("Delay", StringValue("1ms"));
    PointToPointHelper middle;
    middle.SetDeviceAttribute("DataRate", StringValue("100Mbps"));
    middle.SetChannelAttribute("Delay", StringValue("10ms"));
    middle.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100p"));

    NodeContainer routers;
    routers.Create(2);
    NodeContainer left;
    left.Create(hosts);
    NodeContainer right;
    right.Create(hosts);
    InternetStackHelper stack;
    stack.InstallAll();

    // No traffic control above the devices: their queue is the FIFO.
    Ipv4AddressHelper addresses;
    auto between = middle.Install(routers);
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    addresses.Assign(between);
    TrafficControlHelper none;
    none.Uninstall(between);
    std::vector<Ipv4Address> sinks;
    for (uint32_t i = 0; i < hosts; ++i)
    {
        auto a = access.Install(left.Get(i), routers.Get(0));
        addresses.SetBase(("10.1." + std::to_string(i) + ".0").c_str(), "255.255.255.0");
        addresses.Assign(a);
        auto b = access.Install(right.Get(i), routers.Get(1));
        addresses.SetBase(("10.2." + std::to_string(i) + ".0").c_str(), "255.255.255.0");
        sinks.push_back(addresses.Assign(b).GetAddress(0));
        none.Uninstall(a);
        none.Uninstall(b);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    between.Get(0)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));

    const char* protocol = tcp ? "ns3::TcpSocketFactory" : "ns3::UdpSocketFactory";
    for (uint32_t flow = 0; flow < flows; ++flow)
    {
        const uint32_t host = flow % hosts;
        const uint16_t port = 5000 + flow;
        PacketSinkHelper sink(protocol, InetSocketAddress(Ipv4Address::GetAny(), port));
        sink.Install(right.Get(host)).Start(Seconds(0));
        const InetSocketAddress to(sinks[host], port);
        ApplicationContainer source;
        if (tcp)
        {
            BulkSendHelper bulk(protocol, to);
            bulk.SetAttribute("SendSize", UintegerValue(1448));
            source = bulk.Install(left.Get(host));
        }
        else
        {
            // 110 Mbit/s of IP packets in all, for a link of 100.
            OnOffHelper constant(protocol, to);
            const uint64_t rate = uint64_t(110e6 * payload / (payload + 28) / flows);
            constant.SetConstantRate(DataRate(rate), payload);
            source = constant.Install(left.Get(host));
        }
        // Not all at once.
        source.Start(Seconds(0.001 * flow));
    }

    Simulator::Stop(Seconds(seconds));
    const auto begin = std::chrono::steady_clock::now();
    Simulator::Run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << "{\"packets\":" << sent << ",\"wall_s\":" << took.count() << ",\"peak_kib\":" << Peak() << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
