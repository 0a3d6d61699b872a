#!/usr/bin/env python3
"""Tests the rules, alerts and boards of config/deploy with a real Prometheus, and the dashboard in a real browser.

    tests/observability/run.py PATH-OF-CONDUCTOR [dashboard]

Starts the demo under load, a Prometheus that scrapes it, and an Alertmanager. Every query of every board and every rule
must parse and return a series, and one alert must reach a receiver. Then a browser clicks through the dashboard. With
`dashboard` only the browser's test runs. See README.md.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.dont_write_bytecode = True

import checks
import dashboard
import traces
import traffic
import vllm
from stack import Failure, Stack, free_ports, get, poll, tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "config/deploy"
RULES = DEPLOY / "prometheus"
# Versions of the policy `rig`, before and after its replacement.
PREBUILT = ROOT / "policies/prebuilt"
POLICIES = (PREBUILT / "least-request.wasm", PREBUILT / "random.wasm")
# Number of scrapes before the queries. They must span the range of rates (15 s).
SCRAPES = 25


def step(text):
    print(f"\n== {text}", flush=True)


def run(*command, cwd=ROOT):
    """Runs a command and prints its output. Fails with the output if the command fails."""
    completed = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if completed.returncode:
        raise Failure(f"{' '.join(map(str, command))}:\n{completed.stdout}{completed.stderr}")
    lines = (completed.stdout + completed.stderr).strip().splitlines()
    print("\n".join(lines), flush=True)


def check_files():
    """Checks the files without a running router."""
    step("files")
    run(sys.executable, DEPLOY / "grafana/generate.py", "--check")
    run(tool("promtool"), "check", "config", RULES / "prometheus.yml")
    run(tool("promtool"), "check", "rules", RULES / "rules.yml", RULES / "alerts.yml")
    for tests in sorted((RULES / "tests").glob("*_test.yml")):
        run(tool("promtool"), "test", "rules", tests.name, cwd=tests.parent)
    run(tool("amtool"), "check-config", RULES / "alertmanager.yml")


class Receiver:
    """Webhook that keeps the received alerts with their paths."""

    def __init__(self):
        received = self.received = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                received.extend((self.path, alert) for alert in body["alerts"])
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def firing(self, name):
        """Returns the path and the firing alert of this name, or None if no such alert was received."""
        for path, alert in list(self.received):
            if alert["labels"]["alertname"] == name and alert["status"] == "firing":
                return path, alert
        return None


def start_monitoring(stack, receiver, admin):
    """Starts Alertmanager and Prometheus with the shipped files, but with other addresses and shorter intervals.

    Returns Alertmanager's URL and a client of Prometheus.
    """
    am_port, prom_port = free_ports(2)
    config = (RULES / "alertmanager.yml").read_text()
    config = config.replace("127.0.0.1:9099", f"127.0.0.1:{receiver.server.server_port}")
    config = re.sub(r"group_wait: \w+", "group_wait: 1s", config)
    (stack.folder / "alertmanager.yml").write_text(re.sub(r"group_interval: \w+", "group_interval: 1s", config))
    stack.start("alertmanager", tool("prometheus-alertmanager", "alertmanager"), "--config.file=alertmanager.yml",
                "--storage.path=alerts", "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{am_port}")
    am = f"http://127.0.0.1:{am_port}"
    # Alertmanager starts first, since Prometheus repeats a failed notification only after a minute.
    poll("Alertmanager starts", lambda: "cluster" in get(f"{am}/api/v2/status"))

    (stack.folder / "rules.yml").write_text((RULES / "rules.yml").read_text())
    (stack.folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 1s", (RULES / "alerts.yml").read_text()))
    config = (RULES / "prometheus.yml").read_text().replace("127.0.0.1:8081", f"127.0.0.1:{admin}")
    config = config.replace("127.0.0.1:9093", f"127.0.0.1:{am_port}").replace("_interval: 15s", "_interval: 1s")
    (stack.folder / "prometheus.yml").write_text(config)
    stack.start("prometheus", tool("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=series",
                "--enable-feature=exemplar-storage", f"--web.listen-address=127.0.0.1:{prom_port}")
    return am, checks.Prometheus(f"http://127.0.0.1:{prom_port}")


def start_router(stack, binary, engines, collector):
    """Starts the demo and applies the rig's configuration. Returns the port and the path of the configuration file."""
    (port,) = free_ports(1, neighbours=2)
    stack.start("conductor", binary, "demo", "--no-traffic", "--listen", f"127.0.0.1:{port}")
    admin = f"http://127.0.0.1:{port + 1}"
    poll("the demo is ready", lambda: get(f"{admin}/readyz").get("ready"))
    path = poll("the demo prints its configuration file", lambda: traffic.demo_file(stack.log("conductor")))
    file = pathlib.Path(path)
    write(file.parent / "policies/rig.wasm", POLICIES[0].read_bytes())
    write(file.parent / "rig-targets.json", "[]")
    apply(file, traffic.configuration(file.read_text(), engines, collector.configuration(), vllm.configuration()), admin)
    return port, file


def apply(file, text, admin):
    """Writes a configuration file, and waits until the configuration is active."""
    generation = lambda: get(f"{admin}/admin/config")["generation"]
    before = generation()
    write(file, text)
    poll("a configuration becomes active", lambda: generation() > before, 60)


