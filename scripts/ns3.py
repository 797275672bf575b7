#!/usr/bin/env python3
"""ns-3 beside the simulator, in results: the page docs/ns3.md.

  scripts/ns3.py run EVENKEEL NS3   runs all cells with both, writes docs/bench/ns3.json and the page; fails if a difference is not explained
  scripts/ns3.py check              the page is what docs/bench/ns3.json says, and all that differs there is explained here

NS3 is bench/ns3/results.cc, built: `make ns3` does both.
"""

import csv
import json
import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/bench/ns3.json"
PAGE = ROOT / "docs/ns3.md"
BEGIN, END = "<!-- ns3: make ns3 writes this -->", "<!-- ns3: end -->"
SEEDS = 5
# Two-sided 95 % of Student's t, by the number of runs.
STUDENT = {3: 4.303, 5: 2.776}
# Both write this much on the link about a packet: the header of PPP.
HEADER = 2

# Measure: name, decimals, difference that is let pass (of ns-3's value, or as it is).
MEASURES = {
    "used": ("use of the link", 3, 0.0, 0.01),
    "goodput_mbps": ("goodput, Mbit/s", 2, 0.01, 0.0),
    "jain": ("Jain's index", 3, 0.0, 0.02),
    "wait_ms": ("mean wait, ms", 2, 0.05, 0.0),
    "wait_p99_ms": ("p99 of the wait, ms", 2, 0.05, 0.0),
    "dropped": ("dropped, of 1000", 2, 0.1, 0.0),
}

# What differs, and why: a number of the list on the page. 5 are open questions. By cell or by traffic and queue.
REASONS = {
    ("newreno", "fifo", "dropped"): 1,
    ("cubic", "fifo", "dropped"): 2,
    ("cubic-100", "jain"): 3,
    ("newreno", "codel", "dropped"): 1,
    ("newreno", "codel", "wait_ms"): 1,
    ("newreno", "codel", "wait_p99_ms"): 1,
    ("cubic", "codel", "goodput_mbps"): 4,
    ("newreno", "fq-codel", "dropped"): 1,
    ("newreno", "fq-codel", "wait_ms"): 1,
    ("newreno", "fq-codel", "wait_p99_ms"): 1,
    ("newreno", "fq-codel", "used"): 5,
    ("newreno", "fq-codel", "goodput_mbps"): 5,
    ("cubic", "fq-codel", "dropped"): 2,
    ("cubic", "fq-codel", "wait_ms"): 2,
    ("cubic", "fq-codel", "wait_p99_ms"): 2,
}

CELLS = {
    "reno-10": {"traffic": "newreno", "flows": 4, "rate": 10, "rtt": 50, "buffer": 50, "seconds": 120},
    "reno-100": {"traffic": "newreno", "flows": 16, "rate": 100, "rtt": 20, "buffer": 200, "seconds": 40},
    "cubic-10": {"traffic": "cubic", "flows": 4, "rate": 10, "rtt": 50, "buffer": 50, "seconds": 120},
    "cubic-100": {"traffic": "cubic", "flows": 16, "rate": 100, "rtt": 20, "buffer": 200, "seconds": 40},
    "reno-codel": {"traffic": "newreno", "queue": "codel", "flows": 8, "rate": 20, "rtt": 50, "buffer": 1000, "seconds": 60},
    "cubic-codel": {"traffic": "cubic", "queue": "codel", "flows": 8, "rate": 20, "rtt": 50, "buffer": 1000, "seconds": 60},
    "reno-fq-codel": {"traffic": "newreno", "queue": "fq-codel", "flows": 8, "rate": 20, "rtt": 50, "buffer": 10240, "seconds": 60},
    "cubic-fq-codel": {"traffic": "cubic", "queue": "fq-codel", "flows": 8, "rate": 20, "rtt": 50, "buffer": 10240, "seconds": 60},
    "poisson-0.5": {"traffic": "poisson", "load": 0.5, "flows": 4, "rate": 10, "rtt": 2, "buffer": 10000, "seconds": 400},
    "poisson-0.8": {"traffic": "poisson", "load": 0.8, "flows": 4, "rate": 10, "rtt": 2, "buffer": 10000, "seconds": 400},
    "poisson-0.95": {"traffic": "poisson", "load": 0.95, "flows": 4, "rate": 10, "rtt": 2, "buffer": 10000, "seconds": 400},
}
SETTLE = 10


