"""Process manager of the rig: starts processes and stops all of them together."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

DEADLINE = float(os.environ.get("CONDUCTOR_RIG_DEADLINE", "120"))


class Failure(Exception):
    """A failed check."""


def free_ports(count, neighbours=1):
    """Returns free ports of the loopback interface. Each is the first of `neighbours` consecutive free ports."""
    found, held = [], []
    try:
        while len(found) < count:
            first = socket.socket()
            held.append(first)
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                for offset in range(1, neighbours):
                    held.append(socket.socket())
                    held[-1].bind(("127.0.0.1", port + offset))
            except (OSError, OverflowError):
                continue
            found.append(port)
    finally:
        for one in held:
            one.close()
    return found


def poll(claim, attempt, deadline=DEADLINE):
    """Repeats the attempt and returns its first true result. Fails after the deadline, in seconds."""
    end = time.monotonic() + deadline
    last = None
    while time.monotonic() < end:
        try:
            result = attempt()
            if result:
                return result
        except (OSError, ValueError, KeyError) as error:
            last = error
        time.sleep(0.2)
    raise Failure(f"{claim}: not within {deadline:.0f} s" + (f" ({last})" if last else ""))


def get(url, query=None):
    """Returns the JSON of a page. The JSON of an error response is returned too."""
    if query:
        url += "?" + urllib.parse.urlencode(query, doseq=True)
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def tool(*names):
    """Returns the path of the first installed program of these names."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise Failure(f"{' or '.join(names)} is not installed: apt-get install prometheus prometheus-alertmanager")


class Stack:
    """Processes in a temporary folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.running = []

    def start(self, name, *command):
        """Starts a process with its own cache folder. Its output goes to NAME.log."""
        log = open(self.folder / f"{name}.log", "wb")
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.folder)}
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=environment, start_new_session=True)
        log.close()
        self.running.append((name, process))
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ended(self):
        """Returns the names of the processes that have exited."""
        return [name for name, process in self.running if process.poll() is not None]

    def stop(self):
        """Stops every process in reverse order of their start."""
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for _, process in reversed(self.running):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
