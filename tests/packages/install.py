"""Checks of the systemd unit, the tarball, and the Debian package, which is installed into a separate Debian root."""
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

# Highest permitted exposure of the unit by `systemd-analyze security`, times ten.
EXPOSURE = 16
LEVEL = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")


def unit(root, binary):
    """Verifies the unit with systemd's tools. The unit starts this binary."""
    text = (root / "config/deploy/systemd/conductor.service").read_text()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "conductor.service"
        file.write_text(text.replace("/usr/bin/conductor", str(binary)))
        problems = output("systemd-analyze", "verify", file)
        claim(not problems.strip(), problems)
        table = output("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", file)
    return f"exposure {LEVEL.search(table)[1]}"


def tarball(root, binary, out):
    """Builds the tarball twice, compares the bytes, and runs the program of the tarball."""
    output(root / "config/deploy/tarball.sh", binary, out)
    (name,) = [path for path in out.glob("conductor-*-linux.tar.gz")]
    first = name.read_bytes()
    summary = output(root / "config/deploy/tarball.sh", binary, out)
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
            claim(library in licences, f"the licence of {library} is missing")
    return summary.strip()


def stripped(out):
    """Checks that the program has no debug info, and that conductor.debug has the debug info of this program."""
    sections = output("objdump", "-h", out / "conductor")
    is_stripped = ".debug_info" not in sections and ".gnu_debuglink" in sections
    claim(is_stripped, "the program is not stripped or has no .gnu_debuglink")
    notes = [output("readelf", "-n", out / name) for name in ("conductor", "conductor.debug")]
    build = [re.search(r"Build ID: (\w+)", text) for text in notes]
    claim(build[0] is None or build[0][1] == build[1][1], "the debug info belongs to another build")


def debhelper(kind):
    """Returns the part of a maintainer script that debhelper and cargo-deb add for an enabled and started unit."""
    return {
        "postinst": 'if [ -x /usr/bin/deb-systemd-helper ]; then deb-systemd-helper enable conductor.service; fi\n'
        "if [ -d /run/systemd/system ]; then deb-systemd-invoke start conductor.service >/dev/null || true; fi",
        "prerm": "if [ -d /run/systemd/system ]; then deb-systemd-invoke stop conductor.service || true; fi",
        "postrm": "if [ -d /run/systemd/system ]; then systemctl --system daemon-reload; fi",
    }[kind]


def stage(root, binary, folder):
    """Writes the files of a package into a folder by the metadata of cargo-deb. Used on machines without cargo-deb."""
    crate = root / "host/conductor"
    package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]["metadata"]["deb"]
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for source, target, mode in package["assets"]:
        paths = [binary] if source.startswith("target/release/") else sorted(crate.glob(source))
        claim(paths, f"no file matches {source}")
        for path in paths:
            destination = folder / target / path.name if target.endswith("/") else folder / target
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, destination)
            destination.chmod(int(mode, 8))
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
def packed_program(path, program):
    """Copies the program to the path that cargo-deb packs. Restores the previous file afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = path.with_name("conductor.kept")
    if path.exists():
        path.rename(backup)
    try:
        shutil.copy2(program, path)
        yield
    finally:
        if backup.exists():
            backup.replace(path)
        else:
            path.unlink(missing_ok=True)


def deb(root, out):
    """Builds the package with cargo-deb if it is installed, and otherwise with dpkg-deb from the same metadata."""
    for old in out.glob("conductor_*.deb"):
        old.unlink()
    if shutil.which("cargo-deb"):
        with packed_program(root / "target/release/conductor", out / "conductor"):
            output("cargo", "deb", "-p", "conductor", "--no-build", "--output", out, cwd=root)
        builder = "cargo-deb"
    else:
        with tempfile.TemporaryDirectory() as folder:
            stage(root, out / "conductor", pathlib.Path(folder))
            os.chmod(folder, 0o755)
            output("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", folder, out)
        builder = "dpkg-deb"
    (file,) = out.glob("conductor_*.deb")
    conffiles = output("dpkg-deb", "-I", file, "conffiles")
    claim("/etc/conductor/conductor.toml" in conffiles, "conductor.toml is not a conffile")
    return f"{file.name} by {builder}, {file.stat().st_size} bytes"


def free_ports(number):
    """Returns different free ports of the loopback interface."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


def on_free_ports(config):
    """Replaces the ports of the listeners and of the worker by free ports.

    Returns the configuration and the ports of the client listener and of the admin listener.
    """
    listen, admin, worker = free_ports(3)
    for default, port in ((8080, listen), (8081, admin), (8000, worker)):
        config = config.replace(f':{default}"', f':{port}"')
    return config, listen, admin


