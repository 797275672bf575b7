#!/usr/bin/env python3
"""What is reproduced and what is not: makes docs/reproduced.md and README's table from results.

  scripts/reproduced.py collect FOLDER...  takes the numbers of these results into docs/reproduced.json
                                           (as `make figures` leaves them in out/book/data), then writes
  scripts/reproduced.py write              writes docs/reproduced.md and the table in README.md
  scripts/reproduced.py check [FOLDER...]  fails if either differs from what stands there, or if a result
                                           in the folders (as `make test` leaves them in out/figures)
                                           lies outside of the interval that stands there

Rows are declared in docs/reproduced/*.toml, one file for each paper, in the order of the page:

  title = "How Unfair can Weighted Fair Queuing be?"    # of the paper; once, at the top
  order = 2                                             # of its section

  [[row]]
  where     = "figure 5"            # sentence, figure or table of the paper
  says      = "150 and 200 packets: 1 : 10"   # the claim
  published = "1 : 10"              # its number; "order only" where there is none
  file      = "scenarios/wfq-altq/fig5.toml"
  expect    = ["weights-at-200"]    # expectations of the file that judge it: all must hold
  ours      = ["sent(class3)@q200 / sent(class1)@q200"]   # metrics as in expectations, one or several
  format    = "1 : {:.2f}"          # of each; default "{:.4g}"
  scale     = 1                     # each value is multiplied by it; default 1
  readme    = "weights 100 : 1000"  # a row of README's table too, under this name; optional

In place of file/expect/ours a row may have `test = "crates/core/tests/it/papers.rs::name"` (a test that must
exist), with `value = "text"` for its number; `reproduced = false` with `why = "..."` marks what is not
reproduced. Of expectations the scenario file says so itself.

A result belongs to a scenario by its name ("wfq-altq/fig5"); the simulator's seeds give mean and interval (least
to largest), real packets one value of their own.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS, VALUES, PAGE, README = (
    ROOT / "docs/reproduced",
    ROOT / "docs/reproduced.json",
    ROOT / "docs/reproduced.md",
    ROOT / "README.md",
)
BEGIN, END = "<!-- reproduced: begin -->", "<!-- reproduced: end -->"
METRIC = re.compile(r"([a-z_0-9]+)(?:\(([^()]+)\))?@([A-Za-z0-9_-]+)")
CLASS_KEYS = {"sent": "sent_per_s", "dropped": "dropped_per_s", "offered": "offered_per_s"}
CLASS_KEYS |= {"goodput": "goodput_bit_per_s", "qlen": "qlen"}
DELAYS = {"delay": "transit_delay", "e2e": "end_to_end_delay"}
# Of a value of the same seed: what printing may round away.
SLACK = 0.002


class Broken(Exception):
    """A row that cannot be judged: told with its file and place."""


def papers():
    all_ = [tomllib.loads(p.read_text()) | {"path": p} for p in sorted(ROWS.glob("*.toml"))]
    return sorted(all_, key=lambda paper: paper["order"])


def scenario_of(row):
    return tomllib.loads((ROOT / row["file"]).read_text())


def key(row):
    """What a row's numbers are stored under."""
    return f"{row['file']} | {' ; '.join(row['ours'])}"


# --- results -------------------------------------------------------------------------------------------


def results(folders):
    """name of the scenario -> world -> [summary of each seed]; runs without their mechanism are left out."""
    found = {}
    for folder in folders:
        for path in sorted(Path(folder).rglob("summary.json")):
            summary = json.loads(path.read_text())
            run = (summary.get("runs") or [{}])[0]
            if run.get("name") or "world" not in run or "without" in str(path.parent):
                continue
            worlds = found.setdefault(summary["scenario"], {})
            worlds.setdefault(run["world"], []).append(summary)
    return found


