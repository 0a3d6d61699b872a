#!/usr/bin/env python3
"""Tests HTTP/2 of `conductor demo` with `httpx` and `h2` of Python, curl and h2load.

    pip install 'httpx[http2]'; apt-get install curl openssl nghttp2-client
    cargo build -p conductor
    python tests/clients/http2_client.py --conductor target/debug/conductor

The script changes the configuration file of the running demo twice. First it enables `[server.http2] prior-knowledge`.
Then it enables `[server.tls]` and `[server.admin-tls]` with a certificate made by openssl. Both parts check the same:
plain requests, streams, 100 concurrent streams on one connection, a cancelled stream, errors, and HTTP/1.1 on the same
port. The first failed check ends the script with exit code 1.
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
    """A running `conductor demo` and its configuration file, which it reloads after each change."""

    def __init__(self, binary, port):
        self.port = port
        command = [binary, "demo", "--no-traffic", "--workers", "2", "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        config_path = admin = None
        for line in self.process.stdout:
            config_path = re.search(r"^\s+(/\S+conductor\.toml)$", line) or config_path
            admin = re.search(r"admin=\S*?(127\.0\.0\.1:\d+)", line) or admin
            if " ready " in line:
                break
        if config_path is None or admin is None:
            raise SystemExit("the demo did not start, or did not print its configuration path and admin address")
        self.config_file, self.admin = pathlib.Path(config_path.group(1)), admin.group(1)
        self.original_config = self.config_file.read_text()
        # Discards the remaining output, so that the demo does not block on a full pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def add_config(self, tables):
        """Replaces the configuration file by the original text and these tables."""
        new_file = self.config_file.with_suffix(".fresh")
        new_file.write_text(f"{self.original_config}\n{tables}")
        new_file.rename(self.config_file)

    def stop(self):
        """Stops the demo with SIGINT and waits until it has exited."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


def make_certificate(folder):
    """Makes a self-signed certificate, and returns the paths of the certificate and of its key."""
    crt, key = folder / "router.crt", folder / "router.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*make, *subject, "-keyout", key, "-out", crt], check=True, capture_output=True)
    return crt, key


def check(claim, holds, details=""):
    """Prints the claim and the details. Exits with code 1 if the claim does not hold."""
    if not holds:
        raise SystemExit(f"FAILED: {claim}: {details}")
    print(f"  {claim}: {details}" if details else f"  {claim}")


