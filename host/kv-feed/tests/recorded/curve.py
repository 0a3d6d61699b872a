#!/usr/bin/env python3
"""Records a CURVE session between an XPUB socket of libzmq and a client with fixed random bytes.

This script implements the client with PyNaCl, independently of the router's client. The test replays the server's bytes
to the router's client, which uses the same random bytes. It expects the recorded client's bytes and the messages.

    pip install pyzmq pynacl && python3 curve.py > curve.txt
"""
import socket
import struct
import sys

import nacl.bindings as sodium
import zmq
import zmq.utils.z85

SHORT_SECRET = bytes(range(32))
VOUCH_NONCE = bytes(range(100, 116))
CLIENT_SECRET = bytes(range(200, 232))
MESSAGES = [[b"kv-events", struct.pack(">Q", 0), b"first"], [b"kv-events", struct.pack(">Q", 1), b"x" * 300]]


def frame(command: bool, body: bytes) -> bytes:
    """Returns a ZMTP frame with this body."""
    if len(body) < 256:
        return bytes([4 * command, len(body)]) + body
    return bytes([4 * command | 2]) + struct.pack(">Q", len(body)) + body


class Wire:
    """TCP connection that records the sent and received bytes."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.sent, self.received = b"", b""

    def send(self, data: bytes):
        self.socket.sendall(data)
        self.sent += data

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self.socket.recv(length - len(data))
        self.received += data
        return data

    def frame(self) -> bytes:
        """Reads a ZMTP frame and returns its body."""
        flags = self.read(1)[0]
        length = struct.unpack(">Q", self.read(8))[0] if flags & 2 else self.read(1)[0]
        return self.read(length)


def main():
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    server_public, server_secret = zmq.curve_keypair()
    publisher.curve_server = True
    publisher.curve_publickey, publisher.curve_secretkey = server_public, server_secret
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    server = zmq.utils.z85.decode(server_public)
    short = sodium.crypto_scalarmult_base(SHORT_SECRET)
    client = sodium.crypto_scalarmult_base(CLIENT_SECRET)
    wire = Wire(port)
    wire.send(b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32))
    wire.read(64)
    nonce = struct.pack(">Q", 1)
    box = sodium.crypto_box(bytes(64), b"CurveZMQHELLO---" + nonce, server, SHORT_SECRET)
    wire.send(frame(True, b"\x05HELLO\x01\x00" + bytes(72) + short + nonce + box))
    welcome = wire.frame()
    assert welcome[:8] == b"\x07WELCOME", welcome
    opened = sodium.crypto_box_open(welcome[24:], b"WELCOME-" + welcome[8:24], server, SHORT_SECRET)
    server_short, cookie = opened[:32], opened[32:]
    vouch = sodium.crypto_box(short + server, b"VOUCH---" + VOUCH_NONCE, server_short, CLIENT_SECRET)
    metadata = b"\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
    nonce = struct.pack(">Q", 2)
    text = client + VOUCH_NONCE + vouch + metadata
    box = sodium.crypto_box(text, b"CurveZMQINITIATE" + nonce, server_short, SHORT_SECRET)
    wire.send(frame(True, b"\x08INITIATE" + cookie + nonce + box))
    ready = wire.frame()
    assert ready[:6] == b"\x05READY", ready
    nonce = struct.pack(">Q", 3)
    box = sodium.crypto_box(b"\0\x01kv", b"CurveZMQMESSAGEC" + nonce, server_short, SHORT_SECRET)
    wire.send(frame(False, b"\x07MESSAGE" + nonce + box))
    assert publisher.recv() == b"\x01kv"
    for message in MESSAGES:
        publisher.send_multipart(message)
        for _ in message:
            assert wire.frame()[:8] == b"\x07MESSAGE"
    print(f"# libzmq {zmq.zmq_version()}; made by curve.py")
    for name, data in [("server-public", server), ("sent", wire.sent), ("received", wire.received)]:
        print(name, data.hex())


if __name__ == "__main__":
    sys.exit(main())