def metric(summary, name, subject, step_name):
    term = f"{name}({subject})@{step_name}" if subject else f"{name}@{step_name}"
    for judged in summary["expectations"]:
        for measured in judged["measured"]:
            if measured["term"] == term and measured["value"] is not None:
                return measured["value"]
    if not subject:
        raise Broken(f"{summary['scenario']}: no {term}")
    step = next((s for s in summary["runs"][0]["steps"] if s["name"] == step_name), None)
    if step is None:
        raise Broken(f"{summary['scenario']}: no step {step_name}")
    whole = name.startswith("calls_")
    fields = ["router", "link"] if whole else ["router", "link", "class"]
    wanted = subject.split("/")
    for entry in step["links" if whole else "classes"]:
        if [entry[f] for f in fields][-len(wanted):] != wanted:
            continue
        if whole:
            return entry[name]
        base, _, quantile = name.partition("_")
        if base in DELAYS:
            return entry[DELAYS[base]][f"{quantile or 'mean'}_us"]
        return entry[CLASS_KEYS[name]]
    raise Broken(f"{summary['scenario']}: no {term}")


def value(summary, expression, scale):
    text = METRIC.sub(lambda m: repr(float(metric(summary, *m.groups()))), expression)
    if not re.fullmatch(r"[-+*/().,e0-9 \sabsmxin]*", text):
        raise Broken(f"{expression}: only numbers and + - * / abs( ) min( ) max( ) besides metrics")
    return eval(text, {"__builtins__": {}}, {"abs": abs, "min": min, "max": max}) * scale


def verdict(summary, names):
    """The worst verdict of these expectations."""
    judged = {j["name"]: j["verdict"] for j in summary["expectations"]}
    missing = [n for n in names if n not in judged]
    if missing:
        raise Broken(f"{summary['scenario']}: no expectation {', '.join(missing)}")
    rank = ["holds", "other_world", "reproduced_after_all", "not_reproduced", "undecided", "fails"]
    return max((judged[n] for n in names), key=rank.index, default="holds")


def collect(folders):
    stored = json.loads(VALUES.read_text()) if VALUES.exists() else {}
    found = results(folders)
    rows = [row for paper in papers() for row in paper["row"] if row.get("ours")]
    for row in rows:
        for world, summaries in found.get(scenario_of(row)["name"], {}).items():
            summaries = sorted(summaries, key=lambda s: s["seed"])
            values = {
                str(s["seed"]): [round_to(value(s, e, row.get("scale", 1))) for e in row["ours"]] for s in summaries
            }
            stored.setdefault(key(row), {})[world] = values
    kept = {key(row): stored[key(row)] for row in rows if key(row) in stored}
    VALUES.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def round_to(number):
    return float(f"{number:.5g}")


# --- the page ------------------------------------------------------------------------------------------


def cell(row, stored, world, interval=True):
    """Mean of each value in this world, with the interval over seeds where there are several."""
    if "ours" not in row:
        return row.get("value", "") if world == "sim" else ""
    seeds = list(stored.get(key(row), {}).get(world, {}).values())
    if not seeds:
        return ""
    form = row.get("format", "{:.4g}")
    parts = []
    for column in zip(*seeds):
        mean, low, high = sum(column) / len(column), min(column), max(column)
        text = form.format(mean)
        ends = [form.format(low), form.format(high)]
        parts.append(f"{text} ({ends[0]} to {ends[1]})" if interval and ends[0] != ends[1] else text)
    return ", ".join(parts)


def state(row):
    """Whether it is reproduced, by what the scenario file or the row itself says."""
    if "expect" in row:
        known = {e["name"]: e for e in scenario_of(row).get("expect", [])}
        missing = [n for n in row["expect"] if n not in known]
        if missing:
            raise Broken(f"{row['file']}: no expectation {', '.join(missing)} ({row['where']})")
        not_ = [known[n] for n in row["expect"] if not known[n].get("reproduced", True)]
        if not_:
            return "**no**: " + " ".join(e["note"] for e in not_)
        return "yes"
    if "test" in row:
        file, _, name = row["test"].partition("::")
        if f"fn {name}(" not in (ROOT / file).read_text():
            raise Broken(f"{file} has no test {name} ({row['where']})")
    if not row.get("reproduced", True):
        return "**no**: " + row["why"]
    if "test" not in row:
        raise Broken(f"{row['where']}, {row['says']}: needs expect, test, or reproduced = false")
    return "yes"


