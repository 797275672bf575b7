#!/usr/bin/env python3
"""Instructions of a packet by stage, before and now, as docs/bench/stages.json and docs/images/stages.svg.

    scripts/stages.py record now target/release/evenkeel-bench        counts, and draws
    scripts/stages.py record before PROGRAM                           the same of the program of an earlier commit
    scripts/stages.py draw                                            draws what was counted
    scripts/stages.py check                                           whether the picture is that of the counts

Counted by valgrind, inside `Pipeline::round` alone, as the difference of two runs. What is inlined counts where its lines are; lines of the
standard library, and of what all stages use (tables of flows, units, packets), count with the line before them.
"""
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS, PICTURE = ROOT / "docs/bench/stages.json", ROOT / "docs/images/stages.svg"

# Name of the case in the picture; case of the bench; packets of the two runs. 65,536 flows have all sent two packets after 131,072.
CASES = [
    ("FIFO", "fifo", (20_000, 40_000)),
    ("admission and PDRR, 64 k known flows", "admission + pdrr, 64 k flows", (140_000, 180_000)),
    ("the same, first packets of flows", "admission + pdrr, first packets", (20_000, 40_000)),
    ("the same, 4 k packets wait", "admission + pdrr, 64 k flows, 4 k packets wait", (140_000, 180_000)),
]
# Before benches told first packets apart.
FORMERLY = {"admission + pdrr, first packets": "admission + pdrr, 64 k flows"}

# Name and colour of a stage, and which files are its own; the first that fits counts.
STAGES = [
    ("ports and buffers", "#7f7f7f", r"crates/ports/|memmove|memcpy"),
    ("admission", "#b3541e", r"core/src/admit/|pipeline/admission\.rs"),
    ("discipline", "#3c7a3c", r"core/src/(schedule|aqm)"),
    ("link and meters", "#1f5fa8", r"core/src/(link|measure|audit|shape|share)|pipeline/(egress|port|busiest|agenda|store|admit|control)\.rs"),
    ("received and looked up", "#c9a227", r"pipeline/(round|receive|ahead|parsed|flow_cache|first|packet)\.rs|net/src/(usual|frame|hash)\.rs"
     r"|core/src/(class_map|prefetch)\.rs"),
    ("routed and rewritten", "#7d4e9e", r"crates/(router|net)/"),
]
# What is of no stage stands in functions of its own.
OWN = "tables of flows"
STAGES.append((OWN, "#c98b8b", r"^$"))
NEUTRAL = re.compile(r"core/src/(flow_table|units|packet)|/rustc/|/library/|^\?\?\?$")


def stage_of(file):
    """The stage that a file belongs to; None: any."""
    if NEUTRAL.search(file):
        return None
    return next((name for name, _, files in STAGES if re.search(files, file)), None)


def by_stage(text):
    """Sums a file of callgrind that has instructions one by one, in the order of their addresses."""
    counts, files, file, last, is_call = Counter(), {}, "", None, False
    for line in text.splitlines():
        named = re.match(r"(f[lie]|c?fi|c?fl|fn|cfn)=\((\d+)\)(?: (.*))?", line)
        if named:
            what, number, name = named.groups()
            if what.endswith("fn"):
                last = None if what == "fn" else last
                continue
            files[number] = name or files.get(number, "???")
            if not what.startswith("c"):
                file = files[number]
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"0x|[+*-]", line) or line[:1].isdigit():
            if is_call:
                is_call = False
                continue
            words = line.split()
            if len(words) < 3:
                continue
            last = stage_of(file) or last
            counts[last or OWN] += int(words[2])
    return counts


def run(program, case, packets):
    with tempfile.NamedTemporaryFile() as out:
        rounds = "*::round_of*" if has_symbol(program, "round_of") else "*::round*"
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", f"--callgrind-out-file={out.name}", f"--toggle-collect={rounds}",
                   program, "one", f"pipeline:{case}", str(packets)]
        subprocess.run(command, check=True, capture_output=True)
        return by_stage(Path(out.name).read_text())


def has_symbol(program, name):
    return name.encode() in Path(program).read_bytes()


def knows(program, case):
    return case.encode() in Path(program).read_bytes()


def count(program):
    rows = {}
    for name, case, (few, many) in CASES:
        case = case if knows(program, case) else FORMERLY.get(case, case)
        before, after = run(program, case, few), run(program, case, many)
        after.subtract(before)
        rows[name] = {stage: round(total / (many - few), 1) for stage, total in sorted(after.items()) if total > 0}
        print(f"{sum(rows[name].values()):7.0f}  {name}  {rows[name]}")
    return rows


def draw(counts):
    left, width, bar, top = 330, 560, 16, 58
    most = max(sum(row.values()) for rows in counts.values() for row in rows.values())
    height = top + len(CASES) * (2 * bar + 22) + 20
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 {height}" font-family="sans-serif" font-size="13">',
           f'<rect width="980" height="{height}" fill="white"/>',
           f'<text x="12" y="20" font-weight="bold">Instructions of a packet inside Pipeline::round, by stage</text>']
    at = 12
    for name, colour, _ in STAGES:
        svg.append(f'<rect x="{at}" y="32" width="11" height="11" fill="{colour}"/><text x="{at + 16}" y="42">{name}</text>')
        at += 32 + int(6.6 * len(name))
    y = top
    for name, _, _ in CASES:
        for when in ["before", "now"]:
            row = counts.get(when, {}).get(name, {})
            label = f"{name}, {when}" if when == "before" else "now"
            svg.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{label}</text>')
            x = float(left)
            for stage, colour, _ in STAGES:
                part = row.get(stage, 0) / most * width
                svg.append(f'<rect x="{x:.1f}" y="{y}" width="{part:.1f}" height="{bar}" fill="{colour}"/>')
                x += part
            svg.append(f'<text x="{x + 6:.1f}" y="{y + 13}">{sum(row.values()):.0f}</text>')
            y += bar + 3
        y += 16
    return "\n".join([*svg, "</svg>"]) + "\n"


def main(words):
    match words:
        case ["record", ("before" | "now") as when, program]:
            counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
            counts[when] = count(str(Path(program).resolve()))
            COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
            PICTURE.write_text(draw(counts))
        case ["draw"]:
            PICTURE.write_text(draw(json.loads(COUNTS.read_text())))
        case ["check"]:
            if PICTURE.read_text() != draw(json.loads(COUNTS.read_text())):
                sys.exit("docs/images/stages.svg is not what docs/bench/stages.json says: scripts/stages.py draw")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
