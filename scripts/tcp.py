#!/usr/bin/env python3
"""TCP with default offloads through Linux, Linux with HTB, and Evenkeel in route, bridge and inline mode.

    scripts/tcp.py EVENKEEL EVENKEEL_BENCH [--seconds S] [--repeats N]

`loop` is the same sockets with nothing between: what comes in by one leaves by the other. Hosts a and b in namespaces of their own, r between them, veth pairs. The ways take turns, so that what else the
machine does hits all alike; the median is printed. Before each turn it is looked at what else wants a processor: if
that is much, the last line says that nothing of it is to be judged. CPU is what all processors did that was not idle, seconds per
gigabyte carried, senders and receivers included. Then the round trip of a ping beside one flow of a part of what the
way carries. Needs root and iperf3."""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

NET = f"tcp{os.getpid()}"
# Processors that others wanted before each turn. More than a tenth of one in the middle, and CPU seconds and shares are theirs.
OTHERS = []
QUIET = 0.1


def run(line, **more):
    return subprocess.run(line.split(), check=True, capture_output=True, text=True, **more).stdout


def inside(node, line):
    return run(f"ip netns exec {NET}{node} {line}")


def build(bridged):
    for node in "arb":
        run(f"ip netns add {NET}{node}")
        inside(node, "ip link set lo up")
    for host, near, at in (("a", "lan", 1), ("b", "wan", 2)):
        run(f"ip link add {host}0 netns {NET}{host} type veth peer name {near} netns {NET}r")
        address = f"10.9.0.{at}/24" if bridged else f"10.9.{at}.2/24"
        inside(host, f"ip address add {address} dev {host}0")
        inside(host, f"ip link set {host}0 up")
        inside("r", f"ip link set {near} up")
        if not bridged:
            inside("r", f"ip address add 10.9.{at}.1/24 dev {near}")
            inside(host, f"ip route add default via 10.9.{at}.1")
    inside("r", "sysctl -q -w net.ipv4.ip_forward=1")
    return "10.9.0.2" if bridged else "10.9.2.2"


def clear():
    for node in "arb":
        subprocess.run(["ip", "netns", "del", NET + node], capture_output=True)


def config(way, mode, rate):
    attach = f'attach = "{way}"\n' if way != "route" else ""
    ports = ["lan", "wan"] if way != "inline" else ["wan"]
    text = f'[router]\nmode = "{mode}"\n' + ("make_bridge = true\n" if way == "bridge" else "")
    for port in ports:
        text += f'[[port]]\nname = "{port}"\ninterface = "{port}"\n{attach}'
    limit = f'rate = "{rate}"\n' if rate else ""
    return text + f'[[link]]\nport = "wan"\n{limit}discipline = {{ kind = "pdrr" }}\n'


