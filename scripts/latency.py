#!/usr/bin/env python3
"""The page "Latency under load", made of what the sweep scenarios/sweeps/latency-under-load.toml came to.

  scripts/latency.py gigabit FILE      writes the sweep at 1 Gbit/s: one distance, shorter, three seeds
  scripts/latency.py collect OUT...    folders of sweeps: puts their cells into docs/latency-under-load.csv, and writes the page
  scripts/latency.py check [BINARY]    the page is what the table says, and 24 cells of all, run again, are what the table says
"""

import csv
import math
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWEEP = "scenarios/sweeps/latency-under-load.toml"
TABLE = ROOT / "docs/latency-under-load.csv"
PAGE = ROOT / "docs/latency-under-load.md"
MEASURES = ["light", "bulk", "used", "share"]
# Every 43rd cell with the first of five seeds: all disciplines, all mixes. At 1 Gbit/s every 33rd with the first of three.
PARTS = {False: 215, True: 99}
# What is another at 1 Gbit/s.
GIGABIT = {
    'name = "latency/under-load"': 'name = "latency/gigabit"',
    'scenario = "../latency/under-load.toml"': f'scenario = "{ROOT}/scenarios/latency/under-load.toml"\nduration = "5s"\nfixed = {{ settle = "1s" }}',
    "seeds = [1, 2, 3, 4, 5]": "seeds = [1, 2, 3]",
    "values = [2, 20, 100]": "values = [1000]",
    '  { "router[r1].config.link[far].rate" = "2Mbit/s" },\n  { "router[r1].config.link[far].rate" = "20Mbit/s" },\n'
    '  { "router[r1].config.link[far].rate" = "100Mbit/s" } ]': '  { "router[r1].config.link[far].rate" = "1Gbit/s" } ]',
    "values = [10, 50, 200]": "values = [10]",
    '  { "wire[2].delay" = "5ms" },\n  { "wire[2].delay" = "25ms" },\n  { "wire[2].delay" = "100ms" } ]': '  { "wire[2].delay" = "5ms" } ]',
    'rate = "120Mbit/s"': 'rate = "1200Mbit/s"',
}
# Two-sided 95 % of Student's t, by degrees of freedom.
STUDENT = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]

HEAD = ["mix", "rate", "rtt", "discipline", "seeds"] + [f"{m}{x}" for m in MEASURES for x in ("", "_half", "_first")]

MIXES = {
    "web": ("Web over bulk", "Pages of 30 kB, ten or so a second at most (300 kbit/s), beside four copies.", "pages", "copies"),
    "calls": ("Calls over uploads", "Four calls of 80 kbit/s beside eight uploads.", "calls", "uploads"),
    "game": ("A game over updates", "A game of 40 kbit/s beside 16 downloads.", "game", "updates"),
    "hosts": ("One connection beside sixteen", "A host with one connection, another with 16. `share` is what the one has.", "the one", "the 16"),
    "udp": ("A flow that does not answer", "Four connections beside one flow that sends 120 Mbit/s (1.2 Gbit/s at 1 Gbit/s), whatever comes of it. `share` is what the four have.", "the four", "the flow"),
    "one-flow": ("One flow that carries all", "One connection, and a ping beside it: what waits in the connection waits behind itself, as in a VPN or a QUIC connection.", "ping", "the flow"),
    "l4s": ("L4S beside classic", "Two connections with DCTCP's reaction and ECT(1) beside two of CUBIC. `share` is what L4S has.", "L4S", "classic"),
}
# They are told which traffic is light.
CLASSES = {"priority", "qfq", "wfq-altq", "lct"}
OURS = {"pfq", "pfq+aqm", "pdrr", "pdrr+aqm", "pdrr+hosts", "afan"}
NAMES = {"fifo": "FIFO of 1000", "pdrr+aqm": "**PDRR, AQM (default)**", "pdrr+hosts": "PDRR, AQM, hosts", "pfq+aqm": "PFQ, AQM"}


def number(text):
    return f"{float(text):.6g}" if text != "" else ""


