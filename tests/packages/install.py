"""Checks of the unit, the tarball and the Debian package, which is installed into a root of its own and started."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

from report import claim, output

# Highest exposure of the unit by `systemd-analyze security`, times ten.
EXPOSURE = 16
LEVEL = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")


def unit(root, binary):
    """Verifies the unit, with the path of this binary, by systemd's own tools."""
    text = (root / "config/deploy/systemd/conductor.service").read_text()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "conductor.service"
        file.write_text(text.replace("/usr/bin/conductor", str(binary)))
        problems = output("systemd-analyze", "verify", file)
        claim(not problems.strip(), problems)
        table = output("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", file)
    return f"exposure {LEVEL.search(table)[1]}"


def tarball(root, binary, out):
    """Makes the tarball twice, with the same bytes, and runs the program of it."""
    output(root / "config/deploy/tarball.sh", binary, out)
    (name,) = [path for path in out.glob("conductor-*-linux.tar.gz")]
    first = name.read_bytes()
    said = output(root / "config/deploy/tarball.sh", binary, out)
    claim(name.read_bytes() == first, "two builds of the tarball differ")
    output("sha256sum", "-c", name.name.replace(".tar.gz", ".sha256"), cwd=out)
    with tempfile.TemporaryDirectory() as folder:
        output("tar", "-xzf", name, "-C", folder)
        (top,) = pathlib.Path(folder).iterdir()
        output(top / "bin/conductor", "check", top / "etc/conductor/conductor.toml")
        for part in ("LICENSE", "NOTICE", "THIRD-PARTY.txt", "conductor.toml", "examples/two-workers.toml"):
            claim((top / "share/doc/conductor" / part).stat().st_size > 0, f"{part} is missing")
        licences = (top / "share/doc/conductor/THIRD-PARTY.txt").read_text()
        for library in ("wasmtime", "GNU LESSER GENERAL PUBLIC LICENSE", "jemalloc", "preact"):
            claim(library in licences, f"no licence of {library}")
    return said.strip()


def stripped(out):
    """The program has no debug info, and its debug info belongs to it."""
    sections = output("objdump", "-h", out / "conductor")
    claim(".debug_info" not in sections and ".gnu_debuglink" in sections, "it is not stripped, or has no link")
    build = [re.search(r"Build ID: (\w+)", output("readelf", "-n", out / name)) for name in ("conductor", "conductor.debug")]
    claim(build[0] is None or build[0][1] == build[1][1], "the debug info is of another build")


def debhelper(kind):
    """Returns the part of a maintainer script that debhelper (and cargo-deb) adds for an enabled and started unit."""
    return {
        "postinst": 'if [ -x /usr/bin/deb-systemd-helper ]; then deb-systemd-helper enable conductor.service; fi\n'
        "if [ -d /run/systemd/system ]; then deb-systemd-invoke start conductor.service >/dev/null || true; fi",
        "prerm": "if [ -d /run/systemd/system ]; then deb-systemd-invoke stop conductor.service || true; fi",
        "postrm": "if [ -d /run/systemd/system ]; then systemctl --system daemon-reload; fi",
    }[kind]


def stage(root, binary, folder):
    """Lays a package out by the metadata of cargo-deb, for machines without it."""
    crate = root / "host/conductor"
    package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]["metadata"]["deb"]
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for source, target, mode in package["assets"]:
        paths = [binary] if source.startswith("target/release/") else sorted(crate.glob(source))
        claim(paths, f"no file is {source}")
        for path in paths:
            place = folder / target / path.name if target.endswith("/") else folder / target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            place.chmod(int(mode, 8))
    unit = folder / "lib/systemd/system/conductor.service"
    unit.parent.mkdir(parents=True)
    shutil.copyfile(crate / package["systemd-units"]["unit-scripts"] / unit.name, unit)
    shutil.copyfile(crate / package["license-file"][0], folder / "usr/share/doc/conductor/copyright")
    control = folder / "DEBIAN"
    control.mkdir()
    for kind in ("postinst", "prerm", "postrm"):
        text = (crate / package["maintainer-scripts"] / kind).read_text()
        (control / kind).write_text(text.replace("#DEBHELPER#", debhelper(kind)))
        (control / kind).chmod(0o755)
    (control / "conffiles").write_text("".join(f"{path}\n" for path in package["conf-files"]))
    depends = package["depends"].replace("$auto", "libc6 (>= 2.34), libgcc-s1 (>= 4.2), libstdc++6 (>= 12)")
    (control / "control").write_text(
        f"Package: conductor\nVersion: {version}-1\nArchitecture: amd64\nMaintainer: {package['maintainer']}\n"
        f"Depends: {depends}\nSection: {package['section']}\nPriority: {package['priority']}\n"
        f"Description: router for fleets of LLM inference servers\n {' '.join(package['extended-description'].split())}\n"
    )


