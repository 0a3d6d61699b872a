"""A real vLLM behind the rig's router: its spans must continue the router's. Only if one is given.

    CONDUCTOR_RIG_OTLP_PORT=4318 CONDUCTOR_RIG_VLLM=http://127.0.0.1:8000 tests/observability/run.py BINARY

It is started before the rig, and sends its spans to that port:

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
# A client's context that is not sampled: no one may make a span of it.
UNSAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"


def configuration():
    """Returns the pool and the route of the engine, or nothing."""
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
        return print("no vLLM is given (CONDUCTOR_RIG_VLLM): the join with its spans was not checked")
    model = get(f"{URL}/v1/models")["data"][0]["id"]
    if (status := request(port, model, traceparent=UNSAMPLED)) != 200 or (status := request(port, model)) != 200:
        raise Failure(f"the request to vLLM was answered with {status}")
    engine = lambda: [spans for spans in collector.traces() if any(span["name"] == "llm_request" for span in spans)]
    spans = poll("the engine's span arrives", engine)[0]
    (own,) = [span for span in spans if span["name"] == "llm_request"]
    parents = {span["span"]: span for span in spans if span["attributes"].get("conductor.worker") == "vllm"}
    if own["parent"] not in parents:
        raise Failure(f"the parent of {own} is none of {list(parents)}")
    if any(span["trace"] == UNSAMPLED.split("-")[1] for spans in collector.traces() for span in spans):
        raise Failure("a request that was not sampled has spans")
    print(f"vLLM's span continues the router's: {parents[own['parent']]['name']} > {own['name']}")
