"""Trace tests of the rig: starts Rotel as the collector and a receiver behind it, and checks the spans."""

import json
import os
import subprocess
import sys
import time

import vllm
from stack import Failure, free_ports, poll

PYTHON = os.environ.get("CONDUCTOR_RIG_PYTHON", sys.executable)
PACKAGES = "rotel==0.0.1a15 opentelemetry-proto==1.45.2 grpcio"
SERVER, CLIENT = 2, 3
SHADOW = "conductor.shadow"


def agent():
    """Returns the path of Rotel's binary, which is in its Python package."""
    code = "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('rotel').origin).parent / 'rotel-agent')"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    if found.returncode:
        raise Failure(f"{PYTHON} lacks packages: pip install {PACKAGES}, or set CONDUCTOR_RIG_PYTHON")
    return found.stdout.strip()


class Collector:
    """Rotel, which receives OTLP/HTTP and exports gRPC, and the receiver of its exports."""

    def __init__(self, stack, folder):
        http, grpc, receiver = free_ports(3)
        http = vllm.PORT or http
        self.endpoint = f"http://127.0.0.1:{http}"
        self.file = stack.folder / "spans.jsonl"
        script = folder / "otlp_receiver.py"
        stack.start("receiver", PYTHON, str(script), str(receiver), str(self.file))
        poll("the receiver of spans starts", lambda: "ready" in stack.log("receiver"))
        stack.start("rotel", agent(), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}",
                    "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "otlp",
                    "--otlp-exporter-endpoint", f"http://127.0.0.1:{receiver}", "--batch-timeout", "200ms")

    def configuration(self):
        """Returns the table [traces] of the router's configuration."""
        return f"""
[traces]
endpoint = "{self.endpoint}"
sample = 1
every = "200ms"
resource = {{ "deployment.environment.name" = "rig" }}
"""

    def traces(self):
        """Returns a list of spans for each trace. The router's server span is the first of its trace."""
        text = self.file.read_text() if self.file.exists() else ""
        traces = {}
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                span = json.loads(line)
                traces.setdefault(span["trace"], []).append(span)
        return [sorted(spans, key=lambda span: span["kind"] != SERVER) for spans in traces.values()]

    def requests(self):
        """Returns the traces of requests, without the traces of shadows."""
        return [spans for spans in self.traces() if spans[0]["kind"] == SERVER]

    def shadows(self):
        """Returns the spans of shadows' decisions."""
        return [spans[0] for spans in self.traces() if spans[0]["name"] == SHADOW]


def check_exemplars(collector, prometheus, began):
    """Checks that Prometheus has exemplars whose traces the collector has received."""
    def exemplars():
        query = {"query": "conductor_time_to_first_token_seconds_bucket", "start": began, "end": time.time()}
        series = prometheus.page("query_exemplars", query)
        return {one["labels"]["trace_id"] for each in series for one in each["exemplars"]}

    def received():
        sent = {spans[0]["trace"] for spans in collector.requests()}
        return exemplars() & sent

    found = poll("exemplars have trace ids of the collector", received)
    print(f"the traces of {len(found)} exemplars of the time to first token are at the collector")


def check_tree(spans):
    """Fails unless the spans are one tree below the router's server span."""
    root, *others = spans
    wrong = root["kind"] != SERVER or any(span["parent"] != root["span"] for span in others)
    ids = {span["span"] for span in spans}
    if wrong or len(ids) != len(spans) or any(span["end"] < span["start"] for span in spans):
        raise Failure(f"these spans are not one tree below the server span:\n{json.dumps(spans, indent=1)}")
    if root["resource"].get("service.name") != "conductor" or "deployment.environment.name" not in root["resource"]:
        raise Failure(f"the resource is {root['resource']}")


def check(collector, contexts):
    """Checks the spans of plain and split requests.

    `contexts` are the trace contexts that the rig's engines received.
    """
    def legs(spans):
        return [span["attributes"].get("conductor.leg") for span in spans if span["kind"] == CLIENT]

    def complete():
        is_complete = lambda spans: spans[0]["attributes"].get("conductor.outcome") == "complete"
        found = [spans for spans in collector.requests() if is_complete(spans)]
        plain = [spans for spans in found if legs(spans) == ["whole"]]
        split = [spans for spans in found if legs(spans) == ["prefill", "decode"]]
        return plain and split and (plain, split)

    plain, split = poll("the collector receives spans of plain and split requests", complete)
    for spans in [*plain, *split]:
        check_tree(spans)
        names = [span["name"] for span in spans]
        if "conductor.decide" not in names:
            raise Failure(f"no decision in {names}")
    prefill, decode = [span for span in split[0] if span["kind"] == CLIENT]
    if prefill["links"] != [decode["span"]]:
        raise Failure(f"the prefill leg links to {prefill['links']}")
    # An engine's own span would be a child of the router's span of that leg.
    sent = {tuple(context.split("-")[1:3]) for context in contexts}
    of_legs = {(span["trace"], span["span"]) for spans in split for span in spans if span["kind"] == CLIENT}
    if not of_legs <= sent:
        raise Failure(f"engines did not receive these contexts: {sorted(of_legs - sent)[:3]}")
    shadows = poll("the collector receives spans of shadows", collector.shadows)
    servers = lambda: {spans[0]["span"] for spans in collector.requests()}
    poll("spans of shadows link to requests", lambda: {span["links"][0] for span in shadows} <= servers())
    print(f"traces at the collector: {len(plain)} of plain requests, {len(split)} of split requests, "
          f"{len(shadows)} of shadows; a plain one: {', '.join(span['name'] for span in plain[0])}; "
          f"a split one: {', '.join(span['name'] for span in split[0])}")