def mean(values):
    """Mean and half of the 95 % interval."""
    middle = sum(values) / len(values)
    if len(values) < 2:
        return middle, 0.0
    spread = math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1))
    return middle, STUDENT[len(values) - 1] * spread / math.sqrt(len(values))


def gigabit(file):
    text = (ROOT / SWEEP).read_text()
    for was, here in GIGABIT.items():
        if text.count(was) != 1:
            sys.exit(f"{SWEEP} has not once: {was}")
        text = text.replace(was, here)
    Path(file).write_text(text)


def rows_of(*folders):
    rows = []
    for folder in folders:
        with open(Path(folder) / "measures.csv", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def collect(*folders):
    with open(TABLE, newline="") as file:
        lines = {tuple(line[:4]): line for line in list(csv.reader(file))[1:]}
    cells = {}
    for row in rows_of(*folders):
        cells.setdefault((row["mix"], row["rate"], row["rtt"], row["discipline"]), []).append(row)
    for key, seeds in cells.items():
        seeds.sort(key=lambda row: int(row["seed"]))
        line = [*key, len(seeds)]
        for measure in MEASURES:
            values = [float(row[measure]) for row in seeds if row[measure]]
            middle, half = mean(values) if values else ("", "")
            line += [number(middle), number(half), number(seeds[0][measure])]
        lines[key] = line
    with open(TABLE, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEAD)
        out.writerows(lines.values())
    PAGE.write_text(page())
    print(f"{TABLE.name}: {len(cells)} of {len(lines)} cells; {PAGE.name} written")


def read():
    with open(TABLE, newline="") as file:
        return {(r["mix"], int(r["rate"]), int(r["rtt"]), r["discipline"]): r for r in csv.DictReader(file)}


def ms(cell, measure):
    if not cell[measure]:
        return "nothing got through"
    value, half = float(cell[measure]), float(cell[measure + "_half"])
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}" + (f" ± {half:.{digits}f}" if half >= 0.05 * value else "")


def wins(cells, ours, measure):
    """Cells in which another that knows no classes has the shorter wait, beyond both intervals and 5 %, and gives that traffic no less."""
    found = []
    gets = lambda cell: float(cell["share"]) if measure == "light" else 1 - float(cell["share"])
    for (mix, rate, rtt, name), cell in cells.items():
        if name != ours or not cell[measure]:
            continue
        rivals = [(float(other[measure]), n) for (m, r, t, n), other in cells.items()
                  if (m, r, t) == (mix, rate, rtt) and n not in CLASSES | OURS and other[measure] and float(other["used"]) > float(cell["used"]) - 0.02 and gets(other) > 0.9 * gets(cell)]
        if not rivals:
            continue
        best, who = min(rivals)
        own = float(cell[measure])
        margin = float(cell[measure + "_half"]) + float(cells[mix, rate, rtt, who][measure + "_half"])
        if best < own * 0.95 and own - best > margin and own - best > 0.5:
            found.append((mix, rate, rtt, who, best, own))
    return found


