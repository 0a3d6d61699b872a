#!/usr/bin/env python3
"""Checks that Conductor learns models and LoRA adapters from two real vLLM servers, of which one has the adapter.

    python tests/engines/vllm_adapters.py --conductor target/release/conductor \
        --with http://127.0.0.1:8000 --without http://127.0.0.1:8010 --adapter sql --second-path /adapters/other

Starts Conductor with plain `--worker` flags in front of both. The server at `--with` was started with
`--enable-lora --lora-modules sql=PATH` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, both with the model name `tiny`, KV events and
`--enable-prompt-tokens-details`; tests/engines/README.md has the commands. Prints a table and exits with 1 on any fault.
Needs nothing but Python.
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
    """Status, headers and body of an answer, whatever the status."""
    data = None if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


class Fault(Exception):
    pass


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.base = f"http://{arguments.listen}"
        self.admin = f"http://{arguments.admin}"
        self.with_adapter = arguments.with_adapter.removeprefix("http://")
        self.rows = []

    def row(self, check, found, fault=None):
        self.rows.append((check, found, fault))

    def complete(self, model, prompt):
        body = {"model": model, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        status, headers, text = call(f"{self.base}/v1/completions", body)
        seen = {"status": status, "worker": headers.get("x-conductor-worker"), "matched": None, "cached": None, "prompt": None}
        if status == 200:
            usage = json.loads(text)["usage"]
            matched = headers.get("x-conductor-matched-tokens")
            seen["matched"] = None if matched is None else int(matched)
            seen["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            seen["prompt"] = usage["prompt_tokens"]
        else:
            seen["error"] = text.decode(errors="replace")[:200]
        return seen

    def reachable(self, seen):
        """What the engine can reuse of what the index matched: it always computes the last token itself."""
        block = self.arguments.block_size
        return min(seen["matched"], (seen["prompt"] - 1) // block * block)

    def until(self, what, look):
        started = time.monotonic()
        while True:
            found = look()
            if found:
                return found, time.monotonic() - started
            if time.monotonic() - started > DEADLINE_S:
                raise Fault(f"never happened in {DEADLINE_S:.0f} s: {what}")
            time.sleep(0.05)

    def listed(self):
        """What /status says that each worker lists; none where it is not known."""
        page = json.loads(call(f"{self.admin}/status")[2])
        return {worker["name"]: worker["models"]["listed"] for pool in page["pools"] for worker in pool["workers"]}


def prompt(seed, length):
    """Token ids, so that both models are sent the very same."""
    rng = random.Random(seed)
    return [rng.randrange(3, 1900) for _ in range(length)]


def check_first_requests(bench):
    """Before any list can be known for sure: every request is answered all the same."""
    statuses = [bench.complete(model, prompt(1_000 + i, 40))["status"] for i in range(12) for model in ("tiny", bench.arguments.adapter)]
    if set(statuses) != {200}:
        raise Fault(f"statuses {statuses}")
    return f"{len(statuses)} requests right after the start, all 200"


def check_lists(bench):
    adapter = bench.arguments.adapter

    def known():
        lists = bench.listed()
        return lists if all(lists.values()) else None

    lists, _ = bench.until("both lists are known", known)
    having = [name for name, listed in lists.items() if adapter in listed["adapters"]]
    if having != [bench.with_adapter]:
        raise Fault(f"`{adapter}` is listed by {having}: {lists}")
    status, _, text = call(f"{bench.base}/v1/models")
    parents = {model["id"]: model.get("parent") for model in json.loads(text)["data"]}
    if status != 200 or parents != {"tiny": None, adapter: "tiny"}:
        raise Fault(f"/v1/models: {status} {parents}")
    return f"/status and /v1/models: `{adapter}` of `tiny`, on {having[0]}"


def check_statuses(bench):
    adapter = bench.arguments.adapter
    seen = [(model, bench.complete(model, prompt(2_000 + i, 40))) for i in range(20) for model in ("tiny", adapter)]
    bad = [one for _, one in seen if one["status"] != 200]
    if bad:
        raise Fault(f"{len(bad)} of {len(seen)} failed, such as {bad[0]}")
    strays = [one for model, one in seen if model == adapter and one["worker"] != bench.with_adapter]
    if strays:
        raise Fault(f"sent to a worker without it: {strays[0]}")
    base = {one["worker"] for model, one in seen if model == "tiny"}
    return f"{len(seen)} requests, all 200; `{adapter}` at {bench.with_adapter}, `tiny` at {sorted(base)}"


def check_blocks_apart(bench):
    """The same tokens, first for one model and then for the other: neither matches what only the other has."""
    adapter, block = bench.arguments.adapter, bench.arguments.block_size
    compared = []
    for number, order in enumerate((("tiny", adapter), (adapter, "tiny")) * 3):
        tokens = prompt(3_000 + number, 5 * block + 7)
        for model in order:
            first = bench.complete(model, tokens)
            if first["status"] != 200 or first["matched"] != 0 or first["cached"] != 0:
                raise Fault(f"first time for `{model}`, after {compared[-1:]}: {first}")

            def again():
                seen = bench.complete(model, tokens)
                if seen["status"] != 200:
                    raise Fault(f"{seen}")
                return seen if (seen["matched"] or 0) >= 5 * block else None

            seen, _ = bench.until(f"the prompt of `{model}` is in the index", again)
            if bench.reachable(seen) != seen["cached"]:
                raise Fault(f"`{model}`: {seen}")
            compared.append((model, seen["matched"], seen["cached"]))
    total = sum(cached for _, _, cached in compared)
    return f"{len(compared)} prompts: 0 before its own model had it, then matched == cached ({total} tokens)"


def check_unknown(bench):
    seen = bench.complete("no-such-model", prompt(4_000, 8))
    code = json.loads(seen.get("error", "{}")).get("error", {}).get("code") if seen["status"] != 200 else None
    if seen["status"] != 404 or code != "model_not_found":
        raise Fault(f"{seen}")
    return "404 model_not_found"


def check_run_time_load(bench):
    """Loads a second adapter where the first is; it becomes usable by asking for it, and goes again."""
    name, base = "late", f"http://{bench.with_adapter}"
    status, _, text = call(f"{base}/v1/load_lora_adapter", {"lora_name": name, "lora_path": bench.arguments.second_path})
    if status != 200:
        raise Fault(f"vLLM does not load it: {status} {text.decode(errors='replace')[:200]}")
    try:
        served, took = bench.until("it is served", lambda: (lambda seen: seen if seen["status"] == 200 else None)(bench.complete(name, prompt(5_000, 40))))
        if served["worker"] != bench.with_adapter:
            raise Fault(f"sent to {served}")
        statuses = {bench.complete(name, prompt(5_001 + i, 40))["status"] for i in range(8)}
        if statuses != {200}:
            raise Fault(f"then {statuses}")
    finally:
        call(f"{base}/v1/unload_lora_adapter", {"lora_name": name})
    _, gone = bench.until("it is refused", lambda: bench.complete(name, prompt(5_100, 40))["status"] == 404)
    healthy = [worker["health"] for pool in json.loads(call(f"{bench.admin}/status")[2])["pools"] for worker in pool["workers"]]
    if set(healthy) != {"ok"}:
        raise Fault(f"health {healthy}")
    return f"usable {took:.2f} s after it was loaded, refused {gone:.2f} s after it was unloaded, both workers ok"


CHECKS = [check_first_requests, check_lists, check_statuses, check_blocks_apart, check_unknown, check_run_time_load]


def wait_ready(bench, process):
    started = time.monotonic()
    while time.monotonic() - started < DEADLINE_S:
        if process.poll() is not None:
            raise Fault(f"conductor ended with {process.returncode}")
        try:
            if call(f"{bench.base}/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise Fault("conductor does not become ready")


def wait_feeds(bench):
    """Matches are compared with the engines: their events must be followed first."""
    def live():
        feeds = json.loads(call(f"{bench.admin}/admin/feeds")[2])["feeds"]
        return len(feeds) >= 2 and all(feed["state"] == "live" for feed in feeds)

    bench.until("both feeds are live", live)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/release/conductor")
    parser.add_argument("--with", dest="with_adapter", required=True, help="URL of the server with the adapter")
    parser.add_argument("--without", required=True, help="URL of the server without")
    parser.add_argument("--adapter", default="sql")
    parser.add_argument("--second-path", required=True, help="an adapter's folder, as that server sees it")
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--listen", default="127.0.0.1:8090")
    parser.add_argument("--admin", default="127.0.0.1:8091", help="where its admin pages are: the port after --listen")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    workers = [flag for url in (arguments.without, arguments.with_adapter) for flag in ("--worker", url)]
    process = subprocess.Popen([arguments.conductor, *workers, "--policy", "cache-aware", "--listen", arguments.listen])
    try:
        wait_ready(bench, process)
        for check in CHECKS:
            if check is check_blocks_apart:
                wait_feeds(bench)
            try:
                bench.row(check.__name__.removeprefix("check_"), check(bench))
            except (Fault, OSError, ValueError, KeyError) as fault:
                bench.row(check.__name__.removeprefix("check_"), "", f"{fault}")
    except Fault as fault:
        bench.row("start", "", f"{fault}")
    finally:
        process.terminate()
        ended = process.wait(timeout=40)
    width = max(len(check) for check, _, _ in bench.rows)
    for check, found, fault in bench.rows:
        print(f"{'FAIL' if fault else 'ok  '}  {check:<{width}}  {fault or found}")
    print(f"conductor ended with {ended} on SIGTERM")
    faults = sum(1 for _, _, fault in bench.rows if fault)
    print(f"{len(bench.rows) - faults} passed, {faults} failed")
    return 1 if faults or ended else 0


if __name__ == "__main__":
    sys.exit(main())
