#!/usr/bin/env python3
"""Runs `httpx` and `h2` of Python, curl and h2load through `conductor demo`, with prior knowledge and over TLS.

    pip install 'httpx[http2]'; apt-get install curl openssl nghttp2-client
    cargo build -p conductor
    python tests/clients/http2_client.py --conductor target/debug/conductor

The demo's own configuration file is changed while it runs: first `[server.http2] prior-knowledge`, then `[server.tls]` and
`[server.admin-tls]` with a certificate made by openssl. Each time: plain requests, streams, 100 streams at a time on one connection, one
that is cancelled in the middle, errors, and HTTP/1.1 beside it. Exits with 1 at the first thing that is otherwise.
"""

import argparse
import asyncio
import json
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request

import h2.connection
import h2.errors
import h2.events
import httpx

MODEL = "mock"
STREAMS = 100


class Demo:
    """A running `conductor demo`, and the configuration file that it watches."""

    def __init__(self, binary, port, folder):
        self.port, self.folder = port, folder
        command = [binary, "demo", "--no-traffic", "--workers", "2", "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = admin = None
        for line in self.process.stdout:
            found = re.search(r"^\s+(/\S+conductor\.toml)$", line) or found
            admin = re.search(r"admin=\S*?(127\.0\.0\.1:\d+)", line) or admin
            if " ready " in line:
                break
        if found is None or admin is None:
            raise SystemExit("the demo did not start, or did not say where its configuration and its admin pages are")
        self.file, self.admin = pathlib.Path(found.group(1)), admin.group(1)
        self.plain = self.file.read_text()
        # Nobody reads on: it must not block on a full pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def change(self, tables):
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(f"{self.plain}\n{tables}")
        fresh.rename(self.file)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


def certificate(folder):
    crt, key = folder / "router.crt", folder / "router.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*make, *subject, "-keyout", key, "-out", crt], check=True, capture_output=True)
    return crt, key


def check(what, is_so, seen=""):
    if not is_so:
        raise SystemExit(f"FAILED: {what}: {seen}")
    print(f"  {what}: {seen}" if seen else f"  {what}")


def until(what, is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"never: {what}")
        time.sleep(0.1)


def chat(stream, tokens=16):
    message = {"role": "user", "content": "count"}
    return {"model": MODEL, "stream": stream, "max_tokens": tokens, "messages": [message]}


def metric(text, name):
    values = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(values[0]) if values else 0.0


async def with_httpx(base, verify, metrics):
    # A client without HTTP/1.1 begins with HTTP/2 at once where there is no TLS.
    async with httpx.AsyncClient(base_url=base, http1=False, http2=True, verify=verify, timeout=60) as client:
        answer = await client.get("/v1/models")
        check("httpx: models", answer.status_code == 200, answer.http_version)
        answer = await client.post("/v1/chat/completions", json=chat(False))
        check("httpx: chat", answer.json()["choices"][0]["message"]["content"] != "", answer.http_version)
        check("httpx: no header of a connection", not {"connection", "transfer-encoding", "keep-alive"} & set(answer.headers))

        async def events():
            async with client.stream("POST", "/v1/chat/completions", json=chat(True)) as answer:
                return [line async for line in answer.aiter_lines() if line.startswith("data:")]

        lines = await events()
        check("httpx: stream", lines[-1] == "data: [DONE]", f"{len(lines)} events")
        before = metrics("conductor_edge_connections_total{listener=\"clients\",protocol=\"h2\"}")
        all_lines = await asyncio.gather(*(events() for _ in range(STREAMS)))
        whole = sum(lines[-1] == "data: [DONE]" for lines in all_lines)
        after = metrics("conductor_edge_connections_total{listener=\"clients\",protocol=\"h2\"}")
        check(f"httpx: {STREAMS} streams at a time", whole == STREAMS and before == after, "on one connection")

        answer = await client.post("/v1/chat/completions", json={"model": "none", "messages": []})
        check("httpx: error", answer.status_code == 404, answer.json()["error"]["code"])
        answer = await client.get("/v1/realtime?model=mock")
        check("httpx: WebSocket", answer.status_code == 426, answer.json()["error"]["code"])


def with_h2(base, context, metrics):
    """Cancels a stream in the middle: httpx itself resets none that it leaves, so that one runs to its end."""
    url = httpx.URL(base)
    connection = socket.create_connection((url.host, url.port), timeout=60)
    if context is not None:
        context.set_alpn_protocols(["h2"])
        connection = context.wrap_socket(connection, server_hostname=url.host)
    state = h2.connection.H2Connection()
    state.initiate_connection()

    def ask(method, path, body):
        stream = state.get_next_available_stream_id()
        head = [(":method", method), (":scheme", url.scheme), (":path", path), (":authority", f"{url.host}:{url.port}")]
        state.send_headers(stream, head, end_stream=not body)
        if body:
            state.send_data(stream, body, end_stream=True)
        connection.sendall(state.data_to_send())
        return stream

    def until_event(kind, stream):
        while True:
            for event in state.receive_data(connection.recv(65536)):
                if isinstance(event, kind) and event.stream_id == stream:
                    return event
            connection.sendall(state.data_to_send())

    left = 'conductor_requests_total{pool="demo",outcome="client-left"}'
    before = metrics(left)
    stream = ask("POST", "/v1/chat/completions", json.dumps(chat(True, 4_000)).encode())
    until_event(h2.events.DataReceived, stream)
    state.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    connection.sendall(state.data_to_send())
    until("the request that is cancelled in the middle ends", lambda: metrics(left) == before + 1)
    check("h2: cancelled in the middle", True, "the worker's request ended")
    head = dict(until_event(h2.events.ResponseReceived, ask("GET", "/v1/models", b"")).headers)
    status = head.get(":status", head.get(b":status"))
    check("h2: the connection goes on", status in ("200", b"200"), status)
    connection.close()


def with_curl(base, flags, folder):
    def curl(*args):
        command = ["curl", "-sS", "-w", "\n%{http_version} %{http_code}", *flags, *args]
        done = subprocess.run(command, capture_output=True, text=True)
        body, _, told = done.stdout.rpartition("\n")
        return body, told, done.stderr

    body, told, error = curl(f"{base}/v1/models")
    check("curl: models", told == "2 200", told + error)
    post = ["-H", "content-type: application/json", "-d"]
    body, told, error = curl(f"{base}/v1/chat/completions", *post, json.dumps(chat(False)))
    check("curl: chat", told == "2 200" and "choices" in body, told + error)
    body, told, error = curl("-N", f"{base}/v1/chat/completions", *post, json.dumps(chat(True)))
    check("curl: stream", told == "2 200" and body.strip().endswith("data: [DONE]"), told + error)
    many = [text for number in range(80) for text in ("-H", f"x-{number}: v")]
    body, told, error = curl(*many, f"{base}/v1/models")
    check("curl: too many headers", told == "2 431" and "headers_too_large" in body, told + error)
    long = folder / "long.json"
    long.write_bytes(b" " * (40 << 20))
    body, told, error = curl(f"{base}/v1/completions", "--data-binary", f"@{long}")
    check("curl: too long a body", told == "2 413" and "body_too_large" in body, told + error)
    flags.clear()
    body, told, error = curl("--http1.1", "-k", f"{base}/v1/models")
    check("curl: HTTP/1.1 beside it", told == "1.1 200", told + error)


def with_h2load(base, folder):
    body = folder / "body.json"
    body.write_text(json.dumps(chat(True)))
    load = ["h2load", "-n", "2000", "-c", "4", "-m", str(STREAMS), "-d", body, "-H", "content-type: application/json"]
    done = subprocess.run([*load, f"{base}/v1/chat/completions"], capture_output=True, text=True)
    shown = [line for line in done.stdout.splitlines() if re.match("finished|requests:|status|Application", line)]
    check(f"h2load: 4 connections of {STREAMS} streams", "2000 2xx" in done.stdout, "\n    ".join(["", *shown]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--conductor", required=True)
    parser.add_argument("--port", type=int, default=18443)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        demo = Demo(options.conductor, options.port, folder)
        try:
            run(demo, folder)
        finally:
            demo.end()
    print("all as expected")


def run(demo, folder):
    def metrics(name, base=f"http://{demo.admin}", context=None):
        text = urllib.request.urlopen(f"{base}/metrics", context=context).read().decode()
        return metric(text, name)

    print("HTTP/2 with prior knowledge")
    demo.change("[server.http2]\nprior-knowledge = true\n")
    base, knows = f"http://127.0.0.1:{demo.port}", ["--http2-prior-knowledge"]
    models = ["curl", "-s", "-o", "/dev/null", *knows, f"{base}/v1/models"]
    until("it is spoken", lambda: subprocess.run(models).returncode == 0)
    asyncio.run(with_httpx(base, True, metrics))
    with_h2(base, None, metrics)
    with_curl(base, knows, folder)
    with_h2load(base, folder)

    print("HTTP/2 over TLS, by ALPN")
    crt, key = certificate(folder)
    files = f'cert = "{crt}"\nkey = "{key}"\n'
    demo.change(f"[server.tls]\n{files}\n[server.admin-tls]\n{files}")
    base = f"https://localhost:{demo.port}"
    trusts = ["--http2", "--cacert", str(crt)]
    models = ["curl", "-s", "-o", "/dev/null", *trusts, f"{base}/v1/models"]
    until("it is spoken", lambda: subprocess.run(models).returncode == 0)
    # Each client sets the protocols it offers on its own.
    trusted = lambda: ssl.create_default_context(cafile=crt)
    over_tls = lambda name: metrics(name, f"https://{demo.admin}", trusted())
    asyncio.run(with_httpx(base, trusted(), over_tls))
    with_h2(base, trusted(), over_tls)
    admin = subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", *trusts, f"https://{demo.admin}/admin/config"],
        capture_output=True,
        text=True,
    )
    check("curl: the admin pages", admin.stdout == "2 200", admin.stdout + admin.stderr)
    with_curl(base, trusts, folder)
    with_h2load(base, folder)


if __name__ == "__main__":
    main()
