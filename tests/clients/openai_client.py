#!/usr/bin/env python3
"""Runs the public `openai` package, and curl, through `conductor demo` as it is started.

    pip install openai
    cargo build -p conductor
    python tests/clients/openai_client.py --conductor target/debug/conductor

First without keys: chat, streams, completions, embeddings, responses, models. Then clients are written into the demo's own
configuration file while it runs: a wrong key is openai.AuthenticationError, a model that is not the client's NotFoundError, a limit
RateLimitError, and the package's own retry gets through by the Retry-After it is told. Exits with 1 at the first thing that is
otherwise. tests/clients/README.md tells of load tools.
"""

import argparse
import hashlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import openai

KEY, OTHER = "sk-of-the-client", "sk-of-the-other"
MODEL = "mock"


class Demo:
    """A running `conductor demo`, and the configuration file that it watches."""

    def __init__(self, binary, port):
        self.base = f"http://127.0.0.1:{port}"
        command = [binary, "demo", "--no-traffic", "--workers", "2", "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = None
        for line in self.process.stdout:
            found = re.search(r"^\s+(/\S+conductor\.toml)$", line) or found
            if " ready " in line:
                break
        if found is None:
            raise SystemExit("the demo did not start, or did not say where its configuration is")
        self.file = pathlib.Path(found.group(1))
        self.plain = self.file.read_text()
        # Nobody reads on: it must not block on a full pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def add_clients(self):
        sha256 = lambda key: hashlib.sha256(key.encode()).hexdigest()
        clients = (
            f'\n[clients.one]\nkey-sha256 = ["{sha256(KEY)}"]\nrequests-per-minute = 60\n'
            f'\n[clients.other]\nkey-sha256 = ["{sha256(OTHER)}"]\nmodels = ["none-*"]\n'
        )
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(self.plain + clients)
        fresh.rename(self.file)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if curl(f"{self.base}/v1/models")[0] == 401:
                return
            time.sleep(0.05)
        raise SystemExit("the clients are not in force")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def curl(url, *more):
    """Status and body, by curl itself."""
    command = ["curl", "-s", "-w", "\n%{http_code}", url, *more]
    body, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rsplit("\n", 1)
    return int(status), body


def expect(what, is_so, seen=""):
    print(("ok    " if is_so else "WRONG ") + what + (f": {seen}" if not is_so else ""))
    if not is_so:
        raise SystemExit(1)


def refused(what, kind, ask):
    try:
        seen = ask()
    except openai.APIError as error:
        expect(what, type(error) is kind, repr(error))
        return error
    expect(what, False, f"it was answered: {seen}")


def use_everything(client):
    messages = [{"role": "user", "content": "Where does this go?"}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
    expect("a chat answer has text and usage", chat.choices[0].message.content and chat.usage.completion_tokens == 8, chat)
    stream = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    expect("a chat stream has as much text", len(text.split()) == len(chat.choices[0].message.content.split()), (text, chat))
    expect("and usage at its end", chunks[-1].usage and chunks[-1].usage.completion_tokens == 8, chunks[-1])
    completion = client.completions.create(model=MODEL, prompt="The quick brown fox", max_tokens=8)
    expect("a completion has text", bool(completion.choices[0].text), completion)
    ids = client.completions.create(model=MODEL, prompt=list(range(100, 140)), max_tokens=2)
    expect("a prompt of token ids is counted as it is", ids.usage.prompt_tokens == 40, ids)
    streamed = list(client.completions.create(model=MODEL, prompt="The quick", max_tokens=8, stream=True))
    expect("a completion streams", len(streamed) >= 8, len(streamed))
    embeddings = client.embeddings.create(model=MODEL, input=["one", "two"])
    expect("embeddings come for each input", len(embeddings.data) == 2, embeddings)
    response = client.responses.create(model=MODEL, input="Where does this go?", max_output_tokens=8)
    expect("a response has text", bool(response.output_text), response)
    events = [event.type for event in client.responses.create(model=MODEL, input="Where?", max_output_tokens=4, stream=True)]
    expect("a response streams to its end", events[-1] in ("response.completed", "response.incomplete"), events)
    models = [model.id for model in client.models.list()]
    expect("the models are listed", MODEL in models, models)
    expect("and one by one", client.models.retrieve(MODEL).id == MODEL)
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=2)
    expect("answers name the request", bool(raw.headers.get("x-request-id")), dict(raw.headers))
    refused("no such model", openai.NotFoundError, lambda: client.models.retrieve("nothing"))
    refused("a body that is none", openai.BadRequestError, lambda: client.post("/chat/completions", body=[1], cast_to=object))


def with_keys(demo):
    client = lambda key, retries=0: openai.OpenAI(api_key=key, base_url=f"{demo.base}/v1", max_retries=retries)
    ask = lambda key, retries=0: client(key, retries).completions.create(model=MODEL, prompt="hi", max_tokens=1)
    wrong = refused("a wrong key", openai.AuthenticationError, lambda: ask("sk-wrong"))
    expect("it is told so", wrong.code == "invalid_api_key" and "sk-wrong" not in str(wrong), wrong)
    huge = lambda: client("sk-wrong").completions.create(model=MODEL, prompt="x" * 900_000)
    refused("a wrong key with a long body", openai.AuthenticationError, huge)
    stranger = refused("a model of others", openai.NotFoundError, lambda: ask(OTHER))
    expect("does not exist", stranger.code == "model_not_found", stranger)
    expect("and is not listed", list(client(OTHER).models.list()) == [])
    raw = client(KEY).completions.with_raw_response.create(model=MODEL, prompt="hi", max_tokens=1)
    expect("a client is told its limit", raw.headers.get("x-ratelimit-limit-requests") == "60", dict(raw.headers))
    limited = None
    for _ in range(120):
        try:
            ask(KEY)
        except openai.RateLimitError as error:
            limited = error
            break
    expect("over the limit", limited is not None, "120 requests passed")
    after = limited.response.headers
    expect("it is told when to come back", 0 < int(after["retry-after"]) <= 2 and limited.code == "rate_limit_exceeded", dict(after))
    began = time.monotonic()
    ask(KEY, retries=3)
    expect("the package's own retry gets through", time.monotonic() - began < 10, time.monotonic() - began)
    status, body = curl(
        f"{demo.base}/v1/completions", "-H", f"x-api-key: {OTHER}", "-H", "content-type: application/json",
        "-d", json.dumps({"model": MODEL, "prompt": "hi"}),
    )
    expect("curl with x-api-key", status == 404 and json.loads(body)["error"]["code"] == "model_not_found", (status, body))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/debug/conductor")
    parser.add_argument("--port", type=int, default=18080)
    options = parser.parse_args()
    demo = Demo(options.conductor, options.port)
    try:
        use_everything(openai.OpenAI(api_key="unused", base_url=f"{demo.base}/v1", max_retries=0))
        status, body = curl(f"{demo.base}/v1/models")
        expect("curl lists models", status == 200 and json.loads(body)["object"] == "list", (status, body))
        demo.add_clients()
        with_keys(demo)
        with urllib.request.urlopen(f"http://127.0.0.1:{options.port + 1}/metrics") as page:
            metrics = page.read().decode()
        expect("what clients did is counted", 'conductor_client_refusals_total{client="one",reason="requests"}' in metrics)
    finally:
        code = demo.stop()
    expect("the router ends in order", code == 0, code)


if __name__ == "__main__":
    sys.exit(main())