def wait_until(claim, condition):
    """Waits until the condition is true. Exits with code 1 after 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within 30 s: {claim}")
        time.sleep(0.1)


def chat(stream, tokens=16):
    """Returns the body of a chat completion request."""
    message = {"role": "user", "content": "count"}
    return {"model": MODEL, "stream": stream, "max_tokens": tokens, "messages": [message]}


def metric(text, name):
    """Returns the value of a series in the text of /metrics, or 0 without one."""
    values = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(values[0]) if values else 0.0


async def check_httpx(base, verify, metrics):
    # Without TLS, httpx uses HTTP/2 with prior knowledge only if HTTP/1.1 is disabled.
    async with httpx.AsyncClient(base_url=base, http1=False, http2=True, verify=verify, timeout=60) as client:
        response = await client.get("/v1/models")
        check("httpx: the model list has status 200", response.status_code == 200, response.http_version)
        response = await client.post("/v1/chat/completions", json=chat(False))
        content = response.json()["choices"][0]["message"]["content"]
        check("httpx: a chat completion has text", content != "", response.http_version)
        headers = {"connection", "transfer-encoding", "keep-alive"} & set(response.headers)
        check("httpx: a response has no connection-specific headers", not headers)

        async def read_events():
            async with client.stream("POST", "/v1/chat/completions", json=chat(True)) as response:
                return [line async for line in response.aiter_lines() if line.startswith("data:")]

        lines = await read_events()
        check("httpx: a stream ends with [DONE]", lines[-1] == "data: [DONE]", f"{len(lines)} events")
        connections = 'conductor_edge_connections_total{listener="clients",protocol="h2"}'
        before = metrics(connections)
        all_lines = await asyncio.gather(*(read_events() for _ in range(STREAMS)))
        complete = sum(lines[-1] == "data: [DONE]" for lines in all_lines)
        after = metrics(connections)
        is_shared = complete == STREAMS and before == after
        check(f"httpx: {STREAMS} concurrent streams share a connection", is_shared, f"{complete} complete")

        response = await client.post("/v1/chat/completions", json={"model": "none", "messages": []})
        check("httpx: an unknown model gets 404", response.status_code == 404, response.json()["error"]["code"])
        response = await client.get("/v1/realtime?model=mock")
        is_refused = response.status_code == 426
        check("httpx: a WebSocket request over HTTP/2 gets 426", is_refused, response.json()["error"]["code"])


def check_h2(base, context, metrics):
    """Checks that RST_STREAM ends a request at the worker, and that the connection still works.

    httpx sends no RST_STREAM for a stream that the client closes early, so this check uses the package h2.
    """
    url = httpx.URL(base)
    connection = socket.create_connection((url.host, url.port), timeout=60)
    if context is not None:
        context.set_alpn_protocols(["h2"])
        connection = context.wrap_socket(connection, server_hostname=url.host)
    state = h2.connection.H2Connection()
    state.initiate_connection()

    def send_request(method, path, body):
        stream = state.get_next_available_stream_id()
        authority = f"{url.host}:{url.port}"
        headers = [(":method", method), (":scheme", url.scheme), (":path", path), (":authority", authority)]
        state.send_headers(stream, headers, end_stream=not body)
        if body:
            state.send_data(stream, body, end_stream=True)
        connection.sendall(state.data_to_send())
        return stream

    def wait_for_event(event_class, stream):
        while True:
            for event in state.receive_data(connection.recv(65536)):
                if isinstance(event, event_class) and event.stream_id == stream:
                    return event
            connection.sendall(state.data_to_send())

    cancelled = 'conductor_requests_total{pool="demo",outcome="client-left"}'
    before = metrics(cancelled)
    stream = send_request("POST", "/v1/chat/completions", json.dumps(chat(True, 4_000)).encode())
    wait_for_event(h2.events.DataReceived, stream)
    state.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    connection.sendall(state.data_to_send())
    wait_until("the cancelled request ends", lambda: metrics(cancelled) == before + 1)
    check("h2: RST_STREAM ends the request", True)
    stream = send_request("GET", "/v1/models", b"")
    headers = dict(wait_for_event(h2.events.ResponseReceived, stream).headers)
    status = headers.get(":status", headers.get(b":status"))
    check("h2: the connection serves requests after RST_STREAM", status in ("200", b"200"), status)
    connection.close()


def check_curl(base, options, folder):
    def curl(*args):
        command = ["curl", "-sS", "-w", "\n%{http_version} %{http_code}", *options, *args]
        completed = subprocess.run(command, capture_output=True, text=True)
        body, _, status_line = completed.stdout.rpartition("\n")
        return body, status_line, completed.stderr

    body, status_line, error = curl(f"{base}/v1/models")
    check("curl: the model list has status 200", status_line == "2 200", status_line + error)
    post = ["-H", "content-type: application/json", "-d"]
    body, status_line, error = curl(f"{base}/v1/chat/completions", *post, json.dumps(chat(False)))
    check("curl: a chat completion has choices", status_line == "2 200" and "choices" in body, status_line + error)
    body, status_line, error = curl("-N", f"{base}/v1/chat/completions", *post, json.dumps(chat(True)))
    is_complete = status_line == "2 200" and body.strip().endswith("data: [DONE]")
    check("curl: a stream ends with [DONE]", is_complete, status_line + error)
    many_headers = [text for number in range(80) for text in ("-H", f"x-{number}: v")]
    body, status_line, error = curl(*many_headers, f"{base}/v1/models")
    is_refused = status_line == "2 431" and "headers_too_large" in body
    check("curl: too many headers get 431", is_refused, status_line + error)
    long_body = folder / "long.json"
    long_body.write_bytes(b" " * (40 << 20))
    body, status_line, error = curl(f"{base}/v1/completions", "--data-binary", f"@{long_body}")
    is_refused = status_line == "2 413" and "body_too_large" in body
    check("curl: a body over the limit gets 413", is_refused, status_line + error)
    options.clear()
    body, status_line, error = curl("--http1.1", "-k", f"{base}/v1/models")
    check("curl: HTTP/1.1 works on the same port", status_line == "1.1 200", status_line + error)


def check_h2load(base, folder):
    body = folder / "body.json"
    body.write_text(json.dumps(chat(True)))
    load = ["h2load", "-n", "2000", "-c", "4", "-m", str(STREAMS), "-d", body, "-H", "content-type: application/json"]
    completed = subprocess.run([*load, f"{base}/v1/chat/completions"], capture_output=True, text=True)
    lines = completed.stdout.splitlines()
    summary = [line for line in lines if re.match("finished|requests:|status|Application", line)]
    claim = f"h2load: 4 connections with {STREAMS} streams each complete 2000 requests"
    check(claim, "2000 2xx" in completed.stdout, "\n    ".join(["", *summary]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--conductor", required=True)
    parser.add_argument("--port", type=int, default=18443)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        demo = Demo(options.conductor, options.port)
        try:
            run(demo, folder)
        finally:
            demo.stop()
    print("all checks passed")


def run(demo, folder):
    def metrics(name, base=f"http://{demo.admin}", context=None):
        text = urllib.request.urlopen(f"{base}/metrics", context=context).read().decode()
        return metric(text, name)

    print("HTTP/2 with prior knowledge")
    demo.add_config("[server.http2]\nprior-knowledge = true\n")
    base, prior_knowledge = f"http://127.0.0.1:{demo.port}", ["--http2-prior-knowledge"]
    get_models = ["curl", "-s", "-o", "/dev/null", *prior_knowledge, f"{base}/v1/models"]
    wait_until("the listener accepts HTTP/2 with prior knowledge", lambda: subprocess.run(get_models).returncode == 0)
    asyncio.run(check_httpx(base, True, metrics))
    check_h2(base, None, metrics)
    check_curl(base, prior_knowledge, folder)
    check_h2load(base, folder)

    print("HTTP/2 over TLS, by ALPN")
    crt, key = make_certificate(folder)
    files = f'cert = "{crt}"\nkey = "{key}"\n'
    demo.add_config(f"[server.tls]\n{files}\n[server.admin-tls]\n{files}")
    base = f"https://localhost:{demo.port}"
    tls_options = ["--http2", "--cacert", str(crt)]
    get_models = ["curl", "-s", "-o", "/dev/null", *tls_options, f"{base}/v1/models"]
    wait_until("the listener accepts HTTP/2 over TLS", lambda: subprocess.run(get_models).returncode == 0)
    # A context for each client, since each client sets its own list of ALPN protocols.
    tls_context = lambda: ssl.create_default_context(cafile=crt)
    tls_metrics = lambda name: metrics(name, f"https://{demo.admin}", tls_context())
    asyncio.run(check_httpx(base, tls_context(), tls_metrics))
    check_h2(base, tls_context(), tls_metrics)
    status_line = ["-w", "%{http_version} %{http_code}"]
    admin = subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", *status_line, *tls_options, f"https://{demo.admin}/admin/config"],
        capture_output=True,
        text=True,
    )
    check("curl: the admin pages use HTTP/2", admin.stdout == "2 200", admin.stdout + admin.stderr)
    check_curl(base, tls_options, folder)
    check_h2load(base, folder)


if __name__ == "__main__":
    main()
