"""Check of the example with several routers: they agree on a drain, and nginx serves in front of them."""
import os
import signal
import socket
import subprocess
import tempfile
import time

from install import free_ports, status, wait_until
from report import claim, output

# Address without a listener. The check drains this worker.
WORKER = "127.0.0.1:1"


def consecutive_ports(number):
    """Returns the first of this number of consecutive free ports."""
    while True:
        (first,) = free_ports(1)
        try:
            for port in range(first, first + number):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except (OSError, OverflowError):
            continue


def started(root, binary):
    """Starts the script, and checks that a drain at one router drains the worker at all routers."""
    port, (nats,) = consecutive_ports(7), free_ports(1)
    environment = os.environ | {"CONDUCTOR": str(binary), "PORT": str(port), "NATS_PORT": str(nats)}
    admins = [port + 2, port + 4, port + 6]
    metric = lambda admin, line: f"\n{line}" in status(admin, "/metrics")[1]
    with tempfile.TemporaryFile("w+") as log:
        command = [root / "config/deploy/replicas/start", f"http://{WORKER}"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            synced = lambda: all(metric(admin, "conductor_replicas_agreement_synced 1") for admin in admins)
            wait_until("the routers are connected to their store", synced, process, 30)
            output(binary, "drain", WORKER, "--admin", f"127.0.0.1:{admins[0]}")
            drained = 'conductor_workers{pool="main",role="mixed",state="draining"} 1'
            is_drained = lambda: all(metric(admin, drained) for admin in admins)
            wait_until("all routers drain the worker", is_drained, process, 30)
            wait_until("nginx returns 200", lambda: status(port, "/health")[0] == 200, process, 30)
        except Exception:
            log.seek(0)
            print(log.read()[-4000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    end = time.monotonic() + 10
    while any(status(admin, "/health")[0] for admin in admins):
        claim(time.monotonic() < end, "a router runs after the script has stopped")
        time.sleep(0.1)
    return f"{len(admins)} routers"
