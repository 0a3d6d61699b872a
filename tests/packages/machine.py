"""The Debian package on a machine with a running systemd: a Debian root that is booted in namespaces of its own."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from report import claim, output

PACKAGES = "systemd,systemd-sysv,dbus,adduser,libstdc++6,ca-certificates"
CONFIG = "/etc/conductor/conductor.toml"
# Makes the root the machine's, with a hierarchy of control groups that has no controllers, and runs systemd as its PID 1.
BOOT = """
set -e
mount --make-rprivate / && mount --bind "$0" "$0" && cd "$0"
mount -t proc proc proc && mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup && mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
for folder in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $folder; done
chmod 1777 tmp
for device in null zero full random urandom tty; do touch dev/$device && mount --bind /dev/$device dev/$device; done
mkdir dev/pts dev/shm old && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
pivot_root . old && umount -l /old && rmdir /old
exec env -i container=trial PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""


def root(archive, suite):
    """Makes the Debian root with systemd, once."""
    if not archive.exists():
        new = archive.with_suffix(".new.tar")
        output("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", suite, new)
        new.rename(archive)
    return f"{suite}, {archive.stat().st_size} bytes"


class Machine:
    """A booted root."""

    def __init__(self, folder):
        # Its own network too: the ports of the packaged file are free there.
        namespaces = ["--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup"]
        command = ["unshare", *namespaces, "--fork", "--kill-child", "bash", "-c", BOOT, folder]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)

    def first(self):
        """Returns the process that is the machine's PID 1, if there is one."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def boot(self):
        """Waits until systemd has started its units."""
        state = ("systemctl", "is-system-running")
        self.until("systemd runs", lambda: self.first() and self.run(*state).stdout.strip() in ("running", "degraded"))

    def run(self, *command):
        """Runs a command there, and returns the finished process."""
        enter = ["nsenter", "--target", str(self.first()), "--all", "--root", "--wdns=/", "env", "-i"]
        enter += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return subprocess.run([*enter, *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def out(self, *command):
        """Returns the output of a command there, which must succeed."""
        done = self.run(*command)
        claim(done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout

    def until(self, text, holds, seconds=60):
        """Waits for a condition while the machine runs."""
        end = time.monotonic() + seconds
        while not holds():
            claim(self.process.poll() is None, f"{text}: the machine ended with {self.process.returncode}")
            claim(time.monotonic() < end, f"{text}: not within {seconds} s")
            time.sleep(0.1)

    def end(self):
        """Ends all processes of the machine: they go with its PID 1."""
        if first := self.first():
            os.kill(first, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def booted(archive, package):
    with tempfile.TemporaryDirectory(prefix="conductor-machine-") as folder:
        output("tar", "-xf", archive, "-C", folder)
        shutil.copy(package, pathlib.Path(folder) / "conductor.deb")
        machine = Machine(folder)
        try:
            machine.boot()
            yield machine
        finally:
            machine.end()


def installed(out, archive):
    """Installs the package; starts, reloads, restarts, stops and purges the unit by systemctl."""
    if "cgroup2fs" in output("stat", "-f", "-c", "%T", "/sys/fs/cgroup"):
        return "not run: this machine has control groups of version 2 only"
    (package,) = out.glob("conductor_*.deb")
    with booted(archive, package) as machine:
        machine.out("dpkg", "-i", "/conductor.deb")
        claim(machine.out("systemctl", "is-active", "conductor").strip() == "active", "not active after the installation")
        first = machine.out("systemctl", "show", "-p", "MainPID", "conductor")
        machine.out("systemctl", "reload", "conductor")
        # A mistake fails the reload, and the router goes on.
        machine.out("sh", "-c", f"cp -p {CONFIG} /root/good && echo 'polcy = 1' >> {CONFIG}")
        claim(machine.run("systemctl", "reload", "conductor").returncode != 0, "a mistaken file was reloaded")
        claim("unknown-key" in machine.out("journalctl", "-u", "conductor", "--no-pager"), "the journal has no mistake")
        machine.out("cp", "-p", "/root/good", CONFIG)
        machine.out("systemctl", "reload", "conductor")
        claim(machine.out("systemctl", "show", "-p", "MainPID", "conductor") == first, "a reload restarted it")
        # An upgrade restarts it, and keeps the file.
        machine.out("dpkg", "--force-confold", "-i", "/conductor.deb")
        claim(machine.out("systemctl", "is-active", "conductor").strip() == "active", "not active after the upgrade")
        claim(machine.out("systemctl", "show", "-p", "MainPID", "conductor") != first, "the upgrade did not restart it")
        exposure = machine.out("systemd-analyze", "security", "--no-pager", "conductor").strip().splitlines()[-1]
        machine.out("systemctl", "stop", "conductor")
        claim("Result=success" in machine.out("systemctl", "show", "-p", "Result", "conductor"), "the stop failed")
        machine.out("dpkg", "-P", "conductor")
    return exposure.split("service: ")[-1]
