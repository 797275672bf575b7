#!/usr/bin/env python3
"""The gallery: one picture of each scenario that reproduces a figure, a table or a claim, in one page.

    gallery.py FOLDER [BOOK]   FOLDER holds results of `evenkeel sim`, one folder for each scenario (out/figures/sim, which `make test`
                               and scripts/figures.sh write). Says which have no picture; with BOOK, the source of the book that
                               scripts/guide.py has written, puts pictures and page there.
"""
import base64
import re
import sys
import tomllib
from pathlib import Path

# Every figure of a page is in it a second time, to be saved.
PICTURE = re.compile(r'download="[^"]+\.svg" href="data:image/svg\+xml;base64,([^"]+)"')
GROUPS = {
    "lct": "LCT-UC and QoStat",
    "wfq-altq": "WFQ/ALTQ and its ring",
    "wfq-other": "WFQ/ALTQ, other loads and packets",
    "fairdrop": "FairDrop",
    "cross-protect": "The cross-protect router",
    "cross-protect-lab": "The cross-protect router, short enough for real packets",
    "stsdr": "Distributed WFQ",
    "latency": "Short queues",
    "subscribers": "Subscribers",
}


def picture(folder: Path) -> bytes | None:
    """The figure that says most: the first of measurements; that of the topology stands before them."""
    page = folder / "report.html"
    found = PICTURE.findall(page.read_text()) if page.exists() else []
    return base64.b64decode(found[min(1, len(found) - 1)]) if found else None


def entries(results: Path) -> tuple[dict[str, list[tuple[str, str, bytes]]], list[str]]:
    """By group: name, text and picture of each; and what has none."""
    found: dict[str, list[tuple[str, str, bytes]]] = {}
    missing = []
    for folder in sorted(results.iterdir()):
        if "-without-" in folder.name or not (folder / "scenario.toml").exists():
            continue
        scenario = tomllib.loads((folder / "scenario.toml").read_text())
        name, drawn = scenario["name"], picture(folder)
        if drawn is None:
            missing.append(name)
            continue
        source = f"Source: {scenario['source']}.\n\n" if "source" in scenario else ""
        claims = "".join(f"- {claim['claim']}\n" for claim in scenario.get("expect", []) if "claim" in claim)
        text = f"### {scenario.get('title', name)}\n\n`evenkeel sim scenarios/{name}.toml`. {source}\n{claims}"
        found.setdefault(name.split("/")[0], []).append((name.replace("/", "-"), text, drawn))
    return found, missing


def main() -> int:
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    found, missing = entries(Path(sys.argv[1]))
    number = sum(map(len, found.values()))
    if len(sys.argv) == 3:
        book = Path(sys.argv[2])
        (book / "gallery").mkdir(exist_ok=True)
        text = (book / "gallery.md").read_text().split("\n", 1)[0] + f"\n\n{number} scenarios, simulated; below each what it claims.\n"
        for group, of in sorted(found.items(), key=lambda one: list(GROUPS).index(one[0]) if one[0] in GROUPS else len(GROUPS)):
            text += f"\n## {GROUPS.get(group, group)}\n"
            for name, words, drawn in of:
                (book / "gallery" / f"{name}.svg").write_bytes(drawn)
                text += f"\n{words}\n![{name}](gallery/{name}.svg)\n"
        (book / "gallery.md").write_text(text)
    for name in missing:
        print(f"{name}: no picture", file=sys.stderr)
    print(f"{number} pictures")
    return bool(missing) or not number


if __name__ == "__main__":
    sys.exit(main())
