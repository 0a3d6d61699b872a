#!/usr/bin/env python3
"""Checks Conductor in front of a real prefill/decode pair of vLLM servers.

    python tests/engines/vllm_pd.py record --base http://127.0.0.1:8000 --out /tmp/truth.json
    python tests/engines/vllm_pd.py check --conductor target/release/conductor --dialect nixl \
        --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 --truth /tmp/truth.json [--restart COMMAND]

`record` sends requests to one plain vLLM with the same model and weights, and writes its responses to a file.
`check` starts Conductor in front of the pair and checks that

- chats and completions, streamed and not, have the recorded texts, also with n > 1;
- concurrent requests have the texts of the decode engine alone;
- a disconnected client's request is cancelled on both engines, according to their /metrics;
- a request after a restart of the prefill engine is served despite its new engine id. COMMAND kills and starts it.

Needs the `openai` package. Prints one line for each check, and exits with 1 if one fails.
tests/engines/README.md has the commands that start the engines.
"""

import argparse
import concurrent.futures
import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import openai

DEADLINE_S = 30.0
MODEL = "tiny"


class CheckFailure(Exception):
    """Failure of a check, with its reason."""


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def metric(base, name):
    """Returns the sum of all series whose line in /metrics begins with `name`."""
    lines = [line for line in get(f"{base}/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.split()[-1]) for line in lines)


def prompt(seed, length):
    """Returns token ids."""
    return [(seed * index + 3) % 1900 for index in range(length)]


def chat_messages(words):
    return [{"role": "user", "content": f"tell me, please, about {words} and how one walks a tree of it"}]


# Requests to both the plain server and the pair. Sampling is greedy, so that equal weights generate equal tokens.
CASES = [
    {"name": f"completion of {length} tokens", "kind": "completion", "prompt": prompt(seed, length), "stream": stream}
    for seed, length in ((7, 3), (11, 31), (13, 32), (17, 130), (19, 400))
    for stream in (False, True)
] + [
    {"name": f"chat about {words}", "kind": "chat", "messages": chat_messages(words), "stream": stream}
    for words in ("the os module", "a very long list of files, folders, links and pipes that nobody has read")
    for stream in (False, True)
] + [{"name": "two answers at once", "kind": "completion", "prompt": prompt(23, 130), "stream": False, "n": 2}]


def complete(client, case, tokens=8):
    """Sends the request of a case. Returns the texts of its choices and its usage."""
    common = {"model": MODEL, "max_tokens": tokens, "stream": case["stream"], "temperature": 0}
    common["extra_body"] = {"ignore_eos": True}
    if "n" in case:
        # vLLM refuses n > 1 with greedy sampling. `top_k` of 1 makes sampling deterministic.
        common |= {"n": case["n"], "temperature": 0.01, "seed": 1, "extra_body": {"ignore_eos": True, "top_k": 1}}
    if case["stream"]:
        common["stream_options"] = {"include_usage": True}
    if case["kind"] == "chat":
        response = client.chat.completions.create(messages=case["messages"], **common)
    else:
        response = client.completions.create(prompt=case["prompt"], **common)
    if not case["stream"]:
        texts = [c.message.content if case["kind"] == "chat" else c.text for c in response.choices]
        return texts, response.usage
    text, usage = "", None
    for chunk in response:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += (choice.delta.content if case["kind"] == "chat" else choice.text) or ""
    return [text], usage


def case_key(case):
    """Returns the key of a case in the file of recorded responses."""
    return f"{case['name']}, {'streamed' if case['stream'] else 'whole'}"


def openai_client(base):
    return openai.OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, timeout=120)


def record(args):
    client = openai_client(args.base)
    recorded = {}
    for case in CASES:
        texts, usage = complete(client, case)
        recorded[case_key(case)] = {"texts": texts, "prompt": usage.prompt_tokens}
    with open(args.out, "w") as out:
        json.dump(recorded, out, indent=1)
    print(f"recorded {len(recorded)} responses")


class PdChecks:
    """Checks of Conductor in front of the pair, and the number of failed ones."""

    def __init__(self, args):
        self.args, self.failure_count = args, 0
        self.base = f"http://{args.listen}"
        self.client = openai_client(self.base)

    def run(self, claim, check):
        started = time.monotonic()
        try:
            detail = check()
        except CheckFailure as failure:
            self.failure_count += 1
            print(f"FAILED {claim}: {failure}", flush=True)
        else:
            print(f"ok     {claim}{': ' + detail if detail else ''} ({time.monotonic() - started:.2f} s)", flush=True)

    def equal_to(self, recorded, case):
        """Returns a check that a case has the recorded texts and prompt tokens."""
        def check():
            texts, usage = complete(self.client, case)
            if texts != recorded["texts"]:
                raise CheckFailure(f"{texts} instead of {recorded['texts']}")
            if usage.prompt_tokens != recorded["prompt"]:
                raise CheckFailure(f"usage has {usage.prompt_tokens} prompt tokens instead of {recorded['prompt']}")
            details = usage.prompt_tokens_details
            return f"cached {details.cached_tokens if details else None} of {usage.prompt_tokens}"

        return check

    def check_cached_tokens(self):
        """Sends a long prompt twice. The usage must report exactly the blocks cached by the prefill worker."""
        case = {"kind": "completion", "prompt": prompt(29, 200), "stream": False}
        cached = []
        for stream in (False, True):
            _, usage = complete(self.client, case | {"stream": stream})
            cached.append(usage.prompt_tokens_details.cached_tokens)
        if cached[0] != 0 or cached[1] != 192:
            raise CheckFailure(f"cached {cached} instead of [0, 192]")
        return f"cached {cached}"

    def check_concurrent(self):
        cases = [{"kind": "completion", "prompt": prompt(31 + seed, 90), "stream": seed % 2 == 0} for seed in range(12)]
        expected = [complete(openai_client(self.args.decode), case)[0] for case in cases]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            received = list(pool.map(lambda case: complete(self.client, case)[0], cases))
        wrong = sum(a != b for a, b in zip(expected, received))
        if wrong:
            raise CheckFailure(f"{wrong} of {len(cases)} responses differ from those of the decode engine alone")
        return f"{len(cases)} responses equal those of the decode engine alone"

    def disconnect(self, after_s, stream):
        """Returns a check that both engines become idle, with no more blocks in use, after a client's disconnect."""
        url = urllib.parse.urlsplit(self.base)

        def check():
            before = [metric(base, "vllm:kv_cache_usage_perc") for base in (self.args.prefill, self.args.decode)]
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
            body = {
                "model": MODEL,
                "prompt": prompt(37 + int(after_s * 1000), 400),
                "max_tokens": 100,
                "temperature": 0,
                "ignore_eos": True,
                "stream": stream,
            }
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            time.sleep(after_s)
            connection.sock.close() if not stream else connection.close()
            return self.wait_until_idle(before)

        return check

    def wait_until_idle(self, usage_before):
        started = time.monotonic()
        while True:
            engines = {"prefill": self.args.prefill, "decode": self.args.decode}
            running = {
                name: metric(base, "vllm:num_requests_running") + metric(base, "vllm:num_requests_waiting{")
                for name, base in engines.items()
            }
            usage = [metric(base, "vllm:kv_cache_usage_perc") for base in engines.values()]
            if not any(running.values()) and all(now <= before for now, before in zip(usage, usage_before)):
                return f"both idle after {time.monotonic() - started:.1f} s"
            if time.monotonic() - started > DEADLINE_S:
                raise CheckFailure(
                    f"after {DEADLINE_S} s running {running}, cache usage {usage} (before {usage_before})"
                )
            time.sleep(0.2)

    def check_load(self):
        page = get(f"http://{self.args.admin}/metrics")
        leaked = [
            line
            for line in page.splitlines()
            if line.startswith("conductor_worker_requests_in_flight{") and not line.endswith((" 0", " 0.0"))
        ]
        if leaked:
            raise CheckFailure(f"requests still counted as in flight: {leaked}")
        return ""

    def check_restart(self):
        """Kills the prefill engine during a request, starts it again, and sends the next request."""
        outcome = []

        def send_interrupted_request():
            case = {"kind": "completion", "prompt": prompt(41, 450), "stream": False}
            try:
                outcome.append(complete(self.client, case, tokens=50)[0])
            except openai.APIError as error:
                outcome.append(repr(error)[:120])

        thread = threading.Thread(target=send_interrupted_request)
        thread.start()
        time.sleep(0.05)
        subprocess.run(self.args.restart, shell=True, check=True, stdout=subprocess.DEVNULL)
        thread.join()
        started = time.monotonic()
        case = {"kind": "completion", "prompt": prompt(43, 130), "stream": False}
        texts, _ = complete(self.client, case)
        expected = complete(openai_client(self.args.decode), case)[0]
        if texts != expected:
            raise CheckFailure(f"{texts} instead of {expected}")
        duration_s = time.monotonic() - started
        return f"the interrupted request received {outcome[0]!r}; the next one was served in {duration_s:.2f} s"

    def check_dialect(self):
        """Waits until /status reports the expected dialect of the pool."""
        started = time.monotonic()
        while True:
            pool = json.loads(get(f"http://{self.args.admin}/status"))["pools"][0]
            if pool["dialect"] == self.args.detects:
                return f"{pool['dialect']}: {pool['dialect_detection']['reason']}"
            if time.monotonic() - started > DEADLINE_S:
                raise CheckFailure(f"{pool['dialect']}, {pool['dialect_detection']}")
            time.sleep(0.1)

    def check_placements(self):
        page = get(f"http://{self.args.admin}/metrics")
        lines = [line for line in page.splitlines() if line.startswith("conductor_pd_placements_total")]
        counts = {line.split()[0]: line.split()[1] for line in lines}
        pairs = [float(n) for name, n in counts.items() if 'shape="pair"' in name]
        if not pairs or not pairs[0]:
            raise CheckFailure(f"no request was split: {counts}")
        whole = [float(n) for name, n in counts.items() if 'shape="whole"' in name]
        if (self.args.dialect, self.args.detects) == ("auto", "nixl") and any(whole):
            raise CheckFailure(f"some requests were not split: {counts}")
        return str(counts)


def configuration(args):
    bootstrap = f'bootstrap = "{args.bootstrap}"\n' if args.dialect == "mooncake-connector" else ""
    return f"""
[server]
listen = "{args.listen}"
admin-listen = "{args.admin}"
[pools.main]
pd = {{ dialect = "{args.dialect}" }}
[[pools.main.workers]]
url = "{args.prefill}"
role = "prefill"
{bootstrap}
[[pools.main.workers]]
url = "{args.decode}"
role = "decode"
[[routes]]
pool = "main"
policy = "{args.policy}"
"""


def check(args):
    path = "/tmp/conductor-pd.toml"
    with open(path, "w") as file:
        file.write(configuration(args))
    with open(args.truth) as file:
        recorded = json.load(file)
    command = [args.conductor, "--config", path]
    if args.dialect == "auto":
        # Plain flags, without a dialect.
        port = [str(urllib.parse.urlsplit(args.bootstrap).port)] if args.detects == "mooncake-connector" else []
        command = [args.conductor, "--prefill", args.prefill, *port, "--decode", args.decode]
        command += ["--policy", args.policy, "--listen", args.listen]
    router = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                get(f"http://{args.listen}/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline or router.poll() is not None:
                    raise
                time.sleep(0.1)
        checks = PdChecks(args)
        if args.dialect == "auto":
            checks.run("the dialect is detected", checks.check_dialect)
        for case in CASES:
            key = case_key(case)
            checks.run(f"the response equals the recorded one: {key}", checks.equal_to(recorded[key], case))
        checks.run("usage reports the prefill worker's cached tokens", checks.check_cached_tokens)
        checks.run("concurrent requests return the right texts", checks.check_concurrent)
        for after_s in (0.01, 0.05, 0.3):
            for stream, mode in ((False, "whole"), (True, "streamed")):
                claim = f"a disconnect after {after_s} s frees both engines, {mode}"
                checks.run(claim, checks.disconnect(after_s, stream))
        checks.run("no request remains in flight", checks.check_load)
        checks.run("requests were split", checks.check_placements)
        if args.restart:
            checks.run("requests are served after a restart of the prefill engine", checks.check_restart)
            checks.run("no request remains in flight after the restart", checks.check_load)
    finally:
        router.terminate()
        router.wait()
    return checks.failure_count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    dialects = ("nixl", "mooncake-connector")
    record_parser = commands.add_parser("record", help="record the responses of one plain server")
    record_parser.add_argument("--base", required=True)
    record_parser.add_argument("--out", required=True)
    check_parser = commands.add_parser("check", help="check Conductor in front of the pair")
    check_parser.add_argument("--conductor", required=True)
    check_parser.add_argument("--dialect", choices=(*dialects, "auto"), required=True,
                              help="auto: plain flags, and Conductor must detect the dialect")
    check_parser.add_argument("--detects", choices=dialects, default="nixl",
                              help="dialect that Conductor must detect with `--dialect auto`")
    check_parser.add_argument("--prefill", required=True)
    check_parser.add_argument("--decode", required=True)
    check_parser.add_argument("--bootstrap", default="http://127.0.0.1:8998")
    check_parser.add_argument("--truth", required=True, help="file of recorded responses")
    check_parser.add_argument("--policy", default="cache-aware")
    check_parser.add_argument("--restart", help="command that kills and starts the prefill engine")
    check_parser.add_argument("--listen", default="127.0.0.1:8090")
    check_parser.add_argument("--admin", default="127.0.0.1:8091")
    args = parser.parse_args()
    if args.command == "record":
        record(args)
        return 0
    return 1 if check(args) else 0


if __name__ == "__main__":
    sys.exit(main())