def status(port, path):
    """Returns the status and the text of a page. The status is 0 if the connection fails."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def wait_until(text, condition, process, seconds=120):
    """Waits until the condition is true. Fails if the process exits or after the given seconds."""
    end = time.monotonic() + seconds
    while not condition():
        claim(process.poll() is None, f"{text}: the process exited with code {process.returncode}")
        claim(time.monotonic() < end, f"{text}: not within {seconds} s")
        time.sleep(0.1)


def probe_and_stop(process, listen, admin):
    """Checks the pages of a started router without a reachable worker. Stops the router and returns its exit code."""
    try:
        wait_until("/health returns 200", lambda: status(admin, "/health")[0] == 200, process)
        # At first /readyz reports the start as the reason.
        reason = lambda: json.loads(status(admin, "/readyz")[1])["reason"]
        wait_until("/readyz reports that no worker is available", lambda: "no worker" in reason(), process)
        claim(status(admin, "/readyz")[0] == 503, "/readyz does not return 503 without a worker")
        claim("conductor_build_info{" in status(admin, "/metrics")[1], "/metrics lacks conductor_build_info")
        claim(status(listen, "/health")[0] == 200, "/health of the client listener does not return 200")
        process.send_signal(signal.SIGTERM)
        return process.wait(60)
    finally:
        process.kill()


@contextlib.contextmanager
def debian_root(archive):
    """Extracts a Debian root from an archive into a temporary folder. Yields the folder."""
    with tempfile.TemporaryDirectory(prefix="conductor-root-") as folder:
        output("tar", "-xf", archive, "-C", folder)
        yield pathlib.Path(folder)


def installed(out, archive):
    """Installs the package into a Debian root, starts the router as the user `conductor`, and purges the package."""
    (file,) = out.glob("conductor_*.deb")
    with debian_root(archive) as root:
        shutil.copy(file, root / "conductor.deb")
        output("chroot", root, "dpkg", "-i", "/conductor.deb")
        version = output("chroot", root, "conductor", "version").strip()
        checked = output("chroot", root, "conductor", "check", "/etc/conductor/conductor.toml")
        claim("valid" in checked, "the packaged configuration is not valid")
        claim("warning" not in checked, "the packaged configuration has a warning")
        paths = ("/etc/conductor/conductor.toml", "/var/lib/conductor")
        owner = output("chroot", root, "stat", "-c", "%U:%G %a %n", *paths)
        expected = "root:conductor 640 /etc/conductor/conductor.toml\nconductor:conductor 750 /var/lib/conductor\n"
        claim(owner == expected, owner)
        start_installed(root)
        # An upgrade and a removal keep an edited conffile.
        (root / "etc/conductor/conductor.toml").open("a").write("# edited\n")
        output("chroot", root, "dpkg", "--force-confold", "-i", "/conductor.deb")
        # An upgrade succeeds without a deleted conffile, and does not restore it.
        backup = (root / "etc/conductor/conductor.toml").rename(root / "kept.toml")
        output("chroot", root, "dpkg", "--force-confold", "-i", "/conductor.deb")
        claim(not (root / "etc/conductor/conductor.toml").exists(), "the upgrade restored the deleted conffile")
        backup.rename(root / "etc/conductor/conductor.toml")
        output("chroot", root, "dpkg", "-r", "conductor")
        claim("# edited" in (root / "etc/conductor/conductor.toml").read_text(), "the removal lost the edited conffile")
        output("chroot", root, "dpkg", "-P", "conductor")
        left = [path for path in ("etc/conductor", "var/lib/conductor", "usr/bin/conductor") if (root / path).exists()]
        claim(not left, f"the purge left these files: {left}")
    return version


def start_installed(root):
    """Starts the installed router as the user `conductor` on free ports, probes it and stops it."""
    config = root / "etc/conductor/conductor.toml"
    original = config.read_text()
    text, listen, admin = on_free_ports(original)
    config.write_text(text)
    command = ["chroot", "--userspec=conductor:conductor", root, "/usr/bin/conductor", "serve"]
    command += ["--config", "/etc/conductor/conductor.toml"]
    environment = {"PATH": os.environ["PATH"], "CACHE_DIRECTORY": "/tmp"}
    with (root / "router.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        code = probe_and_stop(process, listen, admin)
    claim(code == 0, f"exit {code}: {(root / 'router.log').read_text()[-2000:]}")
    config.write_text(original)
