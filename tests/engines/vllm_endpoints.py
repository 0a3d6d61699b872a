#!/usr/bin/env python3
"""Calls every serving path of a real engine directly and through Conductor, and compares the statuses.

    python tests/engines/vllm_endpoints.py --engine http://127.0.0.1:8000 --router http://127.0.0.1:8080 [--model NAME]

The paths are those of the engine's `/openapi.json`, and those of Conductor's that the engine does not list: both must answer alike,
also where the engine refuses. Each gets a sensible body, streamed too where it streams. Paths of the engines' administration are
called through Conductor alone, which must refuse them. Needs nothing but the standard library. Exits with 1 when a status differs
that is not explained below, or when Conductor neither serves nor refuses a path.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

# Conductor's own pages: it answers for itself, whatever the engine says of itself.
OWN = {"/health", "/ping", "/version", "/load", "/metrics", "/readyz", "/openapi.json", "/v1/models", "/v1/models/{}"}
# Why a status may differ, by path.
EXPLAINED = {
    "/readyz": "a page of Conductor's own, which engines do not have",
    "/v1/models/{}": "a page of Conductor's own, which vLLM does not have",
    "/v1/realtime": "a WebSocket, which vLLM has only for models that hear; vllm_realtime.py opens it",
    "/load": "vLLM has it only with --enable-server-load-tracking",
}
# What makes the resource of the paths below it.
MADE_BY = "/v1/responses"

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
STREAMED = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/invocations", "/inference/v1/generate", "/generate",
    "/v1/audio/transcriptions", "/v1/audio/translations",
}
FORMS = {
    "/v1/audio/transcriptions": ("file", "a.wav", "audio/wav"),
    "/v1/audio/translations": ("file", "a.wav", "audio/wav"),
    "/v1/images/edits": ("image", "a.png", "image/png"),
    "/v1/images/variations": ("image", "a.png", "image/png"),
}
# A second of silence: 8 kHz, 8 bits.
WAV = b"RIFF" + (36 + 8000).to_bytes(4, "little") + b"WAVEfmt " + bytes([16, 0, 0, 0, 1, 0, 1, 0]) \
    + (8000).to_bytes(4, "little") * 2 + bytes([1, 0, 8, 0]) + b"data" + (8000).to_bytes(4, "little") + b"\x80" * 8000


def call(base, method, path, body=None, content_type="application/json", timeout=120):
    """Status and answer."""
    request = urllib.request.Request(base + path, body, {"content-type": content_type} if body is not None else {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        return f"no answer: {error}", b""


def code(answer):
    """The router's own error code, where there is one."""
    try:
        error = json.loads(answer).get("error")
    except (ValueError, AttributeError):
        return None
    return error.get("code") if isinstance(error, dict) else None


def form(path, model, stream):
    """A multipart body with a file."""
    name, filename, kind = FORMS[path]
    fields = {"model": model, "prompt": "rain", **({"stream": "true"} if stream else {})}
    boundary = "conductor-endpoints"
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in fields.items()]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}\r\n\r\n'
    body = b"".join(parts) + head.encode() + WAV + f"\r\n--{boundary}--\r\n".encode()
    return body, f'multipart/form-data; boundary="{boundary}"'


def paths_of(base):
    """The methods of each path that is described."""
    status, answer = call(base, "GET", "/openapi.json")
    if status != 200:
        sys.exit(f"{base}/openapi.json answers {status}")
    paths = json.loads(answer)["paths"]
    # Parameters have names of their own on either side.
    return {re.sub(r"{[^}]*}", "{}", path): sorted(method.upper() for method in methods) for path, methods in paths.items()}


def is_refused(router, method, path):
    """Whether Conductor says that the path is administration, whatever resource it names."""
    status, answer = call(router, method, path.replace("{}", "none"), b"{}" if method == "POST" else None)
    return status == 403 and code(answer) == "engine_administration"


class Table:
    """One row a call."""

    def __init__(self):
        self.rows = []
        self.bad = 0

    def add(self, path, direct, through, same):
        self.bad += same == "NO"
        self.rows.append((path, str(direct), str(through), same))

    def show(self):
        head = ("path", "direct", "through Conductor", "same")
        widths = [max(len(row[column]) for row in [head, *self.rows]) for column in range(4)]
        for row in [head, *self.rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def bodies(path, model):
    """What is sent to a path: name of the variant, body, type."""
    variants = [("", False)] + ([(" (stream)", True)] if path in STREAMED else [])
    for name, stream in variants:
        if path in FORMS:
            yield name, *form(path, model, stream)
        else:
            body = {"model": model, **BODIES.get(path, {}), **({"stream": True} if stream else {})}
            yield name, json.dumps(body).encode(), "application/json"


def made(base, model):
    """The id of a response that the engine keeps, as far as it does."""
    _, answer = call(base, "POST", MADE_BY, json.dumps({"model": model, **BODIES[MADE_BY], "store": True}).encode())
    try:
        return json.loads(answer)["id"]
    except (ValueError, KeyError, TypeError):
        return "resp_none"


def compare(table, arguments, method, path):
    """Calls a path both ways."""
    model = arguments.model
    variants = bodies(path, model) if method == "POST" else [("", None, None)]
    for name, body, content_type in variants:
        answers = []
        for base in (arguments.engine, arguments.router):
            filled = path
            if "{}" in path:
                filled = path.replace("{}", made(base, model) if path.startswith(MADE_BY) else urllib.parse.quote(model))
            answers.append(call(base, method, filled, body, content_type))
        (direct, _), (through, answer) = answers
        same = "yes"
        if direct != through:
            same = f"explained: {EXPLAINED[path]}" if path in EXPLAINED else "NO"
        elif through == 404 and code(answer) == "unknown_path" and path not in OWN:
            # Equal by chance: the engine has nothing there, and neither has Conductor.
            same = "NO"
        elif through == 404 and code(answer) == "unknown_path":
            same = "yes (neither has it)"
        table.add(f"{method} {path}{name}", direct, through, same)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True, help="the engine's URL")
    parser.add_argument("--router", required=True, help="the URL of a Conductor whose only worker is that engine")
    parser.add_argument("--model", help="the model's name; otherwise the first that the engine lists")
    arguments = parser.parse_args()
    arguments.engine, arguments.router = arguments.engine.rstrip("/"), arguments.router.rstrip("/")
    if not arguments.model:
        _, models = call(arguments.engine, "GET", "/v1/models")
        arguments.model = json.loads(models)["data"][0]["id"]
    engine, router = paths_of(arguments.engine), paths_of(arguments.router)
    table, administration = Table(), []
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
    print(f"\n{len(table.rows)} calls, {table.bad} of them different without an explanation")
    return 1 if table.bad else 0


if __name__ == "__main__":
    sys.exit(main())
