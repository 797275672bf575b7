#!/usr/bin/env python3
"""The software bill of materials of the command: CycloneDX 1.5 as JSON, from Cargo.lock and what cargo knows of each package.

  scripts/sbom.py [FILE]     writes it (standard output without a file)
  scripts/sbom.py --check    says whether everything that the command is built from is named with version, licence and checksum
"""
import json
import re
import subprocess
import sys


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def checksums():
    found = {}
    for part in open("Cargo.lock").read().split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "(.*)"$', part, re.M))
        found[fields["name"], fields["version"]] = fields.get("checksum")
    return found


def bill():
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked"))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (root,) = [package["id"] for package in metadata["packages"] if package["name"] == "evenkeel"]
    # What is built into it or builds it; what only tests use is not part of it.
    wanted, todo = {}, [root]
    while todo:
        here = todo.pop()
        if here in wanted:
            continue
        below = [dep["pkg"] for dep in nodes[here]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        wanted[here] = below
        todo += below
    known = checksums()

    def reference(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package):
        made = {
            "type": "application" if package["id"] == root else "library",
            "bom-ref": reference(package),
            "name": package["name"],
            "version": package["version"],
            "purl": reference(package),
            "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}],
        }
        checksum = known[package["name"], package["version"]]
        if checksum:
            made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return made

    used = sorted((packages[each] for each in wanted), key=reference)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[root])},
        "components": [component(package) for package in used if package["id"] != root],
        "dependencies": [
            {"ref": reference(package), "dependsOn": sorted({reference(packages[on]) for on in wanted[package["id"]]})} for package in used
        ],
    }


def main():
    made = bill()
    if sys.argv[1:] == ["--check"]:
        outside = [each for each in made["components"] if not each["name"].startswith("evenkeel")]
        bad = [each["name"] for each in outside if "hashes" not in each or each["licenses"][0]["expression"] == "NOASSERTION"]
        names = {each["name"] for each in made["components"]}
        if bad or not {"evenkeel-core", "libc", "rustix"} <= names or names & {"proptest", "evenkeel-fuzz"}:
            sys.exit(f"sbom: {len(names)} packages; without checksum or licence: {bad}")
        print(f"sbom: {len(names)} packages, each with licence and, from outside, with checksum")
        return
    text = json.dumps(made, indent=1) + "\n"
    if sys.argv[1:]:
        open(sys.argv[1], "w").write(text)
    else:
        sys.stdout.write(text)


main()
