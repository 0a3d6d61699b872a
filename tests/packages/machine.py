"""Checks of the Debian package with a running systemd, which boots a Debian root in separate namespaces."""
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
# Makes the Debian root the root file system, mounts a control group hierarchy without controllers, and runs systemd as
# PID 1.
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
    """Makes the Debian root with systemd, unless the archive exists."""
    if not archive.exists():
        new = archive.with_suffix(".new.tar")
        output("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", suite, new)
        new.rename(archive)
    return f"{suite}, {archive.stat().st_size} bytes"


class Machine:
    """Debian root that systemd boots in separate namespaces."""

    def __init__(self, folder):
        # The ports of the packaged configuration are free in the separate network namespace.
        namespaces = ["--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup"]
        command = ["unshare", *namespaces, "--fork", "--kill-child", "bash", "-c", BOOT, folder]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)

    def init_pid(self):
        """Returns the process id of the machine's PID 1, or None before its start."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def boot(self):
        """Waits until systemd has started its units."""
        state = ("systemctl", "is-system-running")
        started = lambda: self.run(*state).stdout.strip() in ("running", "degraded")
        self.wait_until("systemd has started its units", lambda: self.init_pid() and started())

    def run(self, *command):
        """Runs a command on the machine. Returns the completed process."""
        enter = ["nsenter", "--target", str(self.init_pid()), "--all", "--root", "--wdns=/", "env", "-i"]
        enter += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return subprocess.run([*enter, *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def out(self, *command):
        """Runs a command on the machine. Returns its output, or fails if the command fails."""
        completed = self.run(*command)
        text = f"{' '.join(command)}: exit {completed.returncode}: {completed.stdout[-2000:]}"
        claim(completed.returncode == 0, text)
        return completed.stdout

    def wait_until(self, text, condition, seconds=60):
        """Waits until the condition is true. Fails if the machine stops or after the given seconds."""
        end = time.monotonic() + seconds
        while not condition():
            claim(self.process.poll() is None, f"{text}: the machine stopped with code {self.process.returncode}")
            claim(time.monotonic() < end, f"{text}: not within {seconds} s")
            time.sleep(0.1)

    def stop(self):
        """Kills PID 1 of the machine. The kernel then kills all other processes of its namespace."""
        if pid := self.init_pid():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def booted(archive, package):
    """Boots a machine with the package at /conductor.deb. Yields the machine."""
    with tempfile.TemporaryDirectory(prefix="conductor-machine-") as folder:
        output("tar", "-xf", archive, "-C", folder)
        shutil.copy(package, pathlib.Path(folder) / "conductor.deb")
        machine = Machine(folder)
        try:
            machine.boot()
            yield machine
        finally:
            machine.stop()


def installed(out, archive):
    """Installs, upgrades and purges the package. Starts, reloads, restarts and stops the unit with systemctl."""
    if "cgroup2fs" in output("stat", "-f", "-c", "%T", "/sys/fs/cgroup"):
        return "skipped: this machine has only control groups of version 2"
    (package,) = out.glob("conductor_*.deb")
    with booted(archive, package) as machine:
        is_active = lambda: machine.out("systemctl", "is-active", "conductor").strip() == "active"
        main_pid = lambda: machine.out("systemctl", "show", "-p", "MainPID", "conductor")
        machine.out("dpkg", "-i", "/conductor.deb")
        claim(is_active(), "the unit is not active after the installation")
        first_pid = main_pid()
        machine.out("systemctl", "reload", "conductor")
        # The reload of an invalid file fails, and the router keeps running.
        machine.out("sh", "-c", f"cp -p {CONFIG} /root/good && echo 'polcy = 1' >> {CONFIG}")
        reload = machine.run("systemctl", "reload", "conductor")
        claim(reload.returncode != 0, "the reload of an invalid file succeeded")
        journal = machine.out("journalctl", "-u", "conductor", "--no-pager")
        claim("unknown-key" in journal, "the journal lacks the error of the invalid file")
        machine.out("cp", "-p", "/root/good", CONFIG)
        machine.out("systemctl", "reload", "conductor")
        claim(main_pid() == first_pid, "the reload restarted the router")
        # An upgrade restarts the router.
        machine.out("dpkg", "--force-confold", "-i", "/conductor.deb")
        claim(is_active(), "the unit is not active after the upgrade")
        claim(main_pid() != first_pid, "the upgrade did not restart the router")
        exposure = machine.out("systemd-analyze", "security", "--no-pager", "conductor").strip().splitlines()[-1]
        machine.out("systemctl", "stop", "conductor")
        claim("Result=success" in machine.out("systemctl", "show", "-p", "Result", "conductor"), "the stop failed")
        machine.out("dpkg", "-P", "conductor")
    return exposure.split("service: ")[-1]
