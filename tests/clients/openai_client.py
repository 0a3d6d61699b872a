#!/usr/bin/env python3
"""Tests the public `openai` package and curl against `conductor demo`.

    pip install openai
    cargo build -p conductor
    python tests/clients/openai_client.py --conductor target/debug/conductor

The first part needs no API key: chat, streams, completions, embeddings, responses and models. The second part adds
clients with API keys to the configuration file of the running demo. It expects AuthenticationError for a wrong key,
NotFoundError for a model that the client may not use, and RateLimitError over the rate limit. A request with the
package's own retries succeeds after the delay of the Retry-After header. The first failed check ends the script with
exit code 1. tests/clients/README.md describes load tools.
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

KEY, OTHER_KEY = "sk-of-the-client", "sk-of-the-other"
MODEL = "mock"


class Demo:
    """A running `conductor demo` and its configuration file, which it reloads after each change."""

    def __init__(self, binary, port):
        self.base = f"http://127.0.0.1:{port}"
        command = [binary, "demo", "--no-traffic", "--workers", "2", "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        config_path = None
        for line in self.process.stdout:
            config_path = re.search(r"^\s+(/\S+conductor\.toml)$", line) or config_path
            if " ready " in line:
                break
        if config_path is None:
            raise SystemExit("the demo did not start, or did not print the path of its configuration file")
        self.config_file = pathlib.Path(config_path.group(1))
        self.original_config = self.config_file.read_text()
        # Discards the remaining output, so that the demo does not block on a full pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def add_clients(self):
        """Adds two clients to the configuration file and waits until requests need an API key."""
        sha256 = lambda key: hashlib.sha256(key.encode()).hexdigest()
        clients = (
            f'\n[clients.one]\nkey-sha256 = ["{sha256(KEY)}"]\nrequests-per-minute = 60\n'
            f'\n[clients.other]\nkey-sha256 = ["{sha256(OTHER_KEY)}"]\nmodels = ["none-*"]\n'
        )
        new_file = self.config_file.with_suffix(".fresh")
        new_file.write_text(self.original_config + clients)
        new_file.rename(self.config_file)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if curl(f"{self.base}/v1/models")[0] == 401:
                return
            time.sleep(0.05)
        raise SystemExit("the router did not apply the configuration with clients within 30 s")

    def stop(self):
        """Stops the demo with SIGTERM and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def curl(url, *options):
    """Runs curl and returns the status code and the body of the response."""
    command = ["curl", "-s", "-w", "\n%{http_code}", url, *options]
    body, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rsplit("\n", 1)
    return int(status), body


