#!/usr/bin/env python3
"""The guide: docs/ as a book, and the links in it.

    guide.py            checks every page of docs/ and of the root: files and headings that links name are there, and no page
                        stands in docs/SUMMARY.md twice; one that does not stand there comes last in the book
    guide.py FOLDER     also writes the source of the book there, for mdBook: links to files that are no pages become their names
    guide.py --self-test  also checks that a broken link, heading and summary are found
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
# Pages of the root that the book has, too, below this folder.
BESIDE = ["README.md", "SECURITY.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]


def plain(text: str) -> str:
    """The text without code, in which nothing is a link."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mdBook and forges make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", text, flags=re.M):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number, name = 0, words
        while name in found:
            number += 1
            name = f"{words}-{number}"
        found.add(name)
    return found


def faults(root: Path) -> list[str]:
    said = []
    docs = root / "docs"
    for page in sorted([*docs.glob("*.md"), *root.glob("*.md")]):
        text = plain(page.read_text())
        for match in LINK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            where = f"{page.relative_to(root)}:{line}"
            target, _, anchor = match[3].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                said.append(f"{where}: there is no {match[3]}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                said.append(f"{where}: {target or page.name} has no heading #{anchor}")
    named = [match[3] for match in LINK.finditer((docs / "SUMMARY.md").read_text())]
    for name in sorted({name for name in named if named.count(name) > 1}):
        said.append(f"docs/SUMMARY.md: {name} stands there twice")
    return said


def write(folder: Path) -> None:
    """Copies the pages; a link that leaves them is left as its text."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    (folder / "book.toml").write_text('[book]\ntitle = "Evenkeel"\nlanguage = "en"\nsrc = "."\n')
    for name in BESIDE:
        text = (ROOT / name).read_text()
        shutil.copy(ROOT / name, folder / name)
        (folder / name).write_text(re.sub(r"\]\(docs/", "](", text))
    summary = folder / "SUMMARY.md"
    known = {match[3] for match in LINK.finditer(summary.read_text())} | {"SUMMARY.md", *BESIDE}
    others = [page for page in sorted(folder.glob("*.md")) if page.name not in known]
    titles = {page.name: page.read_text().split("\n", 1)[0].lstrip("# ") for page in others}
    titles |= {name: name.removesuffix(".md") for name in BESIDE}
    more = "".join(f"- [{title}]({name})\n" for name, title in titles.items())
    summary.write_text(summary.read_text() + "\n# More\n\n" + more)
    pages = {page.name for page in folder.glob("*.md")}

    def link(match: re.Match[str]) -> str:
        target = match[3].removeprefix("../")
        inside = not (folder / target.partition("#")[0]).exists() and not re.match(r"[a-z]+:|#", target)
        if inside:
            return match[2]
        return match[0].replace(match[3], target) if target.partition("#")[0] in pages else match[0]

    for page in folder.glob("*.md"):
        page.write_text(LINK.sub(link, page.read_text()))


def self_test() -> list[str]:
    """What is broken must be found."""
    with tempfile.TemporaryDirectory() as made:
        docs = Path(made) / "docs"
        docs.mkdir()
        (docs / "a.md").write_text("# One two\n[b](b.md) [gone](gone.md) [x](#one-two) `[c](c.md)`\n```\n[d](d.md)\n```\n")
        (docs / "b.md").write_text("[a](a.md#one-two)\n\n[a](a.md#three)\n")
        (docs / "SUMMARY.md").write_text("[a](a.md) [a](a.md)\n")
        found = faults(Path(made))
    wanted = [
        "docs/a.md:2: there is no gone.md",
        "docs/b.md:3: a.md has no heading #three",
        "docs/SUMMARY.md: a.md stands there twice",
    ]
    return [] if found == wanted else [f"of a broken guide it finds {found}, not {wanted}"]


def main() -> int:
    arguments = sys.argv[1:]
    found = faults(ROOT)
    if arguments == ["--self-test"]:
        found += self_test()
    elif arguments:
        write(Path(arguments[0]))
    print("\n".join(found) if found else "every link of the guide leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
