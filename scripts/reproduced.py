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

docs/tables.toml declares tables and blocks of other pages, which stand there between <!-- NAME: begin --> and
<!-- NAME: end -->:

  [[table]]
  page = "docs/cross-protect.md"
  name = "lab"
  head = ["scenario", "simulated", "on real packets"]
  [[table.row]]                     # file, expect, ours, format (one, or one for each), scale as above
  cells = ["`waits`", "{sim[0]} s", "{lab[0]} s"]         # means of `ours` in each world; {sim_low}, {sim_high}: of the seeds
  [[table.row]]
  live  = "Linux + HTB"             # of docs/bench/live.txt, what `make bench` printed of `live`, by frame size
  part  = "memory"                  # of docs/bench/memory.txt, what it printed of that: {n[NAME]} is the number after NAME
  cells = ["Linux with HTB", "{kpps[64]}", "{htb[64]}", "{dpdk[64]}"]

In place of head and rows `text = "docs/demo.txt"` gives that file as it is.

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
TABLES = ROOT / "docs/tables.toml"
BENCH = ROOT / "docs/bench"
LIVE = BENCH / "live.txt"
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


def tables():
    return tomllib.loads(TABLES.read_text())["table"]


def all_rows():
    """Every row that results of a scenario stand behind."""
    rows = [row for paper in papers() for row in paper["row"]]
    return rows + [row for table in tables() for row in table.get("row", [])]


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
    rows = [row for row in all_rows() if row.get("ours")]
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
            raise Broken(f"{row['file']}: no expectation {', '.join(missing)} ({row.get('where', row.get('cells'))})")
        not_ = [known[n] for n in row["expect"] if not known[n].get("reproduced", True)]
        if not_:
            return "**no**: " + " ".join(e["note"] for e in not_)
        return "yes"
    if "test" in row:
        file, _, name = row["test"].partition("::")
        if f"fn {name}(" not in (ROOT / file).read_text():
            raise Broken(f"{file} has no test {name} ({row.get('where', row.get('cells'))})")
    if not row.get("reproduced", True):
        return "**no**: " + row["why"]
    if "test" not in row:
        raise Broken(f"{row.get('where')}, {row.get('says')}: needs expect, test, or reproduced = false")
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


# --- tables of other pages -------------------------------------------------------------------------------


def live():
    """name of what forwarded -> column -> frame size -> text, of what `make bench` printed."""
    found, size = {}, None
    for text in map(str.strip, LIVE.read_text().splitlines()):
        if match := re.match(r"frames of (\d+) bytes", text):
            size = int(match[1])
        elif match := re.match(r"(.+?) {2,}(\d+) +\([^)]*\) +(.*)", text):
            cells = match[3].split()
            columns = {"kpps": match[2], "htb": cells[-2], "dpdk": cells[-1]}
            for name, cell_ in columns.items():
                found.setdefault(match[1], {}).setdefault(name, {})[size] = cell_
    return found


def printed(part):
    """name of a line -> its first number, of what `make bench` printed of a part; spaces in names are as printed, but single."""
    lines = (BENCH / f"{part}.txt").read_text().splitlines()
    found = (re.match(r"  (\S.*?) {2,}([\d.]+)(?: |$)", text) for text in lines)
    flows = (re.match(r"  (\S+ +\d+ [kM]) +([\d.]+) ", text) for text in lines)
    numbers = {}
    for match in (*found, *flows):
        if match:
            numbers.setdefault(" ".join(match[1].split()), f"{float(match[2]):,.0f}".replace(",", " "))
    return {"n": numbers}


def words(row, stored):
    """What the cells of a row may name."""
    if "part" in row:
        return printed(row["part"])
    if "live" in row:
        if row["live"] not in live():
            raise Broken(f"{LIVE.name}: no row {row['live']}")
        return live()[row["live"]]
    known = {}
    for world, seeds in stored.get(key(row), {}).items() if "ours" in row else ():
        columns = list(zip(*seeds.values()))
        forms = row.get("format", "{:.4g}")
        forms = forms if isinstance(forms, list) else [forms] * len(columns)
        for name, of in (("", lambda c: sum(c) / len(c)), ("_low", min), ("_high", max)):
            known[world + name] = [form.format(of(column)) for form, column in zip(forms, columns)]
    return known


def block(table, stored):
    if "markdown" in table:
        return (ROOT / table["markdown"]).read_text().rstrip("\n") + "\n"
    if "text" in table:
        return "```\n" + (ROOT / table["text"]).read_text().rstrip("\n") + "\n```\n"
    text = line(table["head"]) + "|---" * len(table["head"]) + "|\n"
    for row in table["row"]:
        if "file" in row or "test" in row:
            state(row)
        try:
            text += line([c.format(**words(row, stored)) for c in row["cells"]])
        except (KeyError, IndexError) as error:
            raise Broken(f"{TABLES.name}: {table['name']}: no result for {error} in {row['cells']}") from error
    return text


def pages(stored):
    """path -> its text, of every page that is generated, or has blocks that are."""
    texts = {PAGE: page(stored), README: readme(stored)}
    for table in tables():
        path = ROOT / table["page"]
        text = texts.get(path) or path.read_text()
        begin, end = (f"<!-- {table['name']}: {place} -->\n" for place in ("begin", "end"))
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise Broken(f"{table['page']}: no {begin.strip()} and {end.strip()}")
        texts[path] = before + begin + block(table, stored) + end + after
    return texts


def check(stored, folders):
    wrong = []
    for path, text in pages(stored).items():
        if path.read_text() != text:
            wrong.append(f"{path.relative_to(ROOT)} is not what docs/reproduced/, docs/tables.toml and the results give: scripts/reproduced.py write")
    found = results(folders)
    judged = 0
    for row in (r for r in all_rows() if "file" in r):
        for summary in found.get(scenario_of(row)["name"], {}).get("sim", []):
            judged += 1
            if verdict(summary, row.get("expect", [])) in ("fails", "undecided", "reproduced_after_all"):
                wrong.append(f"{row['file']}: {row.get('says') or row['cells'][0]}: expectations do not say what the page says")
            seeds = stored.get(key(row), {}).get("sim", {}).values() if row.get("ours") else []
            for at, expression in enumerate(row.get("ours", []) if seeds else []):
                now, known = value(summary, expression, row.get("scale", 1)), [s[at] for s in seeds]
                slack = SLACK * max(map(abs, known)) + 1e-9
                if not min(known) - slack <= now <= max(known) + slack:
                    wrong.append(f"{row['file']}: {expression} is {now:.5g}, the page says {min(known):.5g} to {max(known):.5g}")
    if folders and not judged:
        wrong.append(f"no results of any row in {', '.join(folders)}")
    print("\n".join(wrong) or f"reproduced: pages are what the results say ({judged} results compared)")
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
    for path, text in pages(stored).items():
        path.write_text(text)


if __name__ == "__main__":
    try:
        main()
    except Broken as error:
        sys.exit(f"reproduced: {error}")
