#!/usr/bin/env python3
"""Finds circles of imports between the files of a crate.

A file imports another if it names something that the other defines: in `use`, or by a path that
begins with `crate`, `super`, `self` or a child module. What is re-exported counts for the file
that defines it. Neither `mod child;` nor `pub use child::Name` is an import: both say where things
are. Tests inside a file do not count.
"""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ITEM = re.compile(
    r"\b(?:struct|enum|union|trait|type|fn|const|static|macro_rules!)\s+(?:mut\s+)?([A-Za-z_]\w*)"
)
TESTS = re.compile(
    r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*"
)
PATH = re.compile(r"(?<![\w:$.])((?:[A-Za-z_]\w*)(?:\s*::\s*[A-Za-z_]\w*)+)")


def stripped(text):
    """Without comments, strings and modules of tests."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'r(#*)".*?"\1', '""', text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.S)
    text = re.sub(r"'(?:\\.|[^'\\])'", "' '", text)
    while match := TESTS.search(text):
        end = match.end()
        if end < len(text) and text[end] == "{":
            depth = 0
            while end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
                if depth == 0:
                    break
        else:
            end += 1
        text = text[: match.start()] + text[end:]
    return text


def leaves(tree, prefix):
    """The paths of a use tree, each with the name that it gets here."""
    tree = tree.strip()
    if match := re.fullmatch(r"(.*?)(?:::)?\s*\{(.*)\}", tree, flags=re.S):
        head = [part.strip() for part in match[1].split("::") if part.strip()]
        depth, start, inside = 0, 0, match[2]
        for at, sign in enumerate(inside + ","):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            if sign == "," and depth == 0:
                if inside[start:at].strip():
                    yield from leaves(inside[start:at], prefix + head)
                start = at + 1
        return
    path, _, alias = tree.partition(" as ")
    parts = prefix + [part.strip() for part in path.split("::") if part.strip()]
    if parts and parts[-1] == "self":
        parts = parts[:-1]
    if parts:
        yield parts, alias.strip() or parts[-1]


class Module:
    def __init__(self, path, file):
        self.path, self.file = path, file
        text = stripped(file.read_text())
        self.items = set(ITEM.findall(text))
        self.exports, self.uses = {}, []
        for visible, tree in re.findall(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", text):
            for parts, name in leaves(tree, []):
                self.uses.append((bool(visible), parts, name))
        self.text = re.sub(r"\b(pub(?:\([^)]*\))?\s+)?use\s+[^;]+;", "", text)


def crate_of(source):
    modules = {}
    for file in sorted(source.rglob("*.rs")):
        parts = list(file.relative_to(source).with_suffix("").parts)
        if parts[0] == "bin":
            continue
        if parts[-1] in ("mod", "lib", "main"):
            parts = parts[:-1]
        if tuple(parts) in modules and file.name == "main.rs":
            continue
        modules[tuple(parts)] = Module(tuple(parts), file)
    return modules


def absolute(module, modules, parts):
    """A path from the root of the crate, or nothing if it is of another crate."""
    here = list(module.path)
    if parts[0] == "crate":
        return parts[1:]
    if parts[0] in ("self", "super"):
        while parts and parts[0] in ("self", "super"):
            if parts[0] == "super":
                here = here[:-1]
            parts = parts[1:]
        return here + parts
    if tuple(here + parts[:1]) in modules:
        return here + parts
    return None


def definer(modules, parts, seen=()):
    """The module that defines what an absolute path names."""
    at = len(parts)
    while tuple(parts[:at]) not in modules:
        at -= 1
    module, rest = modules[tuple(parts[:at])], parts[at:]
    if not rest or rest[0] in module.items or module.path in seen:
        return module
    for _, used, name in module.uses:
        if name in (rest[0], "*") and (to := absolute(module, modules, used)) is not None:
            if name == "*":
                inner = modules.get(tuple(to[:-1]))
                if inner is None or rest[0] not in inner.items:
                    continue
                return inner
            return definer(modules, to + rest[1:], (*seen, module.path))
    return None


def imports(modules):
    edges = {module: set() for module in modules.values()}
    for module in modules.values():
        aliases = {}
        for visible, parts, name in module.uses:
            if (to := absolute(module, modules, parts)) is None:
                continue
            aliases[name] = to
            if to and to[-1] == "*":
                to = to[:-1]
            found = definer(modules, to)
            # A module that is imported by name counts by what is taken from it.
            whole = tuple(to) in modules
            below = found and found.path[: len(module.path)] == module.path
            if found and not whole and not (visible and below):
                edges[module].add(found)
        for text in PATH.findall(module.text):
            parts = [part.strip() for part in text.split("::")]
            to = absolute(module, modules, parts)
            if to is None and parts[0] in aliases:
                to = aliases[parts[0]] + parts[1:]
            if to is not None and (found := definer(modules, to)):
                edges[module].add(found)
        edges[module].discard(module)
    return edges


def circles(edges):
    """The strongly connected parts of more than one file (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            part, stack[at:] = stack[at:], []
            if len(part) > 1:
                found.append(part)

    sys.setrecursionlimit(10_000)
    for module in edges:
        if module not in number:
            visit(module)
    return found


# Circles that stay, each by the files that it may have (folders end with a slash), and why.
ALLOWED = [
    (["cluster/src/config.rs", "cluster/src/frame/"],
     "a configuration is checked against the frames that are built by it"),
    (["cluster/src/engine/"], "the parts of the engine are written as methods of it"),
    (["cluster/src/scheduler/"], "the lists are a part of the scheduler and work on its state"),
    (["cluster/src/model/"], "the run is a part of the model and fills its outcome"),
    (["config/src/"], "the model of router.toml, its sections and its changes name each other"),
    (["control/src/confirm.rs", "control/src/server.rs"],
     "a confirmation is a state of the server"),
    (["core/src/packet.rs", "core/src/queue.rs", "core/src/flow_table.rs", "core/src/flow_table/",
      "core/src/schedule/", "core/src/settings/"],
     "packets carry their packed key; settings name classes; the trait of disciplines and the enum"
     " over all of them stand in one file"),
    (["core/src/admit/"], "the mechanisms are parts of one admission and work on its state"),
    (["core/src/drop/"], "the rules are parts of one dropper and work on its state"),
    (["core/src/control/"], "the rules and the enum over all of them stand in one file"),
    (["core/src/link/config.rs", "core/src/shape.rs"], "a shaper is a part of a link's settings"),
    (["net/src/checksum.rs", "net/src/frame.rs", "net/src/frame/"],
     "a header is checked while it is parsed, and its extensions are a part of it"),
    (["net/src/neighbour/"], "the slots are a part of the table of neighbours"),
    (["router/src/mirror/"], "what is decoded and what is kept of it name each other's records"),
    (["router/src/pipeline/"], "the parts of the pipeline are written as methods of it"),
    (["router/src/prepare.rs", "router/src/prepare/"],
     "the parts of a worker's start name what it is started with"),
    (["scenario/src/model.rs", "scenario/src/topology.rs"], "the topology is a view of the model"),
    (["scenario/src/tables.rs", "scenario/src/tables/"], "one table of keys in two files"),
    (["scenario/src/parse/"], "the parts of the parser share its state"),
    (["settings/src/read.rs", "settings/src/scalar.rs"],
     "a table holds scalars, and a list of scalars is read as a table is"),
    (["sweep/src/chart/mod.rs", "sweep/src/spec.rs", "sweep/src/store.rs"],
     "a chart is a part of a sweep's specification and is drawn from its results"),
]


def is_allowed(files):
    def within(file, places):
        paths = [f"crates/{place}" for place in places]
        return any(file == path or path[-1] == "/" and file.startswith(path) for path in paths)

    return any(all(within(file, places) for file in files) for places, _ in ALLOWED)


def found_in(root):
    """Each circle below a folder: its files, and who of them imports whom."""
    for source in sorted(root.glob("crates/*/src")):
        edges = imports(crate_of(source))
        for circle in circles(edges):
            name = {module: str(module.file.relative_to(root)) for module in circle}
            within = {name[m]: sorted(name[o] for o in edges[m] if o in name) for m in circle}
            yield sorted(within), within


def self_test():
    """A planted circle is found; a module that declares and re-exports its child is none."""
    cases = [
        (True, {"lib.rs": "mod a;\nmod b;\n", "a.rs": "use crate::b::B;\npub struct A(B);\n",
                "b.rs": "pub struct B;\nfn of(_: crate::a::A) {}\n"}),
        (True, {"lib.rs": "mod a;\nmod b;\npub use b::B;\n",
                "a.rs": "use crate::B;\npub struct A(B);\n",
                "b.rs": "use super::a;\npub struct B;\nfn of(_: a::A) {}\n"}),
        (False, {"lib.rs": "mod a;\npub use a::A;\n", "a.rs": "pub struct A;\n"}),
        (False, {"lib.rs": "mod a;\nmod b;\n", "a.rs": "use crate::b::B;\npub struct A(B);\n",
                 "b.rs": "// crate::a::A\npub struct B;\n#[cfg(test)]\n"
                         "mod tests {\n    use crate::a::A;\n}\n"}),
    ]
    for number, (wanted, files) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "crates" / "planted" / "src"
            source.mkdir(parents=True)
            for name, text in files.items():
                (source / name).write_text(text)
            if bool(list(found_in(pathlib.Path(folder)))) != wanted:
                sys.exit(f"circles.py: case {number} of the self-test fails")


def main():
    self_test()
    new = False
    for files, within in found_in(ROOT):
        if not is_allowed(files):
            new = True
            print(f"{len(files)} files import each other:")
            for file in files:
                print(f"  {file} imports {', '.join(within[file])}")
    if new:
        print("Move what both need into a file of its own, or say in ALLOWED why it stays.")
    sys.exit(new)


main()
