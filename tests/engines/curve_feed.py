#!/usr/bin/env python3
"""Follows a CURVE publisher of PyZMQ (libzmq with libsodium) with a built router: live events, a replay, and a wrong key.

    pip install pyzmq msgpack
    python tests/engines/curve_feed.py --conductor target/debug/conductor
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


def batch(number: int) -> bytes:
    event = ["BlockStored", [number + 1], number or None, [7] * 16, 16, None, "GPU"]
    return msgpack.packb([time.time(), [event], 0])


class Publisher:
    """A PUB and a ROUTER socket as vLLM's, both CURVE servers."""

    def __init__(self):
        self.context = zmq.Context()
        self.public, self.secret = zmq.curve_keypair()
        self.live, self.replay = self.socket(zmq.PUB), self.socket(zmq.ROUTER)
        self.port = self.live.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.replay.bind_to_random_port("tcp://127.0.0.1")
        self.kept = []
        threading.Thread(target=self.serve, daemon=True).start()

    def socket(self, kind):
        socket = self.context.socket(kind)
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self.public, self.secret
        return socket

    def publish(self, lost: bool = False):
        number = len(self.kept)
        payload = batch(number)
        self.kept.append(payload)
        if not lost:
            self.live.send_multipart([TOPIC, struct.pack(">Q", number), payload])

    def serve(self):
        while True:
            client, empty, start = self.replay.recv_multipart()
            for number in range(struct.unpack(">Q", start)[0], len(self.kept)):
                self.replay.send_multipart([client, b"", TOPIC, struct.pack(">Q", number), self.kept[number]])
            self.replay.send_multipart([client, b"", b"", struct.pack(">q", -1), b""])


class Worker(http.server.BaseHTTPRequestHandler):
    """A server that is there and no more."""

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


def feed(admin: int) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/admin/feeds") as page:
        return json.load(page)["feeds"][0]


def until(admin: int, what: str, reached):
    deadline = time.time() + 30
    while True:
        try:
            status = feed(admin)
            if reached(status):
                print(f"ok: {what}: {status['state']}, batches {status['batches']}, refused {status['refused']}")
                return
        except OSError:
            status = None
        assert time.time() < deadline, f"{what}: {status}"
        time.sleep(0.1)


def run(conductor: str, publisher: Publisher, server_key: bytes, check):
    worker = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    threading.Thread(target=worker.serve_forever, daemon=True).start()
    _, client_secret = zmq.curve_keypair()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "client.key").write_bytes(client_secret + b"\n")
        (folder / "client.key").chmod(0o600)
        admin = free_port()
        (folder / "conductor.toml").write_text(
            f"""
[server]
listen = "127.0.0.1:{free_port()}"
admin-listen = "127.0.0.1:{admin}"

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
            check(admin)
        finally:
            router.terminate()
            router.wait()
    worker.shutdown()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--conductor", required=True)
    conductor = arguments.parse_args().conductor
    publisher = Publisher()
    for _ in range(3):
        publisher.publish()

    def with_the_key(admin: int):
        until(admin, "what was published before is replayed", lambda feed: feed["batches"] == 3 and feed["state"] == "live")
        publisher.publish()
        until(admin, "a live event", lambda feed: feed["batches"] == 4)
        publisher.publish(lost=True)
        publisher.publish()
        until(admin, "a gap is replayed", lambda feed: feed["batches"] == 6 and feed["complete"])

    def with_another_key(admin: int):
        until(admin, "another key", lambda feed: feed["refused"].get("refused"))
        assert feed(admin)["batches"] == 0

    run(conductor, publisher, publisher.public, with_the_key)
    run(conductor, publisher, zmq.curve_keypair()[0], with_another_key)


if __name__ == "__main__":
    main()