def scenario(name, cell):
    """The same in our words."""
    queue = {
        "fifo": f'{{ kind = "fifo", limit = {cell["buffer"]} }}',
        "codel": f'{{ kind = "codel", limit = {cell["buffer"]} }}',
        "fq-codel": f'{{ kind = "fq-codel", buffer = {cell["buffer"]} }}',
    }[cell.get("queue", "fifo")]
    text = f"""name = "ns3/{name}"
title = "Beside ns-3: {name}"
duration = "{cell["seconds"]}s"
settle = "{SETTLE}s"
sample = "1s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r"
[router.config.router]
buffers = 32768
[[router.config.link]]
port = "b"
rate = "{cell["rate"]}Mbit/s"
overhead = "bytes"
overhead_bytes = "{HEADER}B"
overhead_least = "{HEADER}B"
ring = {{ slots = 2, refill = "any" }}
discipline = {queue}
[[wire]]
ends = ["a", "r"]
delay = "{cell["rtt"] / 2}ms"
jitter = "100us"
[[wire]]
ends = ["r", "b"]
"""
    for flow in range(cell["flows"]):
        text += f'[[traffic]]\nname = "flow{flow}"\nfrom = "a"\nto = "b"\nsize = "1500B"\nstart = "{100 * flow}ms"\n'
        if cell["traffic"] == "poisson":
            rate = cell["rate"] * 1e3 * cell["load"] / cell["flows"] * 1500 / (1500 + HEADER)
            text += f'kind = "poisson"\nrate = "{rate:.3f}kbit/s"\n'
        else:
            text += f'kind = "tcp"\ncongestion = "{cell["traffic"].removeprefix("new")}"\n'
    return text


