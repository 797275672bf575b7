// A bottleneck in ns-3 whose results are held against ours: one host on either side of a router, all flows between them, the queue before
// the link from the router to the second host. Prints one line of JSON. The link and its queue are measured after the settling time.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

static bool measuring = false;
static uint64_t sentBytes = 0;
static std::vector<double> waits;

static void
Sent(Ptr<const Packet> packet)
{
    if (measuring)
    {
        sentBytes += packet->GetSize();
    }
}

static void
Waited(Time time)
{
    if (measuring)
    {
        waits.push_back(time.GetSeconds());
    }
}

int
main(int argc, char* argv[])
{
    std::string traffic = "newreno";
    std::string queue = "fifo";
    uint32_t flows = 4;
    double rate = 10;
    double rtt = 50;
    uint32_t buffer = 50;
    double seconds = 60;
    double settle = 10;
    double load = 0.8;
    CommandLine cmd(__FILE__);
    cmd.AddValue("traffic", "newreno, cubic or poisson", traffic);
    cmd.AddValue("queue", "fifo, codel or fq-codel", queue);
    cmd.AddValue("flows", "number of flows", flows);
    cmd.AddValue("rate", "of the link, Mbit/s", rate);
    cmd.AddValue("rtt", "there and back, ms", rtt);
    cmd.AddValue("buffer", "packets that may wait", buffer);
    cmd.AddValue("seconds", "virtual seconds", seconds);
    cmd.AddValue("settle", "left out at the head", settle);
    cmd.AddValue("load", "of poisson, as a part of the link", load);
    cmd.Parse(argc, argv);

    // As ours has it: segments of 1448 bytes with time stamps, acknowledgements of every second one or after 40 ms, windows that never
    // close, no time-out below 200 ms.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue(traffic == "cubic" ? "ns3::TcpCubic" : "ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(16 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(16 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("Off"));
    Config::SetDefault("ns3::CoDelQueueDisc::UseEcn", BooleanValue(false));
    Config::SetDefault("ns3::FqCoDelQueueDisc::UseEcn", BooleanValue(false));

    NodeContainer nodes;
    nodes.Create(3);
    InternetStackHelper stack;
    stack.InstallAll();
    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("100Gbps"));
    access.SetChannelAttribute("Delay", TimeValue(MicroSeconds(int64_t(rtt * 500))));
    access.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    // One packet is being sent and one may wait behind it, as in a ring of two.
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate * 1e6))));
    link.SetChannelAttribute("Delay", TimeValue(Seconds(0)));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));

    Ipv4AddressHelper addresses;
    auto near = access.Install(nodes.Get(0), nodes.Get(1));
    auto far = link.Install(nodes.Get(1), nodes.Get(2));
    TrafficControlHelper none;
    TrafficControlHelper control;
    const std::string size = std::to_string(buffer) + "p";
    if (queue == "fifo")
    {
        control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue(size));
    }
    else if (queue == "codel")
    {
        control.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", StringValue(size));
    }
    else
    {
        control.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", StringValue(size));
    }
    QueueDiscContainer discs = control.Install(far.Get(0));
    addresses.SetBase("10.0.1.0", "255.255.255.0");
    addresses.Assign(near);
    addresses.SetBase("10.0.2.0", "255.255.255.0");
    const Ipv4Address sink = addresses.Assign(far).GetAddress(1);
    none.Uninstall(near);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    Ptr<QueueDisc> disc = discs.Get(0);
    disc->TraceConnectWithoutContext("SojournTime", MakeCallback(&Waited));
    far.Get(0)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));

    const bool tcp = traffic != "poisson";
    const char* protocol = tcp ? "ns3::TcpSocketFactory" : "ns3::UdpSocketFactory";
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t flow = 0; flow < flows; ++flow)
    {
        const uint16_t port = 5000 + flow;
        PacketSinkHelper receiver(protocol, InetSocketAddress(Ipv4Address::GetAny(), port));
        ApplicationContainer there = receiver.Install(nodes.Get(2));
        there.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(there.Get(0)));
        ApplicationContainer source;
        if (tcp)
        {
            BulkSendHelper bulk(protocol, InetSocketAddress(sink, port));
            bulk.SetAttribute("SendSize", UintegerValue(1448));
            source = bulk.Install(nodes.Get(0));
        }
        else
        {
            // Each packet is an "on" of no length between two exponential pauses: 1500 bytes of IP, 1502 on the wire.
            OnOffHelper poisson(protocol, InetSocketAddress(sink, port));
            const double gap = 1502 * 8 / (rate * 1e6 * load / flows);
            poisson.SetAttribute("PacketSize", UintegerValue(1472));
            poisson.SetAttribute("DataRate", DataRateValue(DataRate("100Gbps")));
            const double on = 1472 * 8 / 100e9;
            std::ostringstream text;
            text << std::scientific << "ns3::ConstantRandomVariable[Constant=" << on << "]";
            poisson.SetAttribute("OnTime", StringValue(text.str()));
            std::ostringstream off;
            off << std::scientific << "ns3::ExponentialRandomVariable[Mean=" << gap << "]";
            poisson.SetAttribute("OffTime", StringValue(off.str()));
            source = poisson.Install(nodes.Get(0));
        }
        source.Start(Seconds(0.1 * flow + start->GetValue(0, 0.1)));
    }

    uint64_t droppedBefore = 0;
    uint64_t cameBefore = 0;
    Simulator::Schedule(Seconds(settle), [&]() {
        measuring = true;
        droppedBefore = disc->GetStats().nTotalDroppedPackets;
        cameBefore = disc->GetStats().nTotalReceivedPackets;
    });
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();

    // Flows from their beginning, as ours has them; the link and its queue after settling.
    const double time = seconds - settle;
    double sum = 0;
    double squares = 0;
    for (uint32_t flow = 0; flow < flows; ++flow)
    {
        const double got = sinks[flow]->GetTotalRx();
        sum += got;
        squares += got * got;
    }
    std::sort(waits.begin(), waits.end());
    double mean = 0;
    for (double wait : waits)
    {
        mean += wait / waits.size();
    }
    const auto stats = disc->GetStats();
    std::cout << "{\"used\":" << sentBytes * 8 / (rate * 1e6 * time) << ",\"goodput_mbps\":" << sum * 8 / seconds / 1e6
              << ",\"jain\":" << sum * sum / (flows * squares) << ",\"wait_ms\":" << mean * 1e3
              << ",\"wait_p99_ms\":" << waits[size_t(waits.size() * 0.99)] * 1e3
              << ",\"dropped\":" << double(stats.nTotalDroppedPackets - droppedBefore) / (stats.nTotalReceivedPackets - cameBefore) << "}"
              << std::endl;
    Simulator::Destroy();
    return 0;
}