def page():
    cells = read()
    names = list(dict.fromkeys(key[3] for key in cells))
    rates = sorted({key[1] for key in cells})
    rtts = sorted({key[2] for key in cells})
    seeds = max(int(cell["seeds"]) for cell in cells.values())
    text = [
        "# Latency under load",
        "",
        "<!-- Generated by scripts/latency.py from docs/latency-under-load.csv. -->",
        "",
        f"What packets wait in the router, 99 of 100, by discipline: {len(MIXES)} mixes of traffic, {', '.join(map(str, rates))} Mbit/s, {', '.join(map(str, rtts))} ms there and back without a queue.",
        f"Simulated, 20 s of which the first five are left out; at 1 Gbit/s 5 s without the first, with the shortest distance. Means over {seeds} seeds (three at 1 Gbit/s), with half of the 95 % interval where that is more than a twentieth. Light traffic comes from one host, bulk from another.",
        "`used` is the least of the distances, of the rate in bytes on the wire. `priority`, `qfq`, `wfq-altq` and `lct` are told which class is light; all others see flows only. `drr`, `codel`, `fq-codel`",
        "and FIFO (what stands behind HTB or TBF) are what [others have](baselines.md), with their own defaults; `pfq`, `pdrr`, `wfq-altq`, `lct` and `afan` without more are as published.",
        "",
        "`make figures` makes it anew (`evenkeel sweep " + SWEEP + "`, then `scripts/latency.py collect`); what was run is not run again. `make test` runs 24 of its runs again and compares.",
        "",
        "## Where another is better",
        "",
        "Compared with the default, by flow (all goes to one host), beyond both intervals, a twentieth and half a millisecond, at no less of the link (2 %) and of what that traffic gets of it (a tenth), among those that are told no classes:",
        "",
    ]
    for measure, what in (("light", "light traffic"), ("bulk", "bulk")):
        found = wins(cells, "pdrr+aqm", measure)
        of = sum(1 for key, cell in cells.items() if key[3] == "pdrr+aqm" and cell[measure])
        text += [f"**Waits of {what}: in {len(found)} of {of} cells.**" + ("" if found else " None."), ""]
        if found:
            text += ["| mix | Mbit/s | RTT, ms | who | its, ms | the default's, ms |", "|---|---|---|---|---|---|"]
            text += [f"| {mix} | {rate} | {rtt} | `{who}` | {best:.2f} | {own:.2f} |" for mix, rate, rtt, who, best, own in found]
            text += [""]
    for mix, (title, about, light, bulk) in MIXES.items():
        text += [f"## {title}", "", about, ""]
        for rate in rates:
            here = [rtt for rtt in rtts if (mix, rate, rtt, names[0]) in cells]
            head = [f"{rate} Mbit/s"] + [f"{light}, {rtt} ms" for rtt in here] + [f"{bulk}, {rtt} ms" for rtt in here] + ["used", "share"]
            text += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
            for name in names:
                row = [cells[mix, rate, rtt, name] for rtt in here]
                used = min(float(cell["used"]) for cell in row)
                shares = [float(cell["share"]) for cell in row]
                low, high = f"{min(shares):.2f}", f"{max(shares):.2f}"
                text.append("| " + " | ".join(
                    [NAMES.get(name, f"`{name}`")] + [ms(cell, "light") for cell in row] + [ms(cell, "bulk") for cell in row]
                    + [f"{100 * used:.1f} %", low if low == high else f"{low} to {high}"]) + " |")
            text.append("")
    return "\n".join(text).rstrip() + "\n"


def check(binary):
    if PAGE.read_text() != page():
        sys.exit(f"{PAGE} is not what {TABLE} says: scripts/latency.py collect writes both")
    cells = read()
    rows = []
    for is_gigabit, part in PARTS.items():
        with tempfile.TemporaryDirectory() as folder:
            sweep = SWEEP
            if is_gigabit:
                sweep = f"{folder}/gigabit.toml"
                gigabit(sweep)
            out = f"{folder}/out"
            subprocess.run([binary, "sweep", sweep, "--quiet", "--shard", f"1/{part}", "--out", out], cwd=ROOT, check=True)
            # It writes the tables, and then says that the other parts are missing.
            subprocess.run([binary, "sweep", "merge", out], cwd=ROOT, capture_output=True, check=False)
            rows += rows_of(out)
    wrong = 0
    for row in rows:
        key = (row["mix"], int(row["rate"]), int(row["rtt"]), row["discipline"])
        for measure in MEASURES:
            was, now = cells[key][measure + "_first"], number(row[measure])
            if was != now:
                wrong += 1
                print(f"{key}: {measure} is {now}, the table has {was}")
    if wrong or len(rows) < 23:
        sys.exit(f"{wrong} numbers of {len(rows)} runs differ: make figures, or evenkeel sweep {SWEEP} and scripts/latency.py collect its folder")
    print(f"latency under load: {len(rows)} runs are what the page says")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gigabit", file]:
            gigabit(file)
        case ["collect", first, *others]:
            collect(first, *others)
        case ["check", *rest]:
            check(rest[0] if rest else str(ROOT / "target/debug/evenkeel"))
        case _:
            sys.exit(__doc__)