def source(row):
    if "file" in row:
        return f"[{row['file'].removeprefix('scenarios/')}](../{row['file']})"
    if "test" in row:
        file, _, name = row["test"].partition("::")
        return f"[{name}](../{file})"
    return ""


def line(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |\n"


def page(stored):
    text = (
        "# What is reproduced and what is not\n\n"
        "One row for each sentence, figure and table of the papers that says what was measured. *Simulation*: mean over the seeds, in brackets the least and "
        "the largest of them; *real packets*: one run between network namespaces, times scaled. *yes*: every expectation behind the row holds, and fails "
        "when its mechanism is switched off. Made by `scripts/reproduced.py` from results; `make test` fails where a result "
        "differs from this page.\n"
    )
    for paper in papers():
        rows = paper["row"]
        yes = sum(state(r) == "yes" for r in rows)
        text += f"\n## {paper['title']}\n\n{yes} of {len(rows)} rows are reproduced."
        text += f" {paper['about']}\n\n" if "about" in paper else "\n\n"
        text += line(["where", "what it says", "published", "simulation", "real packets", "reproduced", "file"])
        text += "|---" * 7 + "|\n"
        for row in rows:
            sim, lab = (cell(row, stored, world) for world in ("sim", "lab"))
            text += line([row["where"], row["says"], row.get("published", "order only"), sim, lab, state(row), source(row)])
    return text


def readme(stored):
    text = line(["figure", "published", "simulation", "real packets"]) + "|---" * 4 + "|\n"
    for paper in papers():
        for row in paper["row"]:
            if "readme" in row:
                sim, lab = cell(row, stored, "sim"), cell(row, stored, "lab", interval=False)
                text += line([row["readme"], row.get("published", "order only"), sim, lab])
    before, rest = README.read_text().split(BEGIN)
    return before + BEGIN + "\n" + text + END + rest.split(END)[1]


def check(stored, folders):
    wrong = []
    for path, text in ((PAGE, page(stored)), (README, readme(stored))):
        if path.read_text() != text:
            wrong.append(f"{path.relative_to(ROOT)} is not what docs/reproduced/ and docs/reproduced.json give: scripts/reproduced.py write")
    found = results(folders)
    judged = 0
    for row in (r for paper in papers() for r in paper["row"] if "file" in r):
        for summary in found.get(scenario_of(row)["name"], {}).get("sim", []):
            judged += 1
            if verdict(summary, row.get("expect", [])) in ("fails", "undecided", "reproduced_after_all"):
                wrong.append(f"{row['file']}: {row['where']}, {row['says']}: expectations do not say what the page says")
            seeds = stored.get(key(row), {}).get("sim", {}).values() if row.get("ours") else []
            for at, expression in enumerate(row.get("ours", []) if seeds else []):
                now, known = value(summary, expression, row.get("scale", 1)), [s[at] for s in seeds]
                slack = SLACK * max(map(abs, known)) + 1e-9
                if not min(known) - slack <= now <= max(known) + slack:
                    wrong.append(f"{row['file']}: {expression} is {now:.5g}, the page says {min(known):.5g} to {max(known):.5g}")
    if folders and not judged:
        wrong.append(f"no results of any row in {', '.join(folders)}")
    print("\n".join(wrong) or f"reproduced: page and README are what the results say ({judged} results compared)")
    return not wrong


def main():
    command, folders = (sys.argv + ["", ""])[1], sys.argv[2:]
    if command not in ("collect", "write", "check"):
        sys.exit(__doc__)
    if command == "collect":
        collect(folders)
    stored = json.loads(VALUES.read_text()) if VALUES.exists() else {}
    if command == "check":
        sys.exit(not check(stored, folders))
    PAGE.write_text(page(stored))
    README.write_text(readme(stored))


if __name__ == "__main__":
    try:
        main()
    except Broken as error:
        sys.exit(f"reproduced: {error}")