def expect(claim, holds, details=""):
    """Prints the result of a check. Exits with code 1 and prints the details if the claim does not hold."""
    print(("ok    " if holds else "WRONG ") + claim + (f": {details}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def expect_error(claim, error_class, send):
    """Sends a request that must fail with an error of this class, and returns the error."""
    try:
        response = send()
    except openai.APIError as error:
        expect(claim, type(error) is error_class, repr(error))
        return error
    expect(claim, False, f"the request succeeded: {response}")


def check_endpoints(client):
    """Checks every endpoint without an API key."""
    messages = [{"role": "user", "content": "Where does this go?"}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
    content = chat.choices[0].message.content
    expect("a chat completion has text and usage", content and chat.usage.completion_tokens == 8, chat)
    stream = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    is_same_length = len(text.split()) == len(content.split())
    expect("a chat stream has as many words as the plain response", is_same_length, (text, chat))
    usage = chunks[-1].usage
    expect("a chat stream ends with usage", usage and usage.completion_tokens == 8, chunks[-1])
    completion = client.completions.create(model=MODEL, prompt="The quick brown fox", max_tokens=8)
    expect("a completion has text", bool(completion.choices[0].text), completion)
    ids = client.completions.create(model=MODEL, prompt=list(range(100, 140)), max_tokens=2)
    expect("a prompt of 40 token ids counts as 40 prompt tokens", ids.usage.prompt_tokens == 40, ids)
    streamed = list(client.completions.create(model=MODEL, prompt="The quick", max_tokens=8, stream=True))
    expect("a completion stream has a chunk for each token", len(streamed) >= 8, len(streamed))
    embeddings = client.embeddings.create(model=MODEL, input=["one", "two"])
    expect("each input gets an embedding", len(embeddings.data) == 2, embeddings)
    response = client.responses.create(model=MODEL, input="Where does this go?", max_output_tokens=8)
    expect("a response of the Responses API has text", bool(response.output_text), response)
    stream = client.responses.create(model=MODEL, input="Where?", max_output_tokens=4, stream=True)
    events = [event.type for event in stream]
    is_complete = events[-1] in ("response.completed", "response.incomplete")
    expect("a stream of the Responses API ends with its final event", is_complete, events)
    models = [model.id for model in client.models.list()]
    expect("the model list contains the model", MODEL in models, models)
    expect("a single model can be retrieved", client.models.retrieve(MODEL).id == MODEL)
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=2)
    expect("a response has a request id", bool(raw.headers.get("x-request-id")), dict(raw.headers))
    send = lambda: client.models.retrieve("nothing")
    expect_error("an unknown model gets NotFoundError", openai.NotFoundError, send)
    send = lambda: client.post("/chat/completions", body=[1], cast_to=object)
    expect_error("an invalid body gets BadRequestError", openai.BadRequestError, send)


def check_keys_and_limits(demo):
    """Checks API keys, permitted models and rate limits."""
    client = lambda key, retries=0: openai.OpenAI(api_key=key, base_url=f"{demo.base}/v1", max_retries=retries)
    complete = lambda key, retries=0: client(key, retries).completions.create(model=MODEL, prompt="hi", max_tokens=1)
    send = lambda: complete("sk-wrong")
    error = expect_error("a wrong key gets AuthenticationError", openai.AuthenticationError, send)
    has_code = error.code == "invalid_api_key"
    expect("the error has the code invalid_api_key and omits the key", has_code and "sk-wrong" not in str(error), error)
    send = lambda: client("sk-wrong").completions.create(model=MODEL, prompt="x" * 900_000)
    expect_error("a wrong key with a long body gets AuthenticationError", openai.AuthenticationError, send)
    send = lambda: complete(OTHER_KEY)
    error = expect_error("a model that the client may not use gets NotFoundError", openai.NotFoundError, send)
    expect("the error has the code model_not_found", error.code == "model_not_found", error)
    models = list(client(OTHER_KEY).models.list())
    expect("the model list omits models that the client may not use", models == [])
    raw = client(KEY).completions.with_raw_response.create(model=MODEL, prompt="hi", max_tokens=1)
    limit = raw.headers.get("x-ratelimit-limit-requests")
    expect("a response has the client's limit in a header", limit == "60", dict(raw.headers))
    limited = None
    for _ in range(120):
        try:
            complete(KEY)
        except openai.RateLimitError as error:
            limited = error
            break
    expect("a request over the limit gets RateLimitError", limited is not None, "120 requests succeeded")
    headers = limited.response.headers
    expect("the error has a Retry-After header of at most 2 s", 0 < int(headers["retry-after"]) <= 2, dict(headers))
    expect("the error has the code rate_limit_exceeded", limited.code == "rate_limit_exceeded", limited)
    start = time.monotonic()
    complete(KEY, retries=3)
    expect("the package's own retry succeeds", time.monotonic() - start < 10, time.monotonic() - start)
    status, body = curl(
        f"{demo.base}/v1/completions", "-H", f"x-api-key: {OTHER_KEY}", "-H", "content-type: application/json",
        "-d", json.dumps({"model": MODEL, "prompt": "hi"}),
    )
    is_not_found = status == 404 and json.loads(body)["error"]["code"] == "model_not_found"
    expect("the header x-api-key identifies the client", is_not_found, (status, body))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/debug/conductor")
    parser.add_argument("--port", type=int, default=18080)
    options = parser.parse_args()
    demo = Demo(options.conductor, options.port)
    try:
        check_endpoints(openai.OpenAI(api_key="unused", base_url=f"{demo.base}/v1", max_retries=0))
        status, body = curl(f"{demo.base}/v1/models")
        expect("curl gets the model list", status == 200 and json.loads(body)["object"] == "list", (status, body))
        demo.add_clients()
        check_keys_and_limits(demo)
        with urllib.request.urlopen(f"http://127.0.0.1:{options.port + 1}/metrics") as page:
            metrics = page.read().decode()
        series = 'conductor_client_refusals_total{client="one",reason="requests"}'
        expect("refusals of clients are counted", series in metrics)
    finally:
        code = demo.stop()
    expect("the router exits with code 0", code == 0, code)


if __name__ == "__main__":
    sys.exit(main())