def write(file, content):
    """Replaces a file atomically."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(new, file)


def swap_policy(prometheus, file):
    """Replaces the component of the policy `rig`, and waits until the new version is active."""
    write(file.parent / "policies/rig.wasm", POLICIES[1].read_bytes())
    active = 'conductor_policy_versions_total{policy="rig", result="active"}'
    poll("a new version of a policy is active", lambda: prometheus.query(active))


def check_alert(prometheus, am, receiver, file):
    """Checks that an invalid edit of the configuration fires an alert, and that a valid edit resolves it."""
    name = "ConductorConfigRefused"
    valid = file.read_text()
    write(file, valid + "\nno-such-key = 1\n")
    active = lambda: [alert for alert in get(f"{am}/api/v2/alerts") if alert["labels"]["alertname"] == name]
    (alert,) = poll(f"{name} reaches Alertmanager", active, 60)
    path, _ = poll(f"{name} reaches the receiver", lambda: receiver.firing(name), 60)
    if path != "/tickets":
        raise Failure(f"{name} was sent to {path} instead of /tickets")
    for key, text in alert["annotations"].items():
        if "{{" in text or "no value" in text or "error" in text:
            raise Failure(f"{name}: {key}: {text}")
    page, anchor = alert["annotations"]["runbook"].split("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.M)
    if anchor not in [heading.lower() for heading in headings]:
        raise Failure(f"{page} has no section {anchor}")
    print(f"{path} received {name} for {alert['labels']['instance']}: {alert['annotations']['summary']}")
    write(file, valid)
    firing = lambda: prometheus.query(f'ALERTS{{alertname="{name}", alertstate="firing"}}')
    poll(f"{name} is resolved", lambda: not firing(), 60)


def check_running(stack, receiver, binary):
    """Starts the collector, the router and Prometheus, and checks the alert, traces, rules and boards."""
    began = time.time()
    engines = traffic.split_engines()
    step("collector, router, Prometheus and Alertmanager")
    collector = traces.Collector(stack, pathlib.Path(__file__).parent)
    port, file = start_router(stack, binary, engines, collector)
    am, prometheus = start_monitoring(stack, receiver, port + 1)
    load = traffic.Load(port)
    try:
        scrapes = lambda: prometheus.query('count_over_time((up{job="conductor"} == 1)[10m:1s])')
        poll("Prometheus scrapes", lambda: (rows := scrapes()) and float(rows[0]["value"][1]) >= SCRAPES)
        series = prometheus.query('count({__name__=~"conductor_.*", job="conductor"})')[0]["value"][1]
        print(f"{series} series of the router; responses by status: {load.responses}")
        # Changes the configuration, so that the boards' annotation of changes has a series.
        changed = file.read_text().replace("shadow-sample = 1.0", "shadow-sample = 0.9")
        apply(file, changed, f"http://127.0.0.1:{port + 1}")
        swap_policy(prometheus, file)
        step("an alert")
        check_alert(prometheus, am, receiver, file)
        step("traces")
        traces.check(collector, traffic.SplitEngine.contexts)
        traces.check_exemplars(collector, prometheus, began)
        vllm.check(collector, port)
        lost = prometheus.query('sum(conductor_traces_total{result!="sent"}) > 0')
        if lost:
            raise Failure(f"the router lost traces: {lost}")
        step("rules")
        recorded, alerts = checks.check_rules(prometheus)
        print(f"{recorded} recording rules and {alerts} alerts are healthy")
        step("boards")
        for path in sorted((DEPLOY / "grafana").glob("*.json")):
            print(f"{path.name}: {checks.check_board(prometheus, path, began, time.time())} queries")
        runbook = (ROOT / "host/docs/operation/alerts.md").read_text()
        print(f"runbook: {checks.check_runbook(prometheus, runbook)} queries")
        prometheus.check_absent()
    finally:
        load.stop()
        for engine in engines:
            engine.shutdown()
    print("queries without a series, each with its reason from ABSENT:\n  " + "\n  ".join(prometheus.empty))
    fired = sorted({alert["labels"]["alertname"] for _, alert in receiver.received})
    print(f"alerts that fired with `for` shortened to 1s: {', '.join(fired)}")
    print(f"responses by status: {load.responses}")
    if 200 not in load.responses:
        prometheus.problems.append("no request succeeded")
    prometheus.problems += [f"{name} exited during the test" for name in stack.ended()]
    if prometheus.problems:
        raise Failure("\n  ".join([f"{len(prometheus.problems)} problems:", *prometheus.problems]))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["dashboard"]):
        sys.exit(__doc__)
    # SIGTERM stops the started processes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    binary = pathlib.Path(sys.argv[1]).resolve()
    receiver = Receiver()
    with tempfile.TemporaryDirectory(prefix="conductor-observability-") as folder:
        stack = Stack(folder)
        try:
            if sys.argv[2:] != ["dashboard"]:
                check_files()
                check_running(stack, receiver, binary)
            step("dashboard")
            dashboard.check(stack, binary, ROOT / "target/observability/screenshots")
        except Failure as failure:
            for name, _ in stack.running:
                tail = stack.log(name).splitlines()[-15:]
                print(f"\n-- last lines of {name}.log\n" + "\n".join(tail))
            sys.exit(f"\nobservability: {failure}")
        finally:
            stack.stop()
            receiver.server.shutdown()
    print("\nobservability: all checks passed")


if __name__ == "__main__":
    main()
