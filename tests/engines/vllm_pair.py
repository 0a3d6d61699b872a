#!/usr/bin/env python3
"""Checks Conductor against a pair of real vLLM servers: does the index say what the engines do?

    python tests/engines/vllm_pair.py --conductor target/release/conductor \
        --worker http://127.0.0.1:8000,kv-events=tcp://127.0.0.1:5557,kv-replay=tcp://127.0.0.1:5558 \
        --worker http://127.0.0.1:8010,kv-events=tcp://127.0.0.1:5567,kv-replay=tcp://127.0.0.1:5568

Needs the `openai` package. The servers must have been started with KV events, `--enable-prompt-tokens-details` and (for
the reset) VLLM_SERVER_DEV_MODE=1; tests/engines/README.md has the command. Prints one line a check and exits with 1
when one fails.
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


class Failed(Exception):
    pass


def post(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data or b"", method="POST", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
        return dict(answer.headers), json.loads(text) if text.strip() else None


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Bench:
    def __init__(self, base, workers, model, block):
        self.base, self.workers, self.model, self.block = base, workers, model, block
        self.client = openai.OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0)
        self.names = [worker.split(",")[0].removeprefix("http://") for worker in workers]

    def complete(self, prompt, tokens=2, base=None):
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        headers, answer = post(f"{base or self.base}/v1/completions", body)
        usage = answer["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        matched = headers.get("x-conductor-matched-tokens")
        return {
            "worker": headers.get("x-conductor-worker"),
            "matched": None if matched is None else int(matched),
            "cached": cached,
            "prompt": usage["prompt_tokens"],
        }

    def until_matched(self, worker, prompt):
        """Waits for the events of a prompt, without a request that another worker would compute."""
        host, port = self.base.removeprefix("http://").rsplit(":", 1)
        admin = f"http://{host}:{int(port) + 1}/admin/index/lookup"
        started = time.monotonic()
        while True:
            _, answer = post(admin, {"model": self.model, "prompt": prompt})
            if any(row["worker"] == worker and row["matched_tokens"] >= self.block for row in answer["workers"]):
                return
            if time.monotonic() - started > DEADLINE_S:
                raise Failed(f"the index has no blocks of {worker}: {answer}")
            time.sleep(0.05)

    def reachable(self, seen):
        """What the engine can reuse of what the index matched: it always computes the last token itself."""
        return min(seen["matched"], (seen["prompt"] - 1) // self.block * self.block)

    def agrees(self, prompt, enough):
        """Asks until the index matches enough, then the engine must have found exactly that cached."""
        started = time.monotonic()
        while True:
            seen = self.complete(prompt)
            if seen["matched"] is not None and enough(seen):
                if self.reachable(seen) == seen["cached"]:
                    return seen
            if time.monotonic() - started > DEADLINE_S:
                raise Failed(f"index and engine do not agree: {seen}")
            time.sleep(0.05)


def words(rng, count):
    return " ".join(rng.choice("alpha beta gamma delta route cache token block worker index".split()) for _ in range(count))


def check_models(bench):
    models = [model.id for model in bench.client.models.list()]
    assert models == [bench.model], models
    return f"/v1/models merged: {models}"


def check_openai_client(bench):
    messages = [{"role": "user", "content": "Say something."}]
    whole = bench.client.chat.completions.create(model=bench.model, messages=messages, max_tokens=8, temperature=0)
    parts, usage = [], None
    stream = bench.client.chat.completions.create(
        model=bench.model, messages=messages, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        usage = chunk.usage or usage
        parts += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(parts) == whole.choices[0].message.content, (parts, whole)
    assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens, usage
    completion = bench.client.completions.create(model=bench.model, prompt="x y z", max_tokens=4)
    assert completion.choices[0].text is not None
    try:
        bench.client.chat.completions.create(model=bench.model, messages=messages, max_tokens=-1)
        raise Failed("a negative max_tokens was accepted")
    except openai.BadRequestError as error:
        refused = error.status_code
    return f"openai {openai.__version__}: stream equals non-stream, usage in both; the engine's {refused} reaches the client"


def check_affinity(bench):
    """Every worker is given a system prompt of its own, behind the router's back: only the events tell who holds which."""
    rng = random.Random(7)
    seen_at = []
    for home in bench.names:
        system = f"You are the assistant at {home}. " + words(rng, 60)
        bench.complete(system, base=f"http://{home}")
        bench.until_matched(home, system)
        for conversation in range(3):
            prompt = f"{system} conversation {conversation} {words(rng, 20)}"
            for turn in range(3):
                prompt += f" turn {turn} " + words(rng, 12)
                seen = bench.agrees(prompt, lambda seen: seen["matched"] >= bench.block)
                if seen["worker"] != home:
                    raise Failed(f"conversation {conversation} of {home} went to {seen['worker']}: {seen}")
                seen_at.append((home, seen["cached"]))
    lines = [f"{home} {sum(1 for at, _ in seen_at if at == home)}" for home in bench.names]
    cached = sum(cached for _, cached in seen_at)
    return f"requests that found their prefix, by worker: {', '.join(lines)}; index == cached_tokens each time, {cached} tokens in all"


