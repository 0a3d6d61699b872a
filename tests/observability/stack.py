"""Processes of the rig: started, watched, and ended together."""

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
    """A claim that does not hold."""


def free_ports(count, neighbours=1):
    """Returns free ports of the loopback; each is the first of so many free neighbours."""
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


def poll(what, attempt, deadline=DEADLINE):
    """Returns the first true result of the attempt, or fails after the deadline."""
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
    raise Failure(f"{what}: not within {deadline:.0f} s" + (f" ({last})" if last else ""))


def get(url, query=None):
    """Returns the JSON of a page. Refusals of the page are returned too."""
    if query:
        url += "?" + urllib.parse.urlencode(query, doseq=True)
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def tool(*names):
    """Returns the path of the first of these programs."""
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
        """Starts a process whose output goes to NAME.log, with caches of its own."""
        log = open(self.folder / f"{name}.log", "wb")
        own = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.folder)}
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=own, start_new_session=True)
        log.close()
        self.running.append((name, process))
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ended(self):
        """Returns the names of processes that ended by themselves."""
        return [name for name, process in self.running if process.poll() is not None]

    def stop(self):
        """Ends every process, last started first."""
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for _, process in reversed(self.running):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
