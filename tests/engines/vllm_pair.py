#!/usr/bin/env python3
"""Compares Conductor's prefix index with the caches of two real vLLM servers.

    python tests/engines/vllm_pair.py --conductor target/release/conductor \
        --worker http://127.0.0.1:8000,kv-events=tcp://127.0.0.1:5557,kv-replay=tcp://127.0.0.1:5558 \
        --worker http://127.0.0.1:8010,kv-events=tcp://127.0.0.1:5567,kv-replay=tcp://127.0.0.1:5568

Needs the `openai` package.
The servers need KV events, `--enable-prompt-tokens-details` and, for the reset, VLLM_SERVER_DEV_MODE=1.
tests/engines/README.md has the command.
Prints one line for each check, and exits with 1 if one fails.
"""

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.request

import openai

DEADLINE_S = 15.0


class CheckFailure(Exception):
    """Failure of a check, with its reason."""


def post(url, body=None):
    """Sends a POST request. Returns the response's headers and its decoded JSON body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data or b"", method="POST", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read()
        return dict(response.headers), json.loads(text) if text.strip() else None


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


class PairTest:
    """Conductor's address, its workers, and requests to both."""

    def __init__(self, base, workers, model, block):
        self.base, self.workers, self.model, self.block = base, workers, model, block
        self.client = openai.OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0)
        self.names = [worker.split(",")[0].removeprefix("http://") for worker in workers]

    def complete(self, prompt, tokens=2, base=None):
        """Sends a completion request to Conductor, or directly to `base`. Returns the worker and the token counts."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        headers, response = post(f"{base or self.base}/v1/completions", body)
        usage = response["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        matched = headers.get("x-conductor-matched-tokens")
        return {
            "worker": headers.get("x-conductor-worker"),
            "matched": None if matched is None else int(matched),
            "cached": cached,
            "prompt": usage["prompt_tokens"],
        }

    def wait_until_matched(self, worker, prompt):
        """Waits for the events of a prompt. Queries the index only: another worker would compute a request."""
        host, port = self.base.removeprefix("http://").rsplit(":", 1)
        lookup_url = f"http://{host}:{int(port) + 1}/admin/index/lookup"
        started = time.monotonic()
        while True:
            _, lookup = post(lookup_url, {"model": self.model, "prompt": prompt})
            if any(row["worker"] == worker and row["matched_tokens"] >= self.block for row in lookup["workers"]):
                return
            if time.monotonic() - started > DEADLINE_S:
                raise CheckFailure(f"the index has no blocks of {worker}: {lookup}")
            time.sleep(0.05)

    def reusable_tokens(self, result):
        """Returns the matched tokens that the engine can reuse. It always computes the last token of a prompt."""
        return min(result["matched"], (result["prompt"] - 1) // self.block * self.block)

    def wait_until_agreed(self, prompt, is_enough):
        """Sends requests until the index matches enough tokens and the engine's cached tokens equal the match."""
        started = time.monotonic()
        while True:
            result = self.complete(prompt)
            if result["matched"] is not None and is_enough(result):
                if self.reusable_tokens(result) == result["cached"]:
                    return result
            if time.monotonic() - started > DEADLINE_S:
                raise CheckFailure(f"index and engine differ: {result}")
            time.sleep(0.05)


def random_words(rng, count):
    vocabulary = "alpha beta gamma delta route cache token block worker index".split()
    return " ".join(rng.choice(vocabulary) for _ in range(count))


def check_models(test):
    models = [model.id for model in test.client.models.list()]
    assert models == [test.model], models
    return f"/v1/models: {models}"