def check_eviction(bench):
    rng = random.Random(11)
    prompt = "eviction " + words(rng, 120)
    bench.complete(prompt)
    before = bench.agrees(prompt, lambda seen: seen["matched"] >= bench.block)
    home = "http://" + bench.names[bench.names.index(before["worker"])]
    for flood in range(6):
        bench.complete([(flood * 131 + 17 * i) % 1900 for i in range(300)], base=home)
    started = time.monotonic()
    while True:
        gone = bench.complete(prompt)
        # Sent elsewhere or recomputed here: the index must not promise what the engine dropped.
        if gone["matched"] is not None and bench.reachable(gone) == gone["cached"] < before["cached"]:
            break
        if time.monotonic() - started > DEADLINE_S or gone["cached"] >= before["cached"]:
            raise Failed(f"after eviction the index says {gone}, before {before}")
    return f"before: {before['cached']} cached at {before['worker']}; after eviction: index {gone['matched']}, engine {gone['cached']} at {gone['worker']}"


def check_reset(bench):
    rng = random.Random(13)
    prompt = "reset " + words(rng, 100)
    bench.complete(prompt)
    before = bench.agrees(prompt, lambda seen: seen["matched"] >= bench.block)
    for name in bench.names:
        post(f"http://{name}/reset_prefix_cache")
        # vLLM announces a reset with its next step only.
        bench.complete(f"wake up {words(rng, 40)}", base=f"http://{name}")
    time.sleep(0.5)
    after = bench.complete(prompt)
    if after["matched"] != 0 or after["cached"] != 0:
        raise Failed(f"after the reset: {after}")
    return f"before: index {before['matched']}, engine {before['cached']}; after /reset_prefix_cache: index 0, engine 0"


CHECKS = [check_models, check_openai_client, check_affinity, check_eviction, check_reset]


def wait_ready(base, process):
    started = time.monotonic()
    while time.monotonic() - started < DEADLINE_S:
        if process.poll() is not None:
            raise Failed(f"conductor ended with {process.returncode}")
        try:
            get(f"{base}/readyz")
            return
        except OSError:
            time.sleep(0.05)
    raise Failed("conductor does not become ready")


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
    failures = 0
    try:
        base = f"http://{arguments.listen}"
        wait_ready(base, process)
        bench = Bench(base, arguments.worker, arguments.model, arguments.block_size)
        for check in CHECKS:
            try:
                print(f"ok    {check.__name__}: {check(bench)}", flush=True)
            except (Failed, AssertionError, openai.OpenAIError, OSError) as error:
                failures += 1
                print(f"FAIL  {check.__name__}: {error!r}", flush=True)
    finally:
        process.terminate()
        ended = process.wait(timeout=40)
    print(f"conductor ended with {ended} on SIGTERM")
    print(f"{len(CHECKS) - failures} passed, {failures} failed")
    return 1 if failures or ended else 0


if __name__ == "__main__":
    sys.exit(main())
