"""Test rig of vllm_heal.py: engine servers, Conductor's process, requests, and a poller of the index service."""

import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

import engine_truth

MODEL, BLOCK = "tiny", 32
DEADLINE_S = 15.0
COUNTERS = ("gaps", "replays", "restarts", "resets")


class RigError(Exception):
    """Error of the test setup: an engine, Conductor or the index service does not work as required."""


def post(url, body=None, timeout=60):
    """Sends a POST request. Returns the response's headers and its decoded JSON body."""
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method="POST", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        text = response.read()
        return response.headers, json.loads(text) if text.strip() else None


def get(url, timeout=10):
    with urllib.request.urlopen(url, timeout=timeout) as response:
        return response.read().decode()


class EngineServer:
    """vLLM server in a process group of its own. A server that an earlier run left running is reused."""

    def __init__(self, name, port, events, replay, options):
        self.name, self.port, self.options = name, port, options
        self.base = f"http://127.0.0.1:{port}"
        self.events, self.replay = f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        self.ports = {"PORT": str(port), "EV": str(events), "REPLAY": str(replay)}
        self.pid_file = pathlib.Path(tempfile.gettempdir()) / f"vllm-heal-{port}.pid"

    def is_up(self):
        try:
            get(f"{self.base}/health", timeout=2)
            return True
        except OSError:
            return False

    def start(self):
        if self.is_up():
            return
        model = {"VENV": self.options.venv, "MODEL": self.options.model_path, "BLOCKS": str(self.options.blocks)}
        log = open(pathlib.Path(tempfile.gettempdir()) / f"vllm-heal-{self.port}.log", "ab")
        process = subprocess.Popen(
            ["nice", "-n", "5", self.options.start],
            env=os.environ | self.ports | model,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
        self.pid_file.write_text(str(process.pid))

    def wait_until_up(self):
        started = time.monotonic()
        while not self.is_up():
            if time.monotonic() - started > 600:
                raise RigError(f"the engine {self.name} did not start in 600 s")
            time.sleep(0.5)
        return time.monotonic()

    def kill(self):
        """Sends SIGKILL to the whole process group, as in a node failure."""
        try:
            group = int(self.pid_file.read_text())
            os.killpg(group, signal.SIGKILL)
            os.waitpid(group, 0)
        except (FileNotFoundError, ChildProcessError, ProcessLookupError):
            pass
        while self.is_up():
            time.sleep(0.05)

    def complete(self, tokens):
        return complete(self.base, tokens)[1]

    def has_full_history(self):
        """Returns whether the replay buffer still contains the first batch. A long-running server evicts it."""
        try:
            return engine_truth.replay_history(self.replay) is not None
        except engine_truth.HistoryError:
            return False

    def cache_state(self):
        return engine_truth.stable_state(self.replay)


def complete(base, tokens):
    """Sends a completion request. Returns the response's headers and the engine's count of cached tokens."""
    body = {"model": MODEL, "prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    headers, response = post(f"{base}/v1/completions", body)
    return headers, (response["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class PromptSet:
    """Prompts of all requests: families with a common prefix, and short prompts.

    The prompts have about twice the blocks that fit into an engine's cache.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.all = []
        for _ in range(4):
            prefix = self.random_tokens(2 * BLOCK)
            self.all += [prefix + self.random_tokens(3 * BLOCK + 10) for _ in range(4)]
        self.all += [self.random_tokens(2 * BLOCK + 5) for _ in range(16)]

    def random_tokens(self, count):
        return [self.random.randrange(10, 2_000) for _ in range(count)]

    def random_prompt(self):
        return self.random.choice(self.all)


class IndexClient:
    """HTTP client of Conductor's index service."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=10)

    def request(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RigError(f"{path}: {response.status} {text!r}")
        return json.loads(text)

    def matched_tokens(self, tokens):
        """Returns the index's longest match of a prompt for each worker."""
        query = {"model": MODEL, "block_size": BLOCK, "token_ids": tokens}
        instances = self.request("POST", "/query", query)["instances"]
        return {name: match["longest_matched"] for name, match in instances.items()}

    def snapshot(self, prompts):
        """Returns for each worker the match of each prompt, and the number of all its blocks."""
        matches = [self.matched_tokens(prompt) for prompt in prompts]
        services = self.request("GET", "/services")["services"]
        held = {service["InstanceID"]: service["HeldBlocks"] for service in services}
        return {name: (tuple(match.get(name, 0) for match in matches), count) for name, count in held.items()}


def expected_snapshot(state, prompts):
    """Returns a worker's part of `IndexClient.snapshot`, computed from the engine's cache state."""
    return tuple(state.matched_tokens(prompt, BLOCK) for prompt in prompts), len(state.held)


class IndexPoller(threading.Thread):
    """Thread that polls the index. It records each snapshot that differs from the previous one, with its time."""

    def __init__(self, address, prompts):
        super().__init__(daemon=True)
        self.index, self.prompts = IndexClient(address), prompts
        self.changes, self.error = [], None
        self.poll_count, self.polled_at, self.busy_s = 0, 0.0, 0.0
        self.pause_s = 0.005

    def run(self):
        try:
            while True:
                began = time.monotonic()
                snapshot = self.index.snapshot(self.prompts)
                now = time.monotonic()
                self.busy_s += now - began
                if not self.changes or self.changes[-1][1] != snapshot:
                    self.changes.append((now, snapshot))
                self.polled_at = now
                self.poll_count += 1
                time.sleep(self.pause_s)
        except Exception as error:  # `fresh_snapshot` reports it.
            self.error = error

    def snapshot_at(self, moment):
        """Returns the latest snapshot at a moment."""
        return next(snapshot for at, snapshot in reversed(list(self.changes)) if at <= moment)

    def fresh_snapshot(self):
        """Returns the snapshot of a poll that ended at least 50 ms after this call."""
        called = time.monotonic()
        while self.polled_at < called + 0.05:
            if self.error is not None:
                raise RigError(f"failed to poll the index service: {self.error!r}")
            time.sleep(0.005)
        return self.changes[-1][1]

    def equal_since(self, name, expected):
        """Returns the time since which a worker's snapshots equal `expected`. None if the latest one differs."""
        since = None
        for at, snapshot in reversed(list(self.changes)):
            if snapshot.get(name) != expected:
                break
            since = at
        return since


class ConductorProcess:
    """Conductor in front of both engines. It follows engine A's events through the relay, and B's directly."""

    def __init__(self, options, relay, engines):
        self.base, self.admin, self.indexer = (f"127.0.0.1:{port}" for port in options.ports[:3])
        feeds = {"A": (relay.events, relay.replay), "B": (engines["B"].events, engines["B"].replay)}
        workers = "".join(
            f'[[pools.main.workers]]\nname = "{name}"\nurl = "{engine.base}"\n'
            f'kv-events = "{feeds[name][0]}"\nkv-replay = "{feeds[name][1]}"\n'
            for name, engine in engines.items()
        )
        # `expect-for = "0s"` disables speculative inserts: the index contains only blocks from events.
        config = (
            f'[server]\nlisten = "{self.base}"\nadmin-listen = "{self.admin}"\n'
            f'[log]\nlevel = "info,kv_feed=debug"\n[index]\nexpect-for = "0s"\n[indexer]\nlisten = "{self.indexer}"\n'
            f'[pools.main]\n{workers}[[routes]]\npool = "main"\npolicy = "cache-aware"\n'
        )
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="vllm-heal-"))
        self.log = self.folder / "conductor.log"
        (self.folder / "conductor.toml").write_text(config)
        command = [options.conductor, "--config", str(self.folder / "conductor.toml")]
        self.process = subprocess.Popen(command, stdout=open(self.log, "wb"), stderr=subprocess.STDOUT)
        started = time.monotonic()
        while True:
            try:
                get(f"http://{self.base}/readyz")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() - started > DEADLINE_S:
                    raise RigError(f"Conductor did not become ready: {self.log.read_text()}") from None
                time.sleep(0.05)

    def is_alive(self):
        return self.process.poll() is None

    def counters(self, worker):
        """Returns the counters of a worker's event feed, from /metrics."""
        page = get(f"http://{self.admin}/metrics")
        pattern = r'conductor_kv_feed_%s_total\{worker="%s"[^}]*\} (\d+)'
        return {name: sum(map(int, re.findall(pattern % (name, worker), page))) for name in COUNTERS}

    def stop(self):
        """Sends SIGTERM. Returns the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)


class TrafficThread(threading.Thread):
    """Thread that sends requests through Conductor, one at a time.

    With `direct_engine`, every second request goes directly to that engine.
    """

    def __init__(self, base, prompts, direct_engine=None, pause_s=0.0):
        super().__init__(daemon=True)
        self.pause_s = pause_s
        self.base, self.prompts, self.direct_engine = f"http://{base}", prompts, direct_engine
        self.sent_count, self.failed_count, self.stopping = 0, 0, threading.Event()
        self.false_hits, self.is_fault_active = 0, False

    def run(self):
        while not self.stopping.wait(self.pause_s):
            self.sent_count += 1
            is_direct = self.direct_engine is not None and self.sent_count % 2 == 0
            base = self.direct_engine.base if is_direct else self.base
            try:
                headers, cached = complete(base, self.prompts.random_prompt())
                matched = int(headers["x-conductor-matched-tokens"] or 0)
                self.false_hits += self.is_fault_active and matched > cached
            except OSError:
                self.failed_count += 1

    def stop(self):
        """Stops the thread. Returns a summary of its requests."""
        self.stopping.set()
        self.join()
        return f"{self.sent_count} requests, {self.failed_count} failed, {self.false_hits} routed by false cache hits"
