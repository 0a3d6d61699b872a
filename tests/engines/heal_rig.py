"""What vllm_heal.py works with: servers, Conductor, requests, and a look at the index again and again."""

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


class Failed(Exception):
    pass


def post(url, body=None, timeout=60):
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method="POST", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        text = answer.read()
        return answer.headers, json.loads(text) if text.strip() else None


def get(url, timeout=10):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


class Engine:
    """A vLLM server in a process group of its own; one that a run before left running is taken over."""

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
        given = {"VENV": self.options.venv, "MODEL": self.options.model_path, "BLOCKS": str(self.options.blocks)}
        log = open(pathlib.Path(tempfile.gettempdir()) / f"vllm-heal-{self.port}.log", "ab")
        process = subprocess.Popen(
            ["nice", "-n", "5", self.options.start],
            env=os.environ | self.ports | given,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
        self.pid_file.write_text(str(process.pid))

    def wait_up(self):
        started = time.monotonic()
        while not self.is_up():
            if time.monotonic() - started > 600:
                raise Failed(f"the engine {self.name} does not start")
            time.sleep(0.5)
        return time.monotonic()

    def kill(self):
        """SIGKILL to the whole group, as a node that goes away."""
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

    def has_history(self):
        """A server that ran for long has forgotten its first batches."""
        try:
            return engine_truth.replay(self.replay) is not None
        except engine_truth.NoHistory:
            return False

    def truth(self):
        return engine_truth.settled(self.replay)


def complete(base, tokens):
    body = {"model": MODEL, "prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    headers, answer = post(f"{base}/v1/completions", body)
    return headers, (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class Prompts:
    """All that is ever sent: families with the same beginning, and short ones; twice what an engine can hold."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.all = []
        for _ in range(4):
            beginning = self.tokens(2 * BLOCK)
            self.all += [beginning + self.tokens(3 * BLOCK + 10) for _ in range(4)]
        self.all += [self.tokens(2 * BLOCK + 5) for _ in range(16)]

    def tokens(self, count):
        return [self.random.randrange(10, 2_000) for _ in range(count)]

    def any(self):
        return self.random.choice(self.all)


class Index:
    """The index service's answers."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=10)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise Failed(f"{path}: {answer.status} {text!r}")
        return json.loads(text)

    def depths(self, tokens):
        instances = self.ask("POST", "/query", {"model": MODEL, "block_size": BLOCK, "token_ids": tokens})["instances"]
        return {name: found["longest_matched"] for name, found in instances.items()}

    def snapshot(self, probes):
        """For each worker: the depth of each probe, and how many blocks there are in all."""
        each = [self.depths(probe) for probe in probes]
        services = self.ask("GET", "/services")["services"]
        held = {service["InstanceID"]: service["HeldBlocks"] for service in services}
        return {name: (tuple(depths.get(name, 0) for depths in each), count) for name, count in held.items()}


def expected(truth, probes):
    return tuple(truth.depth(probe, BLOCK) for probe in probes), len(truth.held)


class Watcher(threading.Thread):
    """Asks the index again and again, and keeps every answer that differs from the one before with its time."""

    def __init__(self, address, probes):
        super().__init__(daemon=True)
        self.index, self.probes = Index(address), probes
        self.changes, self.error = [], None
        self.asked, self.asked_at, self.busy_s = 0, 0.0, 0.0
        self.pause_s = 0.005

    def run(self):
        try:
            while True:
                began = time.monotonic()
                snapshot = self.index.snapshot(self.probes)
                now = time.monotonic()
                self.busy_s += now - began
                if not self.changes or self.changes[-1][1] != snapshot:
                    self.changes.append((now, snapshot))
                self.asked_at = now
                self.asked += 1
                time.sleep(self.pause_s)
        except Exception as error:  # Shown by whoever waits for an answer.
            self.error = error

    def at(self, moment):
        """What the index answered then."""
        return next(snapshot for at, snapshot in reversed(list(self.changes)) if at <= moment)

    def now(self):
        """An answer to a question asked after this call."""
        called = time.monotonic()
        while self.asked_at < called + 0.05:
            if self.error is not None:
                raise Failed(f"the index service does not answer: {self.error!r}")
            time.sleep(0.005)
        return self.changes[-1][1]

    def equal_since(self, name, wanted):
        """Since when all answers were this one; None where the newest is not."""
        since = None
        for at, snapshot in reversed(list(self.changes)):
            if snapshot.get(name) != wanted:
                break
            since = at
        return since


class Conductor:
    def __init__(self, options, relay, engines):
        self.base, self.admin, self.indexer = (f"127.0.0.1:{port}" for port in options.ports[:3])
        feeds = {"A": (relay.events, relay.replay), "B": (engines["B"].events, engines["B"].replay)}
        workers = "".join(
            f'[[pools.main.workers]]\nname = "{name}"\nurl = "{engine.base}"\n'
            f'kv-events = "{feeds[name][0]}"\nkv-replay = "{feeds[name][1]}"\n'
            for name, engine in engines.items()
        )
        # Nothing may be expected: answers come from events alone.
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
                    raise Failed(f"conductor does not become ready: {self.log.read_text()}") from None
                time.sleep(0.05)

    def is_alive(self):
        return self.process.poll() is None

    def counters(self, worker):
        page = get(f"http://{self.admin}/metrics")
        pattern = r'conductor_kv_feed_%s_total\{worker="%s"[^}]*\} (\d+)'
        return {name: sum(map(int, re.findall(pattern % (name, worker), page))) for name in COUNTERS}

    def end(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


class Traffic(threading.Thread):
    """Requests through Conductor, and now and then one straight to an engine, one after the other."""

    def __init__(self, base, prompts, straight_to=None, pause_s=0.0):
        super().__init__(daemon=True)
        self.pause_s = pause_s
        self.base, self.prompts, self.straight_to = f"http://{base}", prompts, straight_to
        self.sent, self.failed, self.ending = 0, 0, threading.Event()
        self.overclaimed, self.broken = 0, False

    def run(self):
        while not self.ending.wait(self.pause_s):
            self.sent += 1
            straight = self.straight_to is not None and self.sent % 2 == 0
            try:
                headers, cached = complete(self.straight_to.base if straight else self.base, self.prompts.any())
                matched = int(headers["x-conductor-matched-tokens"] or 0)
                self.overclaimed += self.broken and matched > cached
            except OSError:
                self.failed += 1

    def end(self):
        self.ending.set()
        self.join()
        return f"{self.sent} requests, {self.failed} failed, {self.overclaimed} routed by hits that were none"
