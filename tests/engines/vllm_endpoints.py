#!/usr/bin/env python3
"""Calls every serving path of a real engine directly and through Conductor, and compares the statuses.

    python tests/engines/vllm_endpoints.py --engine http://127.0.0.1:8000 --router http://127.0.0.1:8080 [--model NAME]

The paths are those of the engine's `/openapi.json`, and those of Conductor's that the engine does not list.
Both statuses must be equal, also if the engine refuses the request.
Each POST request has a plausible body for its path. Paths that can stream are called a second time with `stream`.
The engine's administration paths are called only through Conductor, which must refuse them.
Needs only Python's standard library.
Exits with 1 if a status differs without an explanation below, or if Conductor neither serves nor refuses a path.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

# Conductor's own pages, which are never forwarded to an engine.
CONDUCTOR_PAGES = {
    "/health", "/ping", "/version", "/load", "/metrics", "/readyz", "/openapi.json", "/v1/models", "/v1/models/{}",
}
# Reasons for a difference in status, by path.
EXPLAINED_DIFFERENCES = {
    "/readyz": "Conductor's own page, which engines do not have",
    "/v1/models/{}": "Conductor's own page, which vLLM does not have",
    "/v1/realtime": "a WebSocket, which vLLM has only for audio models; see vllm_realtime.py",
    "/load": "vLLM has it only with --enable-server-load-tracking",
}
# Creates the stored response that the paths below it refer to.
RESPONSES_PATH = "/v1/responses"

CHAT = [{"role": "user", "content": "hello"}]
MESSAGES = {"messages": CHAT, "max_tokens": 4}
GENERATED = {"request_id": "r1", "choices": [{"index": 0, "token_ids": [5, 6, 7], "finish_reason": "stop"}]}
BODIES = {
    "/v1/chat/completions": MESSAGES,
    "/v1/chat/completions/batch": {"messages": [CHAT, CHAT], "max_tokens": 4},
    "/v1/chat/completions/render": {"messages": CHAT},
    "/v1/completions": {"prompt": "hello", "max_tokens": 4},
    "/v1/completions/render": {"prompt": "hello"},
    "/v1/messages/render": MESSAGES,
    "/v1/responses/render": {"input": "hello"},
    "/v1/chat/completions/derender": {"generate_response": GENERATED},
    "/v1/completions/derender": {"generate_responses": [GENERATED]},
    "/v1/responses": {"input": "hello", "max_output_tokens": 16},
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": {"messages": CHAT},
    "/v1/embeddings": {"input": "hello"},
    "/v1/systemone": {"state": "It rains.", "questions": {"wet": ["yes", "no"]}},
    "/generative_scoring": {"query": "It rains. Is it wet?", "items": ["yes", "no"], "label_token_ids": [1, 2]},
    "/rerank": {"query": "rain", "documents": ["wet", "dry"]},
    "/v1/rerank": {"query": "rain", "documents": ["wet", "dry"]},
    "/v2/rerank": {"query": "rain", "documents": ["wet", "dry"]},
    "/score": {"text_1": "rain", "text_2": "wet"},
    "/v1/score": {"text_1": "rain", "text_2": "wet"},
    "/pooling": {"input": "hello"},
    "/classify": {"input": "hello"},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [5, 6, 7]},
    "/invocations": {"prompt": "hello", "max_tokens": 4},
    "/inference/v1/generate": {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 4}},
    "/generate": {"text": "hello", "sampling_params": {"max_new_tokens": 4}},
    "/v1/audio/speech": {"input": "hello", "voice": "alloy"},
    "/v1/images/generations": {"prompt": "rain"},
}
STREAMING_PATHS = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/invocations",
    "/inference/v1/generate", "/generate", "/v1/audio/transcriptions", "/v1/audio/translations",
}
# Field, file name and type of the file in a multipart body, by path.
FORM_FILES = {
    "/v1/audio/transcriptions": ("file", "a.wav", "audio/wav"),
    "/v1/audio/translations": ("file", "a.wav", "audio/wav"),
    "/v1/images/edits": ("image", "a.png", "image/png"),
    "/v1/images/variations": ("image", "a.png", "image/png"),
}
# One second of silence: 8 kHz, 8 bits.
SILENT_WAV = b"RIFF" + (36 + 8000).to_bytes(4, "little") + b"WAVEfmt " + bytes([16, 0, 0, 0, 1, 0, 1, 0]) \
    + (8000).to_bytes(4, "little") * 2 + bytes([1, 0, 8, 0]) + b"data" + (8000).to_bytes(4, "little") + b"\x80" * 8000


def call(base, method, path, body=None, content_type="application/json", timeout=120):
    """Returns a response's status and body."""
    headers = {"content-type": content_type} if body is not None else {}
    request = urllib.request.Request(base + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        return f"no response: {error}", b""


def error_code(body):
    """Returns the `code` of a JSON error body; None for any other body."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return None
    return error.get("code") if isinstance(error, dict) else None


def multipart_body(path, model, stream):
    """Returns a multipart body with a file, and its content type."""
    name, filename, file_type = FORM_FILES[path]
    fields = {"model": model, "prompt": "rain", **({"stream": "true"} if stream else {})}
    boundary = "conductor-endpoints"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    head = f"--{boundary}\r\n{disposition}\r\nContent-Type: {file_type}\r\n\r\n"
    body = b"".join(parts) + head.encode() + SILENT_WAV + f"\r\n--{boundary}--\r\n".encode()
    return body, f'multipart/form-data; boundary="{boundary}"'


def openapi_methods(base):
    """Returns the methods of each path in a server's OpenAPI description."""
    status, body = call(base, "GET", "/openapi.json")
    if status != 200:
        sys.exit(f"{base}/openapi.json returned {status}")
    paths = json.loads(body)["paths"]
    # The engine and Conductor have different names for path parameters.
    return {
        re.sub(r"{[^}]*}", "{}", path): sorted(method.upper() for method in methods) for path, methods in paths.items()
    }


def is_refused(router, method, path):
    """Returns whether Conductor refuses the path as engine administration."""
    status, body = call(router, method, path.replace("{}", "none"), b"{}" if method == "POST" else None)
    return status == 403 and error_code(body) == "engine_administration"


class ResultTable:
    """Table of results with one row for each call."""

    def __init__(self):
        self.rows = []
        self.difference_count = 0

    def add(self, path, direct, through, same):
        self.difference_count += same == "NO"
        self.rows.append((path, str(direct), str(through), same))

    def show(self):
        head = ("path", "direct", "through Conductor", "same")
        widths = [max(len(row[column]) for row in [head, *self.rows]) for column in range(4)]
        for row in [head, *self.rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def request_variants(path, model):
    """Yields the requests to send to a path: name of the variant, body, content type."""
    variants = [("", False)] + ([(" (stream)", True)] if path in STREAMING_PATHS else [])
    for name, stream in variants:
        if path in FORM_FILES:
            yield name, *multipart_body(path, model, stream)
        else:
            body = {"model": model, **BODIES.get(path, {}), **({"stream": True} if stream else {})}
            yield name, json.dumps(body).encode(), "application/json"


def create_response(base, model):
    """Returns the id of a new stored response, or `resp_none` if the engine does not store responses."""
    request = {"model": model, **BODIES[RESPONSES_PATH], "store": True}
    _, body = call(base, "POST", RESPONSES_PATH, json.dumps(request).encode())
    try:
        return json.loads(body)["id"]
    except (ValueError, KeyError, TypeError):
        return "resp_none"


def compare(table, arguments, method, path):
    """Calls a path directly and through Conductor, and adds a row for each variant of its request."""
    model = arguments.model
    variants = request_variants(path, model) if method == "POST" else [("", None, None)]
    for name, request_body, content_type in variants:
        responses = []
        for base in (arguments.engine, arguments.router):
            filled = path
            if "{}" in path:
                has_response_id = path.startswith(RESPONSES_PATH)
                value = create_response(base, model) if has_response_id else urllib.parse.quote(model)
                filled = path.replace("{}", value)
            responses.append(call(base, method, filled, request_body, content_type))
        (direct, _), (through, body) = responses
        same = "yes"
        if direct != through:
            same = f"explained: {EXPLAINED_DIFFERENCES[path]}" if path in EXPLAINED_DIFFERENCES else "NO"
        elif through == 404 and error_code(body) == "unknown_path" and path not in CONDUCTOR_PAGES:
            # Both are 404, but Conductor's 404 is its own and not the engine's.
            same = "NO"
        elif through == 404 and error_code(body) == "unknown_path":
            same = "yes (neither has it)"
        table.add(f"{method} {path}{name}", direct, through, same)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True, help="URL of the engine")
    parser.add_argument("--router", required=True, help="URL of a Conductor whose only worker is that engine")
    parser.add_argument("--model", help="model name; default: the first one in the engine's list")
    arguments = parser.parse_args()
    arguments.engine, arguments.router = arguments.engine.rstrip("/"), arguments.router.rstrip("/")
    if not arguments.model:
        _, models = call(arguments.engine, "GET", "/v1/models")
        arguments.model = json.loads(models)["data"][0]["id"]
    engine, router = openapi_methods(arguments.engine), openapi_methods(arguments.router)
    table, administration = ResultTable(), []
    listed = {**engine, **{path: methods for path, methods in router.items() if path not in engine}}
    for path, methods in listed.items():
        for method in methods:
            if path in engine and path not in router and is_refused(arguments.router, method, path):
                administration.append(f"{method} {path}")
            elif method in ("GET", "POST", "DELETE"):
                compare(table, arguments, method, path)
    table.show()
    print(f"\nnot forwarded, 403 `engine_administration` ({len(administration)}):")
    for path in administration:
        print(f"  {path}")
    print(f"\n{len(table.rows)} calls, {table.difference_count} differences without an explanation")
    return 1 if table.difference_count else 0


if __name__ == "__main__":
    sys.exit(main())
