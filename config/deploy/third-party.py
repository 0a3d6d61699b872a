#!/usr/bin/env python3
"""Prints the licences of all crates in the program, with the licence texts: third-party.py > THIRD-PARTY.txt

The crates come from `cargo metadata` for the target, and the texts from their packages. Fails if a crate has no
licence.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"
NAMES = ("license", "licence", "copying", "notice", "unlicense")
# Suffix of crates with the source of a C library, which a build script links into the program.
SOURCE_SUFFIX = "-src"


def linked(metadata):
    """Returns the packages that are linked into the program, by walking its dependencies."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (start,) = (key for key, package in packages.items() if package["name"] == "conductor")
    found, queue = set(), [start]
    while queue:
        key = queue.pop()
        if key in found:
            continue
        found.add(key)
        for dependency in nodes[key]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            is_source = "build" in kinds and packages[dependency["pkg"]]["name"].endswith(SOURCE_SUFFIX)
            if None in kinds or is_source:
                queue.append(dependency["pkg"])
    return [packages[key] for key in found if packages[key]["source"]]


def texts(package):
    """Returns the licence files in the root of a package and in its folders, which may have a C library."""
    root = pathlib.Path(package["manifest_path"]).parent
    files = [path for depth in ("*", "*/*") for path in sorted(root.glob(depth))]
    return [path for path in files if path.is_file() and path.name.lower().startswith(NAMES)]


def main():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = sorted(linked(metadata), key=lambda package: (package["name"], package["version"]))
    unlicensed = [package["name"] for package in packages if not (package["license"] or package["license_file"])]
    if unlicensed:
        sys.exit(f"crates without a licence: {unlicensed}")
    print("Conductor contains these libraries. Their licences, then the texts of their packages.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or package['license_file']}")
    print((ROOT / "NOTICE").read_text())
    owners_by_text = {}
    for package in packages:
        for path in texts(package):
            text = path.read_text(errors="replace").strip()
            owners_by_text.setdefault(text, []).append(f"{package['name']} {package['version']}: {path.name}")
    for text, owners in owners_by_text.items():
        print("\n" + "=" * 80 + "\n" + "\n".join(owners) + "\n" + "-" * 80 + "\n" + text)


if __name__ == "__main__":
    main()
