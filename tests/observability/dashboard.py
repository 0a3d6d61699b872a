"""Tests the dashboard of a demo in a real browser: clicks through every page, runs axe, and takes screenshots."""

import pathlib
import re
import shutil
import subprocess

from stack import Failure, free_ports, get, poll, tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/observability/browser"
# Component that the test uploads under another name. Any policy that passes the built-in scenarios is suitable.
COMPONENT = ROOT / "policies/prebuilt/least-request.wasm"
# Number of requests of the demo's own traffic before the browser opens. The simulator needs a recorded trace.
REQUESTS = 60


def check(stack, binary, screenshots):
    """Starts a demo with its own traffic, and runs the browser's checks against it."""
    shutil.copytree(HERE, stack.folder / "browser", ignore=shutil.ignore_patterns("node_modules"))
    run(stack.folder / "browser", tool("npm"), "ci", "--no-audit", "--no-fund", "--silent")
    (port,) = free_ports(1, neighbours=2)
    stack.start("demo", binary, "demo", "--listen", f"127.0.0.1:{port}")
    address = poll("the demo prints its dashboard's URL", lambda: printed(stack, r"^\s+(http://\S+/#key=\S+)$"))
    file = poll("the demo prints its configuration file", lambda: printed(stack, r"^\s+(/\S+/conductor\.toml)$"))
    admin = f"http://127.0.0.1:{port + 1}"
    count = lambda: len(get(f"{admin}/admin/requests?limit=200")["requests"])
    poll("the demo serves its own traffic", lambda: count() >= REQUESTS)
    run(stack.folder / "browser", tool("node"), "run.mjs", address, file, COMPONENT, screenshots)
    print(f"screenshots: {screenshots}")
    if "demo" in stack.ended():
        raise Failure("the demo exited during the test")


def printed(stack, pattern):
    """Returns the text that the pattern's group matches in the demo's output, or None without a match."""
    match = re.search(pattern, stack.log("demo"), re.M)
    return match and match.group(1)


def run(folder, *command):
    """Runs a command, whose output goes to this script's output."""
    completed = subprocess.run([str(part) for part in command], cwd=folder)
    if completed.returncode:
        raise Failure(f"{pathlib.Path(command[0]).name} {command[1]} failed with exit code {completed.returncode}")
