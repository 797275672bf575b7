#!/usr/bin/env python3
"""No source file has more than 600 lines, and no function more than 80.

Counted are the files of crates/*/src and bench/src, blank lines and comments included, tests left
out: neither modules of tests nor functions inside macros count. What is longer all the same stands
in LONGER with the reason and the lines that it has now: it may shrink, but not grow.
--self-test shows that what is too long is found.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE, FUNCTION = 600, 80

# File, or file::function: most lines, and why it stays in one piece.
LONGER = {
    # Benches print their report from top to bottom; each number stands beside its measurement.
    "bench/src/fib.rs::run": (116, "a report"),
    "bench/src/routes.rs::measure": (100, "a report"),
}

TESTS = re.compile(
    r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([{;])"
)
MACRO = re.compile(r"\bmacro_rules!\s*\w+\s*([{(])")
# Comments, raw strings, strings and characters, in the order in which one can begin.
LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^']*|[^'\\])'""", re.S
)
NAME = re.compile(r"\bfn\s+(\w+)")
CLOSES = {"{": "}", "(": ")"}


def blank(text):
    """The same with nothing but its lines."""
    return re.sub(r"[^\n]", " ", text)


def closing(code, start):
    """Behind the bracket that closes the one at `start`."""
    opens, depth = code[start], 0
    for at in range(start, len(code)):
        depth += (code[at] == opens) - (code[at] == CLOSES[opens])
        if depth == 0:
            return at + 1
    return len(code)


def without(pattern, code):
    """Without what `pattern` begins; its last group is the bracket."""
    while match := pattern.search(code):
        bracket = match.end() - 1
        end = closing(code, bracket) if code[bracket] in CLOSES else match.end()
        code = code[: match.start()] + blank(code[match.start() : end]) + code[end:]
    return code


def body(code, at):
    """Where the body of the function begins whose name ends at `at`; None if it has none."""
    depth = 0
    for at in range(at, len(code)):
        depth += (code[at] in "([") - (code[at] in ")]")
        if depth == 0 and code[at] in "{;":
            return at if code[at] == "{" else None
    return None


def measured(text):
    """Lines without tests, and name and lines of each function."""
    code = LITERAL.sub(lambda literal: blank(literal[0]), text)
    tests = sum(
        code[match.start() : closing(code, match.end() - 1)].count("\n") + 1
        for match in TESTS.finditer(code)
        if match[2] == "{"
    )
    code = without(MACRO, without(TESTS, code))
    functions = []
    for match in NAME.finditer(code):
        if (start := body(code, match.end())) is not None:
            length = code[match.start() : closing(code, start)].count("\n") + 1
            functions.append((match[1], length))
    return text.count("\n") - tests, functions


def is_test(path, files):
    """Whether a whole file is a module of tests: its parent says so."""
    name, folder = path.stem, path.parent
    if name == "mod":
        name, folder = folder.name, folder.parent
    parents = [folder / "mod.rs", folder / "lib.rs", folder / "main.rs", folder.with_suffix(".rs")]
    return any(
        match[1] == name and match[2] == ";"
        for parent in parents
        if parent in files
        for match in TESTS.finditer(files[parent])
    )


def too_long(files, longer):
    """What is longer than it may be, in words; and what is no longer too long."""
    found, seen = [], set()

    def judge(place, lines, most):
        if lines > most:
            seen.add(place)
            most = longer.get(place, (most, ""))[0]
            if lines > most:
                found.append(f"{place}: {lines} lines, at most {most}")

    for path, text in files.items():
        if not is_test(path, files):
            lines, functions = measured(text)
            judge(str(path), lines, FILE)
            for name, length in functions:
                judge(f"{path}::{name}", length, FUNCTION)
    return found, [place for place in longer if place not in seen]


def self_test():
    def found(text, longer=None, name="a/src/lib.rs"):
        return too_long({pathlib.Path(name): text}, longer or {})[0]

    def function(lines, name="f"):
        return f"fn {name}(a: [u8; 2]) {{\n" + "    a();\n" * (lines - 2) + "}\n"

    tests = "#[cfg(test)]\nmod tests {\n" + function(200) + "}\n"
    cases = [
        ("a function of 81 lines", bool(found(function(81))), True),
        ("a function of 80 lines", bool(found(function(80))), False),
        ("a file of 601 lines", bool(found("// a\n" * 601)), True),
        ("a file of 600 lines", bool(found("// a\n" * 600)), False),
        ("tests", bool(found("// a\n" * 500 + tests)), False),
        ("code behind tests", bool(found(tests + function(81))), True),
        ("a macro", bool(found("macro_rules! m {\n" + function(100) + "}\n")), False),
        ("a bracket in a text", bool(found(function(60).replace("a();", 'a("}");') * 2)), False),
        ("what is listed", bool(found(function(90), {"a/src/lib.rs::f": (90, "")})), False),
        ("what has grown", bool(found(function(91), {"a/src/lib.rs::f": (90, "")})), True),
        ("a declaration", bool(found("trait T {\n    fn f();\n}\n" + "// a\n" * 90)), False),
    ]
    files = {
        pathlib.Path("a/src/lib.rs"): "#[cfg(test)]\nmod tests;\n",
        pathlib.Path("a/src/tests.rs"): function(200),
    }
    cases.append(("a file of tests", bool(too_long(files, {})[0]), False))
    wrong = [f"{what}: {'found' if is_found else 'passed'}" for what, is_found, meant in cases
             if is_found != meant]
    if wrong:
        sys.exit("size: " + "; ".join(wrong))


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif sys.argv[1:]:
        sys.exit("usage: scripts/size.py [--self-test]")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "crates/*/src/*.rs", "bench/src/*.rs"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    files = {
        pathlib.Path(name): (ROOT / name).read_text()
        for name in listed
        if name and (ROOT / name).is_file()
    }
    found, shrunk = too_long(files, LONGER)
    for place in shrunk:
        print(f"size: {place} needs no exception any more: take it out of scripts/size.py")
    if found:
        sys.exit("\n".join(found) + "\nSplit it where it reads better, or say in LONGER why not.")
    print(f"size: no file has more than {FILE} lines, no function more than {FUNCTION}, "
          f"but for {len(LONGER)} exceptions")


if __name__ == "__main__":
    main()
