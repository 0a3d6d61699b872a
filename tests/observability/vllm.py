"""Checks that the spans of a real vLLM are children of the router's spans. Runs only if CONDUCTOR_RIG_VLLM is set.

    CONDUCTOR_RIG_OTLP_PORT=4318 CONDUCTOR_RIG_VLLM=http://127.0.0.1:8000 tests/observability/run.py BINARY

Start vLLM before the rig. It sends its spans to the port of CONDUCTOR_RIG_OTLP_PORT:

    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf \\
        vllm serve MODEL --otlp-traces-endpoint http://127.0.0.1:4318/v1/traces
"""

import http.client
import json
import os

from stack import Failure, get, poll
from traffic import KEY

URL = os.environ.get("CONDUCTOR_RIG_VLLM")
PORT = os.environ.get("CONDUCTOR_RIG_OTLP_PORT")
# Trace context of a client that is not sampled. Neither the router nor the engine may make a span for it.
UNSAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"


def configuration():
    """Returns the pool and the route of the engine, or an empty text without an engine."""
    if not URL:
        return ""
    return f"""
[[pools.vllm.workers]]
name = "vllm"
url = "{URL}"

[[routes]]
match = {{ header = {{ x-vllm = "1" }} }}
pool = "vllm"
policy = "round-robin"
"""


def request(port, model, **headers):
    """Sends one request to the engine, and returns its status."""
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-vllm": "1", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def check(collector, port):
    """Checks that the engine's span is a child of the router's attempt, and that an unsampled request has none."""
    if not URL:
        return print("skipped: the check of vLLM's spans, since CONDUCTOR_RIG_VLLM is not set")
    model = get(f"{URL}/v1/models")["data"][0]["id"]
    if (status := request(port, model, traceparent=UNSAMPLED)) != 200 or (status := request(port, model)) != 200:
        raise Failure(f"the response of vLLM has the status {status}")
    has_engine_span = lambda spans: any(span["name"] == "llm_request" for span in spans)
    engine_traces = lambda: [spans for spans in collector.traces() if has_engine_span(spans)]
    spans = poll("the collector receives the engine's span", engine_traces)[0]
    (own,) = [span for span in spans if span["name"] == "llm_request"]
    parents = {span["span"]: span for span in spans if span["attributes"].get("conductor.worker") == "vllm"}
    if own["parent"] not in parents:
        raise Failure(f"the parent of {own} is not one of the router's attempts {list(parents)}")
    if any(span["trace"] == UNSAMPLED.split("-")[1] for spans in collector.traces() for span in spans):
        raise Failure("a request that was not sampled has spans")
    print(f"vLLM's span is a child of the router's span: {parents[own['parent']]['name']} > {own['name']}")
