#!/usr/bin/env python3
"""Measures the CPU use of a router with and without [replicas], and its traffic to other routers.

    tests/load/replicas_cost.py CONDUCTOR LOAD [ROUNDS] [ROUTERS] [SHARE_EVERY]

CONDUCTOR and LOAD are release binaries (`cargo build --release -p conductor -p load`). `nats-server` must be on the
PATH. The script runs ROUNDS (5) interleaved rounds. Each round starts a single router, then a fleet of ROUTERS (3) with
a real NATS server and SHARE_EVERY (5ms) between messages. Only the first router gets requests: 1,000 a second of 1 KiB,
to four backends of a pool with a budget. Its CPU time is the time of its threads as the scheduler counts it.

Prints the CPU time of a request in microseconds, for all threads of the router and for the thread that exchanges loads,
and the bytes a second. On a busy machine the time of all threads varies by more than the cost of the exchange. The time
of the exchange's thread is then the reliable figure.
"""

import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

RATE, WARM_UP, WINDOW = 1_000, 2.0, 8.0
# Name of the thread that exchanges loads.
EXCHANGE = "replicas"


def free_port():
    """Returns a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    """Returns the body of a page, or an empty text if the request fails."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.read().decode()
    except OSError:
        return ""


def wait_until(claim, condition):
    """Waits until the condition is true. Exits with an error after 30 s."""
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise SystemExit(f"failed to measure: not within 30 s: {claim}")


def cpu_seconds(pid, name=None):
    """Returns the CPU time of a process in seconds, of all its threads or of the threads with this name."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            if name and (task / "comm").read_text().strip() != name:
                continue
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total / 1e9


def metric(admin, name):
    """Returns the value of a metric, or 0 without a series."""
    lines = (line for line in get(f"http://127.0.0.1:{admin}/metrics").splitlines() if line.startswith(name))
    return sum(float(line.split()[1]) for line in lines)


def configuration(port, admin, urls, nats, share_every):
    """Returns the configuration of a router."""
    workers = "".join(f'[[pools.chat.workers]]\nname = "w{number}"\nurl = "{url}"\n' for number, url in enumerate(urls))
    replicas = f'[replicas]\nservers = ["nats://127.0.0.1:{nats}"]\nshare-every = "{share_every}"\n' if nats else ""
    return (f'[server]\nlisten = "127.0.0.1:{port}"\nadmin-listen = "127.0.0.1:{admin}"\n{replicas}'
            f'[pools.chat]\n[pools.chat.admission]\nrequests = 10_000\n{workers}'
            '[[routes]]\npool = "chat"\npolicy = "least-request"\n')


def measure(conductor, load, folder, routers, share_every):
    """Measures the first router of a fleet with this number of routers under load.

    Returns three values. The first is the CPU time of a request in microseconds, of all threads and of the thread that
    exchanges loads. The second is the CPU use of the idle router as a share of one core. The third is the bytes a
    second, sent and received.
    """
    started = []

    def start(command, **more):
        started.append(subprocess.Popen(command, **more))
        return started[-1]

    try:
        backends = start([load, "backends", "--count", "4", "--with-parent"], stdout=subprocess.PIPE, text=True)
        urls = [backends.stdout.readline().strip() for _ in range(4)]
        nats = free_port() if routers > 1 else None
        if nats:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            start(["nats-server", "-a", "127.0.0.1", "-p", str(nats)], **quiet)
        fleet = []
        for number in range(routers):
            port, admin = free_port(), free_port()
            file = pathlib.Path(folder) / f"conductor-{number}.toml"
            file.write_text(configuration(port, admin, urls, nats, share_every))
            with open(pathlib.Path(folder) / f"router-{number}.log", "w", encoding="utf-8") as log:
                fleet.append((start([conductor, "--config", file], stdout=log, stderr=log, cwd=folder), port, admin))
            wait_until("the router is ready", lambda: "true" in get(f"http://127.0.0.1:{admin}/readyz"))
        router, port, admin = fleet[0]
        if nats:
            live = lambda: metric(admin, "conductor_replicas_live")
            wait_until("the first router receives messages of all others", lambda: live() == routers - 1)
        time.sleep(2)
        before = cpu_seconds(router.pid)
        time.sleep(3)
        idle = (cpu_seconds(router.pid) - before) / 3
        report = pathlib.Path(folder) / "report.json"
        generator = start([load, "generate", "--target", f"http://127.0.0.1:{port}", "--rate", str(RATE),
                           "--connections", "32", "--warm-up-s", str(WARM_UP), "--window-s", str(WINDOW + 1),
                           "--json", report],
                          stdout=subprocess.DEVNULL)
        time.sleep(WARM_UP)
        names = ("conductor_replicas_sent_bytes_total", "conductor_replicas_received_bytes_total")
        counts = [metric(admin, name) for name in names]
        began, before = time.monotonic(), [cpu_seconds(router.pid, name) for name in (None, EXCHANGE)]
        time.sleep(WINDOW)
        took = time.monotonic() - began
        used = [cpu_seconds(router.pid, name) - earlier for name, earlier in zip((None, EXCHANGE), before)]
        counts = [(metric(admin, name) - count) / took for name, count in zip(names, counts)]
        if generator.wait(60):
            raise SystemExit("failed to measure: the load generator failed")
        report = json.loads(report.read_text())
        if report["requests_per_second"] < 0.98 * RATE or any(report["errors"].values()):
            raise SystemExit(f"failed to measure: the machine is too slow or too busy: {report}")
        return [1e6 * cpu / took / RATE for cpu in used], idle, counts
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)


def main():
    """Measures a single router and a fleet in interleaved rounds, and prints the medians."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    conductor, load = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    routers = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    share_every = sys.argv[5] if len(sys.argv) > 5 else "5ms"
    found = {1: [], routers: []}
    for number in range(rounds):
        for count, results in found.items():
            with tempfile.TemporaryDirectory() as folder:
                results.append(measure(conductor, load, folder, count, share_every))
            (request, exchange), idle, _ = results[-1]
            print(f"round {number + 1}, {count} routers: {request:.1f} us a request, of which {exchange:.1f} us for "
                  f"the exchange; {100 * idle:.2f} % of a core while idle", flush=True)
    alone, shared = ([request for (request, _), _, _ in results] for results in found.values())
    exchange = statistics.median(exchange for (_, exchange), _, _ in found[routers])
    ratios = [100 * (two / one - 1) for one, two in zip(alone, shared)]
    sent, received = (statistics.median(counts[at] for _, _, counts in found[routers]) for at in (0, 1))
    print(f"single router {statistics.median(alone):.1f} us, fleet {statistics.median(shared):.1f} us: "
          f"median of the rounds {statistics.median(ratios):+.1f} %, from {min(ratios):+.1f} to {max(ratios):+.1f} %")
    print(f"thread of the exchange {exchange:.1f} us: {100 * exchange / statistics.median(alone):+.1f} %")
    print(f"sent {sent / 1e3:.1f} KB/s, received {received / 1e3:.1f} KB/s from the idle routers")


if __name__ == "__main__":
    main()
