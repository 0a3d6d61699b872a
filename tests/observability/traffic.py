"""Fleet and clients of the rig: the demo's engines, a prefill and a decode engine, and a constant load."""

import hashlib
import http.client
import json
import random
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-observability-rig"


class SplitEngine(BaseHTTPRequestHandler):
    """Mock engine for prefill and decode requests of vLLM's NIXL connector.

    It has only the fields that the router reads. Every tenth prefill response lacks the handshake parameters.
    """

    protocol_version = "HTTP/1.1"
    prefills = 0
    # Trace contexts of the received requests.
    contexts = []

    def log_message(self, *_):
        pass

    def respond(self, body, content_type="application/json", status=200):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.respond(b"{}")
        elif self.path == "/v1/models":
            self.respond(json.dumps({"object": "list", "data": [{"id": "split", "object": "model"}]}).encode())
        else:
            self.respond(b"{}", status=404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        SplitEngine.contexts.append(self.headers.get("traceparent", ""))
        if not self.path.startswith("/v1/chat"):
            return self.respond(b"{}", status=404)
        if (body.get("kv_transfer_params") or {}).get("do_remote_decode"):
            return self.prefill()
        usage = {"prompt_tokens": 40, "completion_tokens": 4, "total_tokens": 44}
        chunks = [{"choices": [{"index": 0, "delta": {"content": "word "}}]} for _ in range(4)]
        lines = [json.dumps(chunk) for chunk in [*chunks, {"choices": [], "usage": usage}]] + ["[DONE]"]
        self.respond("".join(f"data: {line}\n\n" for line in lines).encode(), "text/event-stream")

    def prefill(self):
        SplitEngine.prefills += 1
        response = {"id": "p", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "w"}}]}
        if SplitEngine.prefills % 10:
            response["kv_transfer_params"] = {
                "do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "engine",
                "remote_block_ids": [1, 2], "remote_host": "127.0.0.1", "remote_port": 1,
            }
        self.respond(json.dumps(response).encode())


def split_engines():
    """Starts two mock engines, and returns their servers."""
    engines = [ThreadingHTTPServer(("127.0.0.1", 0), SplitEngine) for _ in range(2)]
    for engine in engines:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
    return engines


def configuration(demo, engines, traces, more):
    """Returns the demo's configuration with a client, budgets, a canary, a shadow, a split pool, and two further texts.

    `traces` is the table of the collector, and `more` has further pools and routes.
    """
    head, workers = demo.split("[[pools.demo.workers]]", 1)
    workers = "[[pools.demo.workers]]" + workers.split("[[routes]]", 1)[0]
    urls = [f"http://127.0.0.1:{engine.server_port}" for engine in engines]
    return f"""{head}
memory-limit = "8GiB"

{traces}
[clients.rig]
key-sha256 = ["{hashlib.sha256(KEY.encode()).hexdigest()}"]

[pools.demo.admission]
requests = 4

{workers}
[pools.split]
pd = {{ dialect = "nixl" }}

[[pools.split.workers]]
name = "prefill"
url = "{urls[0]}"
role = "prefill"
models = ["split"]

[[pools.split.workers]]
name = "decode"
url = "{urls[1]}"
role = "decode"
models = ["split"]

# A source that lists no worker: for the metrics of sources.
[discovery.rig]
pool = "split"
file-sd = "rig-targets.json"
role = "decode"

[policies.weighed.pipeline]
scorers = [{{ feature = "load.prefill-tokens", weight = -1 }}]
pick = "max"

{more}
[[routes]]
match = {{ model = "split" }}
pool = "split"
policy = "ttft-queue"

[[routes]]
match = {{ header = {{ x-weighed = "1" }} }}
pool = "demo"
policy = "weighed"

[[routes]]
match = {{ header = {{ x-rig = "1" }} }}
pool = "demo"
policy = "rig"

[[routes]]
pool = "demo"
policy = "ttft-queue"
split = {{ "ttft-queue" = 50, "cache-aware" = 50 }}
shadow = ["round-robin"]
shadow-sample = 1.0
"""


class Load:
    """Load generator: clients that send requests until they are stopped."""

    def __init__(self, port, clients=6):
        self.port = port
        # Number of requests for each status, or for each exception's name.
        self.responses = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(seed,), daemon=True) for seed in range(clients)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(30)

    def client(self, seed):
        dice = random.Random(seed)
        # The pause between two requests of one client.
        while not self.ended.wait(0.05):
            try:
                status = self.request(dice)
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            with self.lock:
                self.responses[status] = self.responses.get(status, 0) + 1

    def request(self, dice):
        session = dice.randrange(64)
        text = f"conversation {session}: " + "the same long beginning of it " * 20 + str(dice.random())
        body = {"model": "split" if dice.random() < 0.3 else "mock", "stream": True, "max_tokens": 8,
                "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": text}]}
        headers = {"content-type": "application/json", "x-session-id": str(session), "authorization": f"Bearer {KEY}"}
        if dice.random() < 0.1:
            headers["x-weighed"] = "1"
        elif dice.random() < 0.1:
            headers["x-rig"] = "1"
        if dice.random() < 0.02:
            headers["authorization"] = "Bearer wrong"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


def demo_file(log):
    """Returns the path of the demo's configuration file from its log, or None if the log has none."""
    found = re.search(r"^\s+(/\S+/conductor\.toml)$", log, re.M)
    return found and found.group(1)
