#!/usr/bin/env python3
"""Measures the CPU use of the router with observability on and off, in interleaved rounds of one run.

    tests/observability/cost.py CONDUCTOR LOAD [ROUNDS]

CONDUCTOR and LOAD are release binaries (`cargo build --release -p conductor -p load`). Each round starts a router for
each setting, with four backends and 1,000 requests a second of 1 KiB:

- off: no traces, no access log, no scrapes, no page
- traces: the same with traces on, of which none is sampled
- on: traces (1 % sampled), the access log in a file, a scrape each second, and one open stream

Then one router runs for pairs of windows. One window of each pair has an open stream of the dashboard's busiest page.
It is alternately the first and the second of its pair. The cost of a page is the mean difference within a pair.

Prints the CPU time of the router's threads, as the scheduler counts it, as a share of one core.
"""

import contextlib
import gzip
import http.client
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stack import Failure, free_ports, get, poll

RATE, WARM_UP, WINDOW = 1_000, 2.0, 8.0
PAIRS, PAIR_WINDOW = 30, 3.0
SETTINGS = ("off", "traces", "on")


class Sink(BaseHTTPRequestHandler):
    """Collector that accepts every export and discards it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def configuration(setting, port, backends, collector):
    """Returns the router's configuration."""
    workers = "".join(f'[[pools.chat.workers]]\nname = "w{number}"\nurl = "{url}"\n'
                      for number, url in enumerate(backends))
    head = f'[server]\nlisten = "127.0.0.1:{port}"\nadmin-listen = "127.0.0.1:{port + 1}"\n'
    if setting in ("traces", "on"):
        share = 0.01 if setting == "on" else 0
        head += f'[traces]\nendpoint = "http://127.0.0.1:{collector}"\nsample = {share}\n'
    if setting == "on":
        head += '[log]\naccess = "access.jsonl"\n'
    return f'{head}[pools.chat]\n{workers}[[routes]]\npool = "chat"\npolicy = "round-robin"\n'


def cpu_seconds(pid):
    """Returns the CPU time of the threads of a process, in seconds."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total / 1e9


class Readers:
    """Clients of the admin listener: a scraper, and a page of the dashboard."""

    def __init__(self, setting, admin):
        self.admin, self.ended, self.events, self.bytes = admin, threading.Event(), 0, 0
        self.has_page, self.has_scrape = setting in ("page", "on"), setting == "on"
        clients = [self.page] * self.has_page + [self.scrape] * self.has_scrape
        self.threads = [threading.Thread(target=client, daemon=True) for client in clients]
        for thread in self.threads:
            thread.start()

    def close(self):
        """Stops the clients, and waits for their threads."""
        self.ended.set()
        for thread in self.threads:
            thread.join(10)

    def page(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        connection.request("GET", "/admin/stream?topics=fleet,requests,changes", headers={"accept": "text/event-stream"})
        response = connection.getresponse()
        while not self.ended.is_set() and (line := response.readline()):
            self.events += line.startswith(b"event:")
        connection.close()

    def scrape(self):
        accept = {"accept": "application/openmetrics-text;version=1.0.0", "accept-encoding": "gzip"}
        while not self.ended.wait(1):
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
            connection.request("GET", "/metrics", headers=accept)
            self.bytes = len(gzip.decompress(connection.getresponse().read()))
            connection.close()


@contextlib.contextmanager
def loaded_router(setting, binaries, window):
    """Starts a router and a load generator for a window.

    Yields the router's process id, its admin port, and a report. The generator's figures are in the report after the
    window.
    """
    conductor, load = binaries
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    (port,) = free_ports(1, neighbours=2)
    backends = subprocess.Popen([load, "backends", "--count", "4", "--with-parent"], stdout=subprocess.PIPE, text=True)
    urls = [backends.stdout.readline().strip() for _ in range(4)]
    with tempfile.TemporaryDirectory(prefix="conductor-cost-") as name:
        folder = pathlib.Path(name)
        file = folder / "conductor.toml"
        file.write_text(configuration(setting, port, urls, collector.server_port))
        with open(folder / "router.log", "w") as log:
            router = subprocess.Popen([conductor, "--config", file], stdout=log, stderr=log, cwd=folder)
        try:
            poll("the router is ready", lambda: get(f"http://127.0.0.1:{port + 1}/readyz").get("ready"))
            report = {}
            generator = subprocess.Popen(
                [load, "generate", "--target", f"http://127.0.0.1:{port}", "--rate", str(RATE), "--connections", "32",
                 "--warm-up-s", str(WARM_UP), "--window-s", str(window + 1), "--json", folder / "report.json"],
                stdout=subprocess.DEVNULL)
            time.sleep(WARM_UP)
            yield router.pid, port + 1, report
            if generator.wait(60):
                raise Failure("the load generator failed")
            report.update(json.loads((folder / "report.json").read_text()))
            if report["requests_per_second"] < 0.98 * RATE or any(report["errors"].values()):
                raise Failure(f"the machine is too slow or too busy: {report}")
        finally:
            for process in (router, backends):
                process.terminate()
            for process in (router, backends):
                process.wait(20)
            collector.shutdown()


def share_of_core(pid, window):
    """Measures a process over a window that begins now. Returns its CPU use as a share of one core."""
    start, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(window)
    return (cpu_seconds(pid) - before) / (time.monotonic() - start)


def measure(setting, binaries):
    """Returns the router's CPU use as a share of one core, and the load generator's report."""
    with loaded_router(setting, binaries, WINDOW) as (pid, admin, report):
        readers = Readers(setting, admin)
        share = share_of_core(pid, WINDOW)
        readers.ended.set()
        if readers.has_scrape and not readers.bytes:
            raise Failure("no scrape was completed within the window")
    return share, report


def page_differences(binaries):
    """Returns the CPU use of an open page in each pair of windows, as shares of one core."""
    differences = []
    with loaded_router("off", binaries, PAIRS * (2 * PAIR_WINDOW + 1.5)) as (pid, admin, _):
        for number in range(PAIRS):
            shares = {}
            for setting in ("off", "page") if number % 2 else ("page", "off"):
                readers = Readers(setting, admin)
                time.sleep(0.5)
                shares[setting] = share_of_core(pid, PAIR_WINDOW)
                readers.close()
                if readers.has_page and readers.events < PAIR_WINDOW:
                    raise Failure(f"the page received only {readers.events} events")
            differences.append(shares["page"] - shares["off"])
    return differences


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    binaries = [pathlib.Path(path).resolve() for path in sys.argv[1:3]]
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 5
    shares = {setting: [] for setting in SETTINGS}
    for number in range(rounds):
        for setting in SETTINGS:
            share, report = measure(setting, binaries)
            shares[setting].append(share)
            print(f"round {number + 1} {setting}: {share:.2%} of a core, {report['requests_per_second']:.0f} requests/s, "
                  f"p50 {report['latency_p50_us']:.0f} us", flush=True)
    medians = {setting: statistics.median(values) for setting, values in shares.items()}
    for setting, values in shares.items():
        print(f"{setting}: median {medians[setting]:.2%} of a core ({min(values):.2%} to {max(values):.2%}), "
              f"{medians[setting] / medians['off']:.3f} times off")
    differences = page_differences(binaries)
    margin = 1.96 * statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"one open page: {statistics.mean(differences):+.2%} of a core +/- {margin:.2%} (95 % confidence), "
          f"median {statistics.median(differences):+.2%}, {len(differences)} pairs")


if __name__ == "__main__":
    main()
