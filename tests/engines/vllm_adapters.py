#!/usr/bin/env python3
"""Checks that Conductor discovers models and LoRA adapters of two real vLLM servers, one of which has the adapter.

    python tests/engines/vllm_adapters.py --conductor target/release/conductor \
        --with http://127.0.0.1:8000 --without http://127.0.0.1:8010 --adapter sql --second-path /adapters/other

Starts Conductor with plain `--worker` flags in front of both servers.
Both servers need the model name `tiny`, KV events and `--enable-prompt-tokens-details`.
The server of `--with` also needs `--enable-lora --lora-modules sql=PATH` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
tests/engines/README.md has the commands.
Prints a table, and exits with 1 if a check fails. Needs only Python's standard library.
"""

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 30.0


def call(url, body=None, timeout=60):
    """Returns status, headers and body of a response with any status. Sends a POST request if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


class CheckFailure(Exception):
    """Failure of a check, with its reason."""


class AdapterTest:
    """Conductor's addresses, requests to it, and the results of the checks."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.base = f"http://{arguments.listen}"
        self.admin = f"http://{arguments.admin}"
        self.with_adapter = arguments.with_adapter.removeprefix("http://")
        self.rows = []

    def add_row(self, claim, detail, failure=None):
        self.rows.append((claim, detail, failure))

    def complete(self, model, prompt):
        """Sends a completion request through Conductor. Returns the status, the worker and the token counts."""
        body = {"model": model, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        status, headers, text = call(f"{self.base}/v1/completions", body)
        worker = headers.get("x-conductor-worker")
        result = {"status": status, "worker": worker, "matched": None, "cached": None, "prompt": None}
        if status == 200:
            usage = json.loads(text)["usage"]
            matched = headers.get("x-conductor-matched-tokens")
            result["matched"] = None if matched is None else int(matched)
            result["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            result["prompt"] = usage["prompt_tokens"]
        else:
            result["error"] = text.decode(errors="replace")[:200]
        return result

    def reusable_tokens(self, result):
        """Returns the matched tokens that the engine can reuse. It always computes the last token of a prompt."""
        block = self.arguments.block_size
        return min(result["matched"], (result["prompt"] - 1) // block * block)

    def wait_until(self, claim, poll):
        """Polls until a result is true. Returns the result and the time it took, and fails after the deadline."""
        started = time.monotonic()
        while True:
            result = poll()
            if result:
                return result, time.monotonic() - started
            if time.monotonic() - started > DEADLINE_S:
                raise CheckFailure(f"not true within {DEADLINE_S:.0f} s: {claim}")
            time.sleep(0.05)

    def listed_models(self):
        """Returns each worker's listed models from /status; None until Conductor has read the worker's list."""
        page = json.loads(call(f"{self.admin}/status")[2])
        return {worker["name"]: worker["models"]["listed"] for pool in page["pools"] for worker in pool["workers"]}


def random_prompt(seed, length):
    """Returns token ids, so that both models receive equal tokens."""
    rng = random.Random(seed)
    return [rng.randrange(3, 1900) for _ in range(length)]


def check_early_requests(test):
    """Checks that requests succeed even before Conductor has read the workers' model lists."""
    statuses = [
        test.complete(model, random_prompt(1_000 + i, 40))["status"]
        for i in range(12)
        for model in ("tiny", test.arguments.adapter)
    ]
    if set(statuses) != {200}:
        raise CheckFailure(f"statuses {statuses}")
    return f"{len(statuses)} requests right after the start, all 200"


def check_lists(test):
    adapter = test.arguments.adapter

    def complete_lists():
        lists = test.listed_models()
        return lists if all(lists.values()) else None

    lists, _ = test.wait_until("both model lists are read", complete_lists)
    holders = [name for name, listed in lists.items() if adapter in listed["adapters"]]
    if holders != [test.with_adapter]:
        raise CheckFailure(f"`{adapter}` is listed by {holders}: {lists}")
    status, _, text = call(f"{test.base}/v1/models")
    parents = {model["id"]: model.get("parent") for model in json.loads(text)["data"]}
    if status != 200 or parents != {"tiny": None, adapter: "tiny"}:
        raise CheckFailure(f"/v1/models: {status} {parents}")
    return f"/status and /v1/models: `{adapter}` of `tiny`, on {holders[0]}"


def check_routing(test):
    adapter = test.arguments.adapter
    results = [
        (model, test.complete(model, random_prompt(2_000 + i, 40))) for i in range(20) for model in ("tiny", adapter)
    ]
    failed = [result for _, result in results if result["status"] != 200]
    if failed:
        raise CheckFailure(f"{len(failed)} of {len(results)} failed, such as {failed[0]}")
    misrouted = [result for model, result in results if model == adapter and result["worker"] != test.with_adapter]
    if misrouted:
        raise CheckFailure(f"sent to a worker without the adapter: {misrouted[0]}")
    base_workers = {result["worker"] for model, result in results if model == "tiny"}
    return f"{len(results)} requests, all 200; `{adapter}` at {test.with_adapter}, `tiny` at {sorted(base_workers)}"


def check_separate_blocks(test):
    """Sends the same tokens for one model and then for the other. Neither may match the other's blocks."""
    adapter, block = test.arguments.adapter, test.arguments.block_size
    compared = []
    for number, order in enumerate((("tiny", adapter), (adapter, "tiny")) * 3):
        tokens = random_prompt(3_000 + number, 5 * block + 7)
        for model in order:
            first = test.complete(model, tokens)
            if first["status"] != 200 or first["matched"] != 0 or first["cached"] != 0:
                raise CheckFailure(f"first request for `{model}`, after {compared[-1:]}: {first}")

            def matched_result():
                result = test.complete(model, tokens)
                if result["status"] != 200:
                    raise CheckFailure(f"{result}")
                return result if (result["matched"] or 0) >= 5 * block else None

            result, _ = test.wait_until(f"the prompt of `{model}` is in the index", matched_result)
            if test.reusable_tokens(result) != result["cached"]:
                raise CheckFailure(f"`{model}`: {result}")
            compared.append((model, result["matched"], result["cached"]))
    total = sum(cached for _, _, cached in compared)
    return f"{len(compared)} prompts: 0 matched at first, later matched == cached ({total} tokens)"


def check_unknown_model(test):
    result = test.complete("no-such-model", random_prompt(4_000, 8))
    error = json.loads(result.get("error", "{}")).get("error", {}) if result["status"] != 200 else {}
    if result["status"] != 404 or error.get("code") != "model_not_found":
        raise CheckFailure(f"{result}")
    return "404 model_not_found"


def check_runtime_load(test):
    """Loads a second adapter on the server with the first one, waits until requests for it succeed, and unloads it."""
    name, base = "late", f"http://{test.with_adapter}"
    lora = {"lora_name": name, "lora_path": test.arguments.second_path}
    status, _, text = call(f"{base}/v1/load_lora_adapter", lora)
    if status != 200:
        raise CheckFailure(f"vLLM failed to load the adapter: {status} {text.decode(errors='replace')[:200]}")

    def served_result():
        result = test.complete(name, random_prompt(5_000, 40))
        return result if result["status"] == 200 else None

    try:
        served, load_s = test.wait_until("the loaded adapter is served", served_result)
        if served["worker"] != test.with_adapter:
            raise CheckFailure(f"sent to {served}")
        statuses = {test.complete(name, random_prompt(5_001 + i, 40))["status"] for i in range(8)}
        if statuses != {200}:
            raise CheckFailure(f"then {statuses}")
    finally:
        call(f"{base}/v1/unload_lora_adapter", {"lora_name": name})
    _, unload_s = test.wait_until(
        "the unloaded adapter is refused",
        lambda: test.complete(name, random_prompt(5_100, 40))["status"] == 404,
    )
    page = json.loads(call(f"{test.admin}/status")[2])
    health = [worker["health"] for pool in page["pools"] for worker in pool["workers"]]
    if set(health) != {"ok"}:
        raise CheckFailure(f"health {health}")
    return f"served {load_s:.2f} s after the load, refused {unload_s:.2f} s after the unload, both workers ok"


CHECKS = {
    "early requests succeed": check_early_requests,
    "both model lists are correct": check_lists,
    "the adapter's requests reach its worker": check_routing,
    "each model matches only its own blocks": check_separate_blocks,
    "an unknown model is refused": check_unknown_model,
    "an adapter loaded at runtime is served": check_runtime_load,
}


def wait_until_ready(test, process):
    started = time.monotonic()
    while time.monotonic() - started < DEADLINE_S:
        if process.poll() is not None:
            raise CheckFailure(f"Conductor exited with {process.returncode}")
        try:
            if call(f"{test.base}/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise CheckFailure(f"Conductor did not become ready in {DEADLINE_S:.0f} s")


def wait_for_feeds(test):
    """Waits until both event feeds are live, without which the index has no matches to compare."""
    def are_live():
        feeds = json.loads(call(f"{test.admin}/admin/feeds")[2])["feeds"]
        return len(feeds) >= 2 and all(feed["state"] == "live" for feed in feeds)

    test.wait_until("both feeds are live", are_live)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/release/conductor")
    parser.add_argument("--with", dest="with_adapter", required=True, help="URL of the server with the adapter")
    parser.add_argument("--without", required=True, help="URL of the server without the adapter")
    parser.add_argument("--adapter", default="sql")
    parser.add_argument("--second-path", required=True, help="folder of a second adapter, as a path on that server")
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--listen", default="127.0.0.1:8090")
    parser.add_argument("--admin", default="127.0.0.1:8091", help="address of the admin pages: the port after --listen")
    arguments = parser.parse_args()
    test = AdapterTest(arguments)
    workers = [flag for url in (arguments.without, arguments.with_adapter) for flag in ("--worker", url)]
    process = subprocess.Popen([arguments.conductor, *workers, "--policy", "cache-aware", "--listen", arguments.listen])
    try:
        wait_until_ready(test, process)
        for claim, check in CHECKS.items():
            if check is check_separate_blocks:
                wait_for_feeds(test)
            try:
                test.add_row(claim, check(test))
            except (CheckFailure, OSError, ValueError, KeyError) as failure:
                test.add_row(claim, "", f"{failure}")
    except CheckFailure as failure:
        test.add_row("Conductor and its feeds are ready", "", f"{failure}")
    finally:
        process.terminate()
        exit_code = process.wait(timeout=40)
    width = max(len(claim) for claim, _, _ in test.rows)
    for claim, detail, failure in test.rows:
        print(f"{'FAIL' if failure else 'ok  '}  {claim:<{width}}  {failure or detail}")
    print(f"Conductor exited with {exit_code} on SIGTERM")
    failure_count = sum(1 for _, _, failure in test.rows if failure)
    print(f"{len(test.rows) - failure_count} passed, {failure_count} failed")
    return 1 if failure_count or exit_code else 0


if __name__ == "__main__":
    sys.exit(main())
