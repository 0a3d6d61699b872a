"""The dashboard of a demo in a real browser: every page is clicked through, checked by axe, and photographed."""

import pathlib
import re
import shutil
import subprocess

from stack import Failure, free_ports, get, poll, tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/observability/browser"
# Any policy that passes the built-in scenarios: it is uploaded under another name.
COMPONENT = ROOT / "policies/prebuilt/least-request.wasm"
# Requests of the demo's own traffic before the browser opens: the simulator needs a recorded trace.
REQUESTS = 60


def check(stack, binary, screenshots):
    """Starts a demo with its own traffic, and runs the browser's claims against it."""
    shutil.copytree(HERE, stack.folder / "browser", ignore=shutil.ignore_patterns("node_modules"))
    run(stack.folder / "browser", tool("npm"), "ci", "--no-audit", "--no-fund", "--silent")
    (port,) = free_ports(1, neighbours=2)
    stack.start("demo", binary, "demo", "--listen", f"127.0.0.1:{port}")
    address = poll("the demo names its dashboard", lambda: found(stack, r"^\s+(http://\S+/#key=\S+)$"))
    file = poll("the demo names its file", lambda: found(stack, r"^\s+(/\S+/conductor\.toml)$"))
    admin = f"http://127.0.0.1:{port + 1}"
    poll("the demo serves its own traffic", lambda: len(get(f"{admin}/admin/requests?limit=200")["requests"]) >= REQUESTS)
    run(stack.folder / "browser", tool("node"), "run.mjs", address, file, COMPONENT, screenshots)
    print(f"screenshots are in {screenshots}")
    if "demo" in stack.ended():
        raise Failure("the demo ended")


def found(stack, pattern):
    """Returns what the demo printed."""
    match = re.search(pattern, stack.log("demo"), re.M)
    return match and match.group(1)


def run(folder, *command):
    """Runs a command with its output on ours."""
    done = subprocess.run([str(part) for part in command], cwd=folder)
    if done.returncode:
        raise Failure(f"{pathlib.Path(command[0]).name} {command[1]} failed with {done.returncode}")