def busy(stolen=False):
    """Seconds that the processors were not idle, softirq included; `stolen`: and not taken by another machine."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    some = fields[:8] if stolen else fields[:7]
    return sum(int(f) for at, f in enumerate(some) if at not in (3, 4)) / os.sysconf("SC_CLK_TCK")


def round_trips(to, seconds):
    """Starts a ping; gives what reads its median and p99 in microseconds."""
    line = f"ip netns exec {NET}a ping -n -i 0.002 -w {seconds} {to}"
    ping = subprocess.Popen(line.split(), stdout=subprocess.PIPE, text=True)

    def read():
        lines = ping.communicate(timeout=seconds + 10)[0].splitlines()
        times = sorted(float(line.split("time=")[1].split()[0]) for line in lines if "time=" in line)
        return [1000 * times[int(len(times) * part)] for part in (0.5, 0.99)]

    return read


def measure(programs, way, mode, rate, flows, seconds, load=None):
    """Gbit/s and CPU seconds per gigabyte; beside a `load` in Gbit/s, round trips instead."""
    evenkeel, bench = programs
    started = None
    try:
        to = build(way in ("bridge", "loop"))
        with tempfile.TemporaryDirectory() as folder:
            if way == "htb":
                inside("r", "tc qdisc add dev wan root handle 1: htb default 1")
                inside("r", f"tc class add dev wan parent 1: classid 1:1 htb rate {rate or '100gbit'}")
            elif way == "loop":
                started = subprocess.Popen([bench, "loop", NET + "r", "lan", "wan"])
                time.sleep(0.3)
            elif way != "linux":
                file = pathlib.Path(folder, "router.toml")
                file.write_text(config(way, mode, rate.replace("gbit", "Gbit/s") if rate else None))
                started = subprocess.Popen(
                    ["ip", "netns", "exec", NET + "r", evenkeel, "run", str(file), "--socket",
                     folder + "/sock", "--runtime-dir", folder, "--state-dir", folder],
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                time.sleep(1)
                if started.poll() is not None:
                    raise SystemExit(f"{way}: {started.stderr.read().decode()}")
            server = subprocess.Popen(["ip", "netns", "exec", NET + "b", "iperf3", "-s", "-1"],
                                      stdout=subprocess.DEVNULL)
            before, begin = busy(stolen=True), time.monotonic()
            time.sleep(0.3)
            # The loop and a router in busy mode take one by themselves.
            if mode != "busy" and way != "loop":
                OTHERS.append((busy(stolen=True) - before) / (time.monotonic() - begin))
            before = busy()
            pings = load and round_trips(to, seconds)
            paced = f"-b {load:.3f}G" if load else ""
            told = json.loads(inside("a", f"iperf3 -c {to} -C cubic -P {flows} -t {seconds} -J {paced}"))
            used = busy() - before
            server.wait(5)
            if load:
                return pings()
            end = told["end"]["sum_received"]
            return end["bits_per_second"] / 1e9, used / (end["bytes"] / 1e9)
    finally:
        if started and started.poll() is None:
            started.send_signal(signal.SIGTERM)
            started.wait(10)
        clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("evenkeel")
    parser.add_argument("bench")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--flows", default="1,4")
    parser.add_argument("--modes", default="event,busy")
    wanted = parser.parse_args()
    modes = wanted.modes.split(",")
    programs = (wanted.evenkeel, wanted.bench)
    ways = [("linux", ""), ("htb", ""), ("loop", "")]
    ways += [(way, mode) for way in ("route", "bridge", "inline") for mode in modes]
    carried = {}
    print("| way | mode | rate | flows | Gbit/s | CPU s/GB | of the loop |\n|---|---|---|---|---|---|---|")
    for rate in (None, "1gbit"):
        for flows in map(int, wanted.flows.split(",")):
            found = {way: [] for way in ways if not (rate and way[0] in ("linux", "loop"))}
            for _ in range(wanted.repeats):
                for way in found:
                    found[way].append(measure(programs, *way, rate, flows, wanted.seconds))
            loop = statistics.median(speed for speed, _ in found[ways[2]]) if not rate else None
            for (way, mode), all_of in found.items():
                speed, cost = (statistics.median(one) for one in zip(*all_of))
                if not rate and flows == 1:
                    carried[way, mode] = speed
                part = f"{speed / loop:.2f}" if loop else "-"
                print(f"| {way} | {mode or '-'} | {rate or '-'} | {flows} | {speed:.2f} | "
                      f"{cost:.2f} | {part} |", flush=True)
    print("\n| way | mode | load | median us | p99 us |\n|---|---|---|---|---|")
    for (way, mode), speed in carried.items():
        for part in (0.1, 0.5, 0.9):
            middle, most = measure(programs, way, mode, None, 1, wanted.seconds, part * speed)
            print(f"| {way} | {mode or '-'} | {part:.0%} | {middle:.0f} | {most:.0f} |", flush=True)
    others = statistics.median(OTHERS)
    judged = "Not judged" if others > QUIET else "Judged"
    print(f"\n{judged}: before the turns others wanted {others:.0%} of a processor (median).")


main()