@contextlib.contextmanager
def packed_program(place, program):
    """Puts the program to pack at the place where cargo-deb looks for it, and then restores what was there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = place.with_name("conductor.kept")
    if place.exists():
        place.rename(kept)
    try:
        shutil.copy2(program, place)
        yield
    finally:
        if kept.exists():
            kept.replace(place)
        else:
            place.unlink(missing_ok=True)


def deb(root, out):
    """Builds the package: by cargo-deb if it is installed, else by dpkg-deb from the same metadata."""
    for old in out.glob("conductor_*.deb"):
        old.unlink()
    if shutil.which("cargo-deb"):
        with packed_program(root / "target/release/conductor", out / "conductor"):
            output("cargo", "deb", "-p", "conductor", "--no-build", "--output", out, cwd=root)
        way = "cargo-deb"
    else:
        with tempfile.TemporaryDirectory() as folder:
            stage(root, out / "conductor", pathlib.Path(folder))
            os.chmod(folder, 0o755)
            output("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", folder, out)
        way = "dpkg-deb"
    (file,) = out.glob("conductor_*.deb")
    claim("/etc/conductor/conductor.toml" in output("dpkg-deb", "-I", file, "conffiles"), "no conffile")
    return f"{file.name} by {way}, {file.stat().st_size} bytes"


def free_ports(number):
    """Returns different ports of the loopback, all free at this moment."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def on_free_ports(config):
    """Returns a configuration with free ports, the one of the worker included, and the ports of the listeners."""
    listen, admin, worker = free_ports(3)
    for shipped, port in ((8080, listen), (8081, admin), (8000, worker)):
        config = config.replace(f':{shipped}"', f':{port}"')
    return config, listen, admin


def status(port, path):
    """Returns the status and the text of a page; status 0 while no one listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until(text, holds, process, seconds=120):
    """Waits for a condition while a process runs."""
    end = time.monotonic() + seconds
    while not holds():
        claim(process.poll() is None, f"{text}: the process ended with {process.returncode}")
        claim(time.monotonic() < end, f"{text}: not within {seconds} s")
        time.sleep(0.1)


def probed(process, listen, admin):
    """Claims of a started router without a reachable worker; ends it and returns its exit code."""
    try:
        until("/health answers", lambda: status(admin, "/health")[0] == 200, process)
        # At first the reason is the start itself.
        reason = lambda: json.loads(status(admin, "/readyz")[1])["reason"]
        until("/readyz has no worker", lambda: "no worker" in reason(), process)
        claim(status(admin, "/readyz")[0] == 503, "/readyz without a worker is not 503")
        claim("conductor_build_info{" in status(admin, "/metrics")[1], "no metrics")
        claim(status(listen, "/health")[0] == 200, "the client listener does not answer")
        process.send_signal(signal.SIGTERM)
        return process.wait(60)
    finally:
        process.kill()


@contextlib.contextmanager
def debian_root(archive):
    """A Debian root from an archive."""
    with tempfile.TemporaryDirectory(prefix="conductor-root-") as folder:
        output("tar", "-xf", archive, "-C", folder)
        yield pathlib.Path(folder)


def installed(out, archive):
    """Installs the package into a Debian root, starts the router as its user, and purges the package."""
    (file,) = out.glob("conductor_*.deb")
    with debian_root(archive) as root:
        shutil.copy(file, root / "conductor.deb")
        output("chroot", root, "dpkg", "-i", "/conductor.deb")
        said = output("chroot", root, "conductor", "version").strip()
        claim("valid" in output("chroot", root, "conductor", "check", "/etc/conductor/conductor.toml"), "not valid")
        claim("warning" not in output("chroot", root, "conductor", "check", "/etc/conductor/conductor.toml"), "a warning")
        owner = output("chroot", root, "stat", "-c", "%U:%G %a %n", "/etc/conductor/conductor.toml", "/var/lib/conductor")
        expected = "root:conductor 640 /etc/conductor/conductor.toml\nconductor:conductor 750 /var/lib/conductor\n"
        claim(owner == expected, owner)
        started(root)
        # An edited conffile stays over an upgrade, and over a removal.
        (root / "etc/conductor/conductor.toml").open("a").write("# edited\n")
        output("chroot", root, "dpkg", "--force-confold", "-i", "/conductor.deb")
        # A removed one stays away over an upgrade, which succeeds.
        kept = (root / "etc/conductor/conductor.toml").rename(root / "kept.toml")
        output("chroot", root, "dpkg", "--force-confold", "-i", "/conductor.deb")
        claim(not (root / "etc/conductor/conductor.toml").exists(), "the removed conffile is back")
        kept.rename(root / "etc/conductor/conductor.toml")
        output("chroot", root, "dpkg", "-r", "conductor")
        claim("# edited" in (root / "etc/conductor/conductor.toml").read_text(), "the edited conffile is gone")
        output("chroot", root, "dpkg", "-P", "conductor")
        left = [path for path in ("etc/conductor", "var/lib/conductor", "usr/bin/conductor") if (root / path).exists()]
        claim(not left, f"left after the purge: {left}")
    return said


def started(root):
    """Starts the installed router as its user, on free ports."""
    config = root / "etc/conductor/conductor.toml"
    original = config.read_text()
    text, listen, admin = on_free_ports(original)
    config.write_text(text)
    command = ["chroot", "--userspec=conductor:conductor", root, "/usr/bin/conductor", "serve"]
    command += ["--config", "/etc/conductor/conductor.toml"]
    environment = {"PATH": os.environ["PATH"], "CACHE_DIRECTORY": "/tmp"}
    with (root / "router.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        code = probed(process, listen, admin)
    claim(code == 0, f"exit {code}: {(root / 'router.log').read_text()[-2000:]}")
    config.write_text(original)