def check_openai_client(test):
    messages = [{"role": "user", "content": "Say something."}]
    whole = test.client.chat.completions.create(model=test.model, messages=messages, max_tokens=8, temperature=0)
    parts, usage = [], None
    stream = test.client.chat.completions.create(
        model=test.model,
        messages=messages,
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        usage = chunk.usage or usage
        parts += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(parts) == whole.choices[0].message.content, (parts, whole)
    assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens, usage
    completion = test.client.completions.create(model=test.model, prompt="x y z", max_tokens=4)
    assert completion.choices[0].text is not None
    try:
        test.client.chat.completions.create(model=test.model, messages=messages, max_tokens=-1)
        raise CheckFailure("a negative max_tokens was accepted")
    except openai.BadRequestError as error:
        status = error.status_code
    return (
        f"openai {openai.__version__}: stream equals non-stream, usage in both; "
        f"the engine's {status} is forwarded to the client"
    )


def check_affinity(test):
    """Sends each worker a system prompt of its own directly, so that the index has it only from events."""
    rng = random.Random(7)
    matched = []
    for home in test.names:
        system = f"You are the assistant at {home}. " + random_words(rng, 60)
        test.complete(system, base=f"http://{home}")
        test.wait_until_matched(home, system)
        for conversation in range(3):
            prompt = f"{system} conversation {conversation} {random_words(rng, 20)}"
            for turn in range(3):
                prompt += f" turn {turn} " + random_words(rng, 12)
                result = test.wait_until_agreed(prompt, lambda result: result["matched"] >= test.block)
                if result["worker"] != home:
                    raise CheckFailure(f"conversation {conversation} of {home} went to {result['worker']}: {result}")
                matched.append((home, result["cached"]))
    counts = [f"{home} {sum(1 for worker, _ in matched if worker == home)}" for home in test.names]
    cached = sum(cached for _, cached in matched)
    return f"requests with a matched prefix: {', '.join(counts)}; index == cached_tokens, {cached} tokens in all"


def check_eviction(test):
    rng = random.Random(11)
    prompt = "eviction " + random_words(rng, 120)
    test.complete(prompt)
    before = test.wait_until_agreed(prompt, lambda result: result["matched"] >= test.block)
    home = "http://" + test.names[test.names.index(before["worker"])]
    for flood in range(6):
        test.complete([(flood * 131 + 17 * i) % 1900 for i in range(300)], base=home)
    started = time.monotonic()
    while True:
        after = test.complete(prompt)
        # Sent to the other worker, or recomputed here: the index must not match evicted blocks.
        if after["matched"] is not None and test.reusable_tokens(after) == after["cached"] < before["cached"]:
            break
        if time.monotonic() - started > DEADLINE_S or after["cached"] >= before["cached"]:
            raise CheckFailure(f"after the eviction: {after}; before: {before}")
    return (
        f"before: {before['cached']} cached at {before['worker']}; "
        f"after: index {after['matched']}, engine {after['cached']} at {after['worker']}"
    )


def check_reset(test):
    rng = random.Random(13)
    prompt = "reset " + random_words(rng, 100)
    test.complete(prompt)
    before = test.wait_until_agreed(prompt, lambda result: result["matched"] >= test.block)
    for name in test.names:
        post(f"http://{name}/reset_prefix_cache")
        # vLLM publishes a reset only with its next step.
        test.complete(f"wake up {random_words(rng, 40)}", base=f"http://{name}")
    time.sleep(0.5)
    after = test.complete(prompt)
    if after["matched"] != 0 or after["cached"] != 0:
        raise CheckFailure(f"after the reset: {after}")
    return f"before: index {before['matched']}, engine {before['cached']}; after /reset_prefix_cache: index 0, engine 0"


CHECKS = {
    "the model lists are merged": check_models,
    "the openai client works": check_openai_client,
    "requests reach the worker that caches their prefix": check_affinity,
    "the index equals the engine after an eviction": check_eviction,
    "the index equals the engine after a reset": check_reset,
}


def wait_until_ready(base, process):
    started = time.monotonic()
    while time.monotonic() - started < DEADLINE_S:
        if process.poll() is not None:
            raise CheckFailure(f"Conductor exited with {process.returncode}")
        try:
            get(f"{base}/readyz")
            return
        except OSError:
            time.sleep(0.05)
    raise CheckFailure(f"Conductor did not become ready in {DEADLINE_S:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/release/conductor")
    parser.add_argument("--worker", action="append", required=True)
    parser.add_argument("--listen", default="127.0.0.1:8090")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--block-size", type=int, default=32)
    arguments = parser.parse_args()
    flags = [flag for worker in arguments.worker for flag in ("--worker", worker)]
    command = [arguments.conductor, *flags, "--policy", "cache-aware", "--listen", arguments.listen]
    process = subprocess.Popen(command)
    failure_count = 0
    try:
        base = f"http://{arguments.listen}"
        wait_until_ready(base, process)
        test = PairTest(base, arguments.worker, arguments.model, arguments.block_size)
        for claim, check in CHECKS.items():
            try:
                print(f"ok    {claim}: {check(test)}", flush=True)
            except (CheckFailure, AssertionError, openai.OpenAIError, OSError) as error:
                failure_count += 1
                print(f"FAIL  {claim}: {error!r}", flush=True)
    finally:
        process.terminate()
        exit_code = process.wait(timeout=40)
    print(f"Conductor exited with {exit_code} on SIGTERM")
    print(f"{len(CHECKS) - failure_count} passed, {failure_count} failed")
    return 1 if failure_count or exit_code else 0


if __name__ == "__main__":
    sys.exit(main())
