#!/usr/bin/env python3
"""Checks that a built router follows a CURVE publisher of PyZMQ, whose libzmq has libsodium.

    pip install pyzmq msgpack
    python tests/engines/curve_feed.py --conductor target/debug/conductor

Checks a replay of earlier batches, a live batch, a replay after a gap, and the rejection of a wrong server key.
"""
import argparse
import http.server
import json
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

import msgpack
import zmq

TOPIC = b"kv-events"


def event_batch(sequence: int) -> bytes:
    """Returns an encoded batch with one BlockStored event."""
    event = ["BlockStored", [sequence + 1], sequence or None, [7] * 16, 16, None, "GPU"]
    return msgpack.packb([time.time(), [event], 0])


class CurvePublisher:
    """Publisher of KV events with a PUB and a ROUTER socket as in vLLM. Both are CURVE servers."""

    def __init__(self):
        self.context = zmq.Context()
        self.public_key, self.secret_key = zmq.curve_keypair()
        self.live, self.replay = self.curve_socket(zmq.PUB), self.curve_socket(zmq.ROUTER)
        self.port = self.live.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.replay.bind_to_random_port("tcp://127.0.0.1")
        self.history = []
        threading.Thread(target=self.serve_replays, daemon=True).start()

    def curve_socket(self, kind):
        curve_socket = self.context.socket(kind)
        curve_socket.curve_server = True
        curve_socket.curve_publickey, curve_socket.curve_secretkey = self.public_key, self.secret_key
        return curve_socket

    def publish(self, dropped: bool = False):
        """Adds a batch to the history and sends it, unless it is to be dropped."""
        sequence = len(self.history)
        payload = event_batch(sequence)
        self.history.append(payload)
        if not dropped:
            self.live.send_multipart([TOPIC, struct.pack(">Q", sequence), payload])

    def serve_replays(self):
        while True:
            client, _, start = self.replay.recv_multipart()
            for sequence in range(struct.unpack(">Q", start)[0], len(self.history)):
                frames = [client, b"", TOPIC, struct.pack(">Q", sequence), self.history[sequence]]
                self.replay.send_multipart(frames)
            self.replay.send_multipart([client, b"", b"", struct.pack(">q", -1), b""])


class WorkerStub(http.server.BaseHTTPRequestHandler):
    """HTTP server that returns 200 to every GET request."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def feed_status(admin_port: int) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/admin/feeds") as page:
        return json.load(page)["feeds"][0]


def wait_until(admin_port: int, claim: str, condition):
    """Polls the feed's status until the condition is met, and prints the claim. Fails after 30 s."""
    deadline = time.time() + 30
    while True:
        try:
            status = feed_status(admin_port)
            if condition(status):
                print(f"ok: {claim}: {status['state']}, batches {status['batches']}, refused {status['refused']}")
                return
        except OSError:
            status = None
        assert time.time() < deadline, f"{claim}: {status}"
        time.sleep(0.1)


def run_router(conductor: str, publisher: CurvePublisher, server_key: bytes, check):
    """Starts a router that follows the publisher with this server key, and runs the check on its admin port."""
    worker = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WorkerStub)
    threading.Thread(target=worker.serve_forever, daemon=True).start()
    _, client_secret = zmq.curve_keypair()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "client.key").write_bytes(client_secret + b"\n")
        (folder / "client.key").chmod(0o600)
        admin_port = free_port()
        (folder / "conductor.toml").write_text(
            f"""
[server]
listen = "127.0.0.1:{free_port()}"
admin-listen = "127.0.0.1:{admin_port}"

[pools.main.kv-curve]
server-key = {json.dumps(server_key.decode())}
client-key = {{ file = "client.key" }}

[[pools.main.workers]]
url = "http://127.0.0.1:{worker.server_port}"
kv-events = "tcp://127.0.0.1:{publisher.port}"
kv-replay = "tcp://127.0.0.1:{publisher.replay_port}"

[[routes]]
pool = "main"
"""
        )
        router = subprocess.Popen([conductor, "--config", str(folder / "conductor.toml")])
        try:
            check(admin_port)
        finally:
            router.terminate()
            router.wait()
    worker.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", required=True)
    conductor = parser.parse_args().conductor
    publisher = CurvePublisher()
    for _ in range(3):
        publisher.publish()

    def check_right_key(admin_port: int):
        wait_until(
            admin_port,
            "earlier batches are replayed",
            lambda status: status["batches"] == 3 and status["state"] == "live",
        )
        publisher.publish()
        wait_until(admin_port, "a live batch is received", lambda status: status["batches"] == 4)
        publisher.publish(dropped=True)
        publisher.publish()
        wait_until(admin_port, "a gap is replayed", lambda status: status["batches"] == 6 and status["complete"])

    def check_wrong_key(admin_port: int):
        wait_until(
            admin_port,
            "a publisher with another key is refused",
            lambda status: status["refused"].get("refused"),
        )
        assert feed_status(admin_port)["batches"] == 0

    run_router(conductor, publisher, publisher.public_key, check_right_key)
    run_router(conductor, publisher, zmq.curve_keypair()[0], check_wrong_key)


if __name__ == "__main__":
    main()
