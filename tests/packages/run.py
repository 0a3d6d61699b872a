#!/usr/bin/env python3
"""Builds and checks the packages: run.py BINARY [chart|unit|replicas|tarball|deb|machine|container|sbom ...]

Without names it runs all parts. README.md lists the required tools.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

from report import Report, claim, output  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "target/packages"
ARCHIVE = OUT / "root.tar"
SUITE = "bookworm"
PARTS = ("chart", "unit", "replicas", "tarball", "deb", "machine", "container", "sbom")


def debian():
    """Makes the Debian root for the installations, unless the archive exists."""
    if not ARCHIVE.exists():
        packages = "--include=libstdc++6,ca-certificates,adduser"
        new = ARCHIVE.with_suffix(".new.tar")
        output("mmdebstrap", "--variant=minbase", packages, SUITE, new)
        new.rename(ARCHIVE)
    return f"{SUITE}, {ARCHIVE.stat().st_size} bytes"


def sbom():
    """Writes the software bill of materials with cargo-cyclonedx, and compares it with the lock file."""
    output("cargo", "cyclonedx", "--format", "json", "--target", "x86_64-unknown-linux-gnu", "--manifest-path",
           "host/conductor/Cargo.toml", "--override-filename", "conductor.cdx", cwd=ROOT)
    # cargo-cyclonedx writes a file beside every manifest of the workspace.
    metadata = output("cargo", "metadata", "--no-deps", "--format-version", "1", cwd=ROOT, stderr=subprocess.PIPE)
    for member in json.loads(metadata)["packages"]:
        path = pathlib.Path(member["manifest_path"]).with_name("conductor.cdx.json")
        if member["name"] == "conductor":
            shutil.copy(path, OUT / path.name)
        path.unlink(missing_ok=True)
    bill = json.loads((OUT / "conductor.cdx.json").read_text())
    names = {component["name"] for component in bill["components"]}
    for name in ("wasmtime", "tokio", "hyper", "rustls", "zmq", "tikv-jemallocator"):
        claim(name in names, f"{name} is not in the bill of materials")
    lock = (ROOT / "Cargo.lock").read_text()
    unknown = [name for name in names if f'name = "{name}"' not in lock]
    claim(not unknown, f"Cargo.lock lacks components of the bill of materials: {unknown}")
    return f"{bill['bomFormat']} {bill['specVersion']}, {len(names)} components"


def machines(report):
    import machine

    archive = OUT / "machine.tar"
    if report.check("machine: Debian root with systemd", machine.root, archive, SUITE):
        name = "machine: installed, reloaded, upgraded and stopped with systemctl"
        report.check(name, machine.installed, OUT, archive)


def containers(report):
    import container

    hadolint = pathlib.Path(sys.executable).with_name("hadolint")
    report.check("Containerfile: hadolint", container.lint, ROOT, hadolint)
    with tempfile.TemporaryDirectory(prefix="conductor-storage-") as folder:
        storage = pathlib.Path(folder)
        if report.check("Containerfile: base image of a Debian root", container.base, storage, ARCHIVE):
            if report.check("Containerfile: build", container.built, ROOT, storage):
                report.check("Containerfile: start and probes", container.started, ROOT, storage)


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(PARTS):
        sys.exit(__doc__)
    import install

    binary, parts = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or PARTS
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    if "chart" in parts:
        import chart

        with tempfile.TemporaryDirectory() as policies:
            chart.run(report, ROOT / "config/deploy/helm/conductor", binary, policies)
    if "unit" in parts:
        report.check("unit", install.unit, ROOT, binary)
    if "replicas" in parts:
        import replicas

        report.check("replicas: three routers behind nginx", replicas.started, ROOT, binary)
    if {"tarball", "deb", "machine", "container"} & set(parts):
        report.check("tarball", install.tarball, ROOT, binary, OUT)
        report.check("debug info", install.stripped, OUT)
    if {"deb", "container"} & set(parts):
        report.check("Debian root", debian)
    if {"deb", "machine"} & set(parts) and report.check("Debian package", install.deb, ROOT, OUT):
        if "deb" in parts:
            report.check("Debian package: installed, started, purged", install.installed, OUT, ARCHIVE)
        if "machine" in parts:
            machines(report)
    if "container" in parts:
        containers(report)
    if "sbom" in parts:
        report.check("bill of materials", sbom)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
