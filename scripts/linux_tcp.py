#!/usr/bin/env python3
"""TCP of this machine's kernel beside the simulator's: the table of docs/tcp.md.

  scripts/linux_tcp.py run EVENKEEL   as root: runs all cells in both worlds, writes docs/bench/linux-tcp.json and the table
  scripts/linux_tcp.py check          the table is what docs/bench/linux-tcp.json says, and all that differs there is explained here

The bottlenecks are those of `scripts/ns3.py`, shorter: real packets take real time.
"""

import csv
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
import ns3  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/bench/linux-tcp.json"
PAGE = ROOT / "docs/tcp.md"
BEGIN, END = "<!-- linux-tcp: make linux-tcp writes this -->", "<!-- linux-tcp: end -->"
WHO = ["ours", "linux"]

# Those of ns-3's table but goodput, which iperf3 measures beyond the end of a run, and two of connections that come and go.
MEASURES = {name: told for name, told in ns3.MEASURES.items() if name != "goodput_mbps"} | {"fct_ms": ("median completion, ms", 1, 0.05, 0.0), "fct_p90_ms": ("p90 of the completion, ms", 1, 0.1, 0.0)}

# As in scripts/ns3.py; 2 and 3 are open questions.
REASONS = {
    ("cubic", "fifo", "dropped"): 1,
    ("cubic", "codel", "dropped"): 1,
    ("cubic", "fq-codel", "dropped"): 1,
    ("newreno", "codel", "dropped"): 2,
    ("reno-100", "wait_ms"): 2,
    ("newreno", "fq-codel", "used"): 3,
    ("newreno", "fq-codel", "wait_ms"): 3,
    ("cubic", "fq-codel", "wait_ms"): 3,
}

SECONDS = 40
CELLS = {name: {**cell, "seconds": SECONDS} for name, cell in ns3.CELLS.items() if cell["traffic"] != "poisson"}
COMING = {
    "pages": 'kind = "web"\nusers = 60\n',
    "files": 'kind = "update"\nusers = 90\n',
    "mice": 'kind = "tcp-flows"\nrate = "8Mbit/s"\nflow_size = "30000B"\ndistribution = "pareto"\n',
}
for name in COMING:
    CELLS[name] = {"traffic": name, "flows": 0, "rate": 20, "rtt": 50, "buffer": 200, "seconds": SECONDS}


def scenario(name, cell):
    """That of ns-3's cell, or with connections that come and go."""
    text = ns3.scenario(name, cell)
    if name in COMING:
        # Nobody begins who could not be done.
        text += f'[[traffic]]\nname = "coming"\nfrom = "a"\nto = "b"\nsize = "1500B"\nstop = "{SECONDS - 15}s"\n{COMING[name]}'
    return text


def measured(world, binary, name, cell, seed, folder):
    """One run in a world."""
    file, out = folder / f"{name}-{seed}.toml", folder / f"{name}-{world}-{seed}"
    file.write_text(f"seed = {seed}\n" + scenario(name, cell))
    command = [binary, world, file, "--out", out, "--quiet"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    if name not in COMING:
        return ns3.measured(out, cell)
    with open(out / "flows.csv", newline="") as rows:
        took = sorted(float(row["fct_s"]) * 1e3 if row["fct_s"] else float("inf") for row in csv.DictReader(rows))
    return {"fct_ms": took[len(took) // 2], "fct_p90_ms": took[len(took) * 9 // 10]}


def rows(results):
    """Cell, measure, simulated, real, whether they agree."""
    for name, cell in CELLS.items():
        for measure in MEASURES:
            if measure not in results[name]["ours"][0]:
                continue
            _, _, part, least = MEASURES[measure]
            us, them = (ns3.interval([run[measure] for run in results[name][who]]) for who in WHO)
            yield name, cell, measure, us, them, ns3.agree(us, them, part, least)


def table(results):
    return ns3.table(rows(results), MEASURES, REASONS, "Linux", "5 runs of ours, 3 of Linux")


LINUX = ns3.Page(RESULTS, PAGE, (BEGIN, END), CELLS, "linux-tcp", table)


def run(binary):
    """All cells, in both worlds; real ones two at a time."""
    results = {}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        waiting = {
            cell: {
                "ours": [pool.submit(measured, "sim", binary, cell, of, seed, folder) for seed in range(1, ns3.SEEDS + 1)],
                "linux": [pool.submit(measured, "lab", binary, cell, of, seed, folder) for seed in range(1, 4)],
            }
            for cell, of in CELLS.items()
        }
        for cell, both in waiting.items():
            results[cell] = {who: [one.result() for one in runs] for who, runs in both.items()}
            print(f"{cell}: {results[cell]}", file=sys.stderr)
    return LINUX.save(results)


if __name__ == "__main__":
    ns3.main(__doc__, run if sys.argv[1:2] == ["run"] and len(sys.argv) == 3 else None, LINUX.check)