def ours(binary, name, cell, seed, folder):
    """One run of ours, in the words of ns-3's."""
    file, out = folder / f"{name}.toml", folder / f"{name}-{seed}"
    file.write_text(scenario(name, cell))
    command = [binary, "sim", file, "--seed", str(seed), "--out", out, "--quiet"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return measured(out, cell)


def measured(out, cell):
    """What came of a run of ours in the folder `out`."""
    step = json.loads((out / "summary.json").read_text())["runs"][0]["steps"][0]["classes"][0]
    with open(out / "flows.csv", newline="") as file:
        got = [int(row["delivered_bytes"]) for row in csv.DictReader(file)]
    sent, dropped, wait = step["sent_per_s"], step["dropped_per_s"], step["transit_delay"]
    return {
        "used": sent * (1500 + HEADER) * 8 / (cell["rate"] * 1e6),
        "goodput_mbps": sum(got) * 8 / cell["seconds"] / 1e6,
        "jain": sum(got) ** 2 / (len(got) * sum(x * x for x in got)),
        "wait_ms": wait["mean_us"] / 1e3,
        "wait_p99_ms": wait["p99_us"] / 1e3,
        "dropped": dropped / (sent + dropped),
    }


def theirs(binary, cell, seed):
    """One run of ns-3."""
    options = [f"--{key}={value}" for key, value in cell.items()]
    command = [binary, *options, f"--settle={SETTLE}", f"--RngRun={seed}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def interval(values):
    """Mean and half of its 95 % interval."""
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, STUDENT[len(values)] * deviation / math.sqrt(len(values))


def agree(us, them, part, least):
    """Whether two means with their intervals are the same, or nearly."""
    apart = abs(us[0] - them[0])
    return apart <= us[1] + them[1] or apart <= max(part * abs(them[0]), least)


def rows(results):
    """Cell, measure, ours, theirs, whether they agree."""
    for name, cell in CELLS.items():
        for measure, (_, _, part, least) in MEASURES.items():
            us, them = (interval([run[measure] for run in results[name][who]]) for who in ("ours", "ns3"))
            yield name, cell, measure, us, them, agree(us, them, part, least)


def table(compared, measures, reasons, other, runs):
    """A table of what was compared with another, and the differences that nobody explains."""
    lines = [f"| cell | measure | Evenkeel | {other} | |", "|---|---|---|---|---|"]
    unexplained, agreed, all_of = [], 0, 0
    for name, cell, measure, us, them, same in compared:
        words, decimals, _, _ = measures[measure]
        scale = 1000 if measure == "dropped" else 1
        told = [f"{mean * scale:.{decimals}f} ± {half * scale:.{decimals}f}" for mean, half in (us, them)]
        reason = reasons.get((name, measure)) or reasons.get((cell["traffic"], cell.get("queue", "fifo"), measure))
        all_of += 1
        agreed += same
        if same:
            verdict = "agree"
        elif reason:
            verdict = f"**differ**, see {reason}"
        else:
            verdict = "**differ**"
            unexplained.append(f"{name}: {words}: {told[0]} and {told[1]}")
        lines.append(f"| {name} | {words} | {told[0]} | {told[1]} | {verdict} |")
    lines.append("")
    lines.append(f"{agreed} of {all_of} measures agree; {runs}, 95 % intervals.")
    return "\n".join(lines), unexplained


class Page:
    """A page with a table made of results, and where both stand."""

    def __init__(self, results, page, marks, cells, target, table):
        self.results, self.page, self.marks, self.cells, self.target, self.table = results, page, marks, cells, target, table

    def made(self, results):
        """The page with its table made anew, and what is not explained."""
        before, rest = self.page.read_text().split(self.marks[0])
        after = rest.split(self.marks[1])[1]
        table, unexplained = self.table(results)
        return f"{before}{self.marks[0]}\n\n{table}\n\n{self.marks[1]}{after}", unexplained

    def save(self, results):
        """Writes both; what is not explained."""
        self.results.write_text(json.dumps(results, indent=1) + "\n")
        made, unexplained = self.made(results)
        self.page.write_text(made)
        print(self.table(results)[0])
        return unexplained

    def check(self):
        """What is wrong with the page."""
        results = json.loads(self.results.read_text())
        file, page = (path.relative_to(ROOT) for path in (self.results, self.page))
        if sorted(results) != sorted(self.cells):
            return [f"{file} is of other cells: make {self.target}"]
        made, unexplained = self.made(results)
        return unexplained + ([] if made == self.page.read_text() else [f"{page} is not what {file} says: make {self.target}"])


OURS = Page(RESULTS, PAGE, (BEGIN, END), CELLS, "ns3", lambda results: table(rows(results), MEASURES, REASONS, "ns-3", f"{SEEDS} runs each"))


def run(evenkeel, ns3):
    """All cells, with both."""
    results = {}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        waiting = {
            cell: {
                "ours": [pool.submit(ours, evenkeel, cell, of, seed, folder) for seed in range(1, SEEDS + 1)],
                "ns3": [pool.submit(theirs, ns3, of, seed) for seed in range(1, SEEDS + 1)],
            }
            for cell, of in CELLS.items()
        }
        for cell, both in waiting.items():
            results[cell] = {who: [one.result() for one in runs] for who, runs in both.items()}
    return OURS.save(results)


def main(usage, run, check):
    """Runs what the command asks for, and tells what is wrong."""
    if run:
        wrong = run(*sys.argv[2:])
    elif sys.argv[1:] == ["check"]:
        wrong = check()
    else:
        sys.exit(usage)
    for line in wrong:
        print(f"not explained: {line}" if ":" in line else line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(__doc__, run if sys.argv[1:2] == ["run"] and len(sys.argv) == 4 else None, OURS.check)
