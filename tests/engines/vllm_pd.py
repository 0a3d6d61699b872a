#!/usr/bin/env python3
"""Checks Conductor in front of a real prefill/decode pair of vLLM servers.

    python tests/engines/vllm_pd.py record --base http://127.0.0.1:8000 --out /tmp/truth.json
    python tests/engines/vllm_pd.py check --conductor target/release/conductor --dialect nixl \
        --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 --truth /tmp/truth.json [--restart COMMAND]

`record` asks one plain vLLM (same model, same weights) and keeps its answers; `check` starts Conductor over the pair and
wants the same tokens, for chat and completions, streamed and not, several at once, and with n > 1; that a client who leaves frees both
engines (their /metrics say so); and, given a command that kills the prefill engine and starts it again, that the next
request after it is served though its engine id is new. Needs the `openai` package. Prints one line a check and exits
with 1 when one fails. tests/engines/README.md has the commands that start the engines.
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


class Failed(Exception):
    pass


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def metric(base, name):
    lines = [line for line in get(f"{base}/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.split()[-1]) for line in lines)


def prompt(seed, length):
    return [(seed * at + 3) % 1900 for at in range(length)]


def talk(words):
    return [{"role": "user", "content": f"tell me, please, about {words} and how one walks a tree of it"}]


# Each is answered by both; greedy, so that equal weights give equal tokens.
CASES = [
    {"name": f"completion of {length} tokens", "kind": "completion", "prompt": prompt(seed, length), "stream": stream}
    for seed, length in ((7, 3), (11, 31), (13, 32), (17, 130), (19, 400))
    for stream in (False, True)
] + [
    {"name": f"chat about {words}", "kind": "chat", "messages": talk(words), "stream": stream}
    for words in ("the os module", "a very long list of files, folders, links and pipes that nobody has read")
    for stream in (False, True)
] + [{"name": "two answers at once", "kind": "completion", "prompt": prompt(23, 130), "stream": False, "n": 2}]


def ask(client, case, tokens=8):
    common = {"model": MODEL, "max_tokens": tokens, "stream": case["stream"], "temperature": 0, "extra_body": {"ignore_eos": True}}
    if "n" in case:
        # vLLM takes several answers of a request only where it samples; one candidate makes that greedy.
        common |= {"n": case["n"], "temperature": 0.01, "seed": 1, "extra_body": {"ignore_eos": True, "top_k": 1}}
    if case["stream"]:
        common["stream_options"] = {"include_usage": True}
    if case["kind"] == "chat":
        answer = client.chat.completions.create(messages=case["messages"], **common)
    else:
        answer = client.completions.create(prompt=case["prompt"], **common)
    if not case["stream"]:
        texts = [c.message.content if case["kind"] == "chat" else c.text for c in answer.choices]
        return texts, answer.usage
    text, usage = "", None
    for chunk in answer:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += (choice.delta.content if case["kind"] == "chat" else choice.text) or ""
    return [text], usage


def client_of(base):
    return openai.OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, timeout=120)


def record(args):
    client = client_of(args.base)
    answers = {}
    for case in CASES:
        texts, usage = ask(client, case)
        answers[f"{case['name']}, {'streamed' if case['stream'] else 'whole'}"] = {"texts": texts, "prompt": usage.prompt_tokens}
    with open(args.out, "w") as out:
        json.dump(answers, out, indent=1)
    print(f"recorded {len(answers)} answers")


class Check:
    def __init__(self, args):
        self.args, self.failed = args, 0
        self.base = f"http://{args.listen}"
        self.client = client_of(self.base)

    def run(self, name, check):
        started = time.monotonic()
        try:
            said = check()
        except Failed as problem:
            self.failed += 1
            print(f"FAILED {name}: {problem}", flush=True)
        else:
            print(f"ok     {name}{': ' + said if said else ''} ({time.monotonic() - started:.2f} s)", flush=True)

    def compare(self, case, truth):
        def check():
            texts, usage = ask(self.client, case)
            if texts != truth["texts"]:
                raise Failed(f"{texts} is not {truth['texts']}")
            if usage.prompt_tokens != truth["prompt"]:
                raise Failed(f"usage counts {usage.prompt_tokens} prompt tokens and not {truth['prompt']}")
            details = usage.prompt_tokens_details
            return f"cached {details.cached_tokens if details else None} of {usage.prompt_tokens}"

        return check

    def truthful(self):
        """The same long prompt twice: the second finds on the prefill side what the first left there, and no more."""
        case = {"kind": "completion", "prompt": prompt(29, 200), "stream": False}
        cached = []
        for stream in (False, True):
            _, usage = ask(self.client, case | {"stream": stream})
            cached.append(usage.prompt_tokens_details.cached_tokens)
        if cached[0] != 0 or cached[1] != 192:
            raise Failed(f"cached {cached}, and not 0 and then 192")
        return f"cached {cached}"

    def together(self):
        cases = [{"kind": "completion", "prompt": prompt(31 + seed, 90), "stream": seed % 2 == 0} for seed in range(12)]
        alone = [ask(client_of(self.args.decode), case)[0] for case in cases]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda case: ask(self.client, case)[0], cases))
        wrong = sum(a != b for a, b in zip(alone, answers))
        if wrong:
            raise Failed(f"{wrong} of {len(cases)} answers differ from the decode engine's own")
        return f"{len(cases)} answers as the decode engine gives alone"

    def leave(self, after_s, stream):
        """A client that hangs up: both engines have nothing running and no block in use soon after."""
        url = urllib.parse.urlsplit(self.base)

        def check():
            before = [metric(base, "vllm:kv_cache_usage_perc") for base in (self.args.prefill, self.args.decode)]
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
            body = {"model": MODEL, "prompt": prompt(37 + int(after_s * 1000), 400), "max_tokens": 100, "temperature": 0, "ignore_eos": True, "stream": stream}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            time.sleep(after_s)
            connection.sock.close() if not stream else connection.close()
            return self.until_free(before)

        return check

    def until_free(self, before):
        started = time.monotonic()
        while True:
            engines = {"prefill": self.args.prefill, "decode": self.args.decode}
            running = {name: metric(base, "vllm:num_requests_running") + metric(base, "vllm:num_requests_waiting{") for name, base in engines.items()}
            used = [metric(base, "vllm:kv_cache_usage_perc") for base in engines.values()]
            if not any(running.values()) and all(now <= then for now, then in zip(used, before)):
                return f"both free after {time.monotonic() - started:.1f} s"
            if time.monotonic() - started > DEADLINE_S:
                raise Failed(f"after {DEADLINE_S} s running {running}, cache in use {used} (before {before})")
            time.sleep(0.2)

    def loads_are_zero(self):
        page = get(f"http://{self.args.admin}/metrics")
        left = [line for line in page.splitlines() if line.startswith("conductor_worker_requests_in_flight{") and not line.endswith((" 0", " 0.0"))]
        if left:
            raise Failed(f"still booked: {left}")
        return ""

    def restart(self):
        """Kills the prefill engine in the middle of a request, starts it again, and asks."""
        outcome = []

        def victim():
            try:
                outcome.append(ask(self.client, {"kind": "completion", "prompt": prompt(41, 450), "stream": False}, tokens=50)[0])
            except openai.APIError as error:
                outcome.append(repr(error)[:120])

        thread = threading.Thread(target=victim)
        thread.start()
        time.sleep(0.05)
        subprocess.run(self.args.restart, shell=True, check=True, stdout=subprocess.DEVNULL)
        thread.join()
        started = time.monotonic()
        texts, usage = ask(self.client, {"kind": "completion", "prompt": prompt(43, 130), "stream": False})
        alone = ask(client_of(self.args.decode), {"kind": "completion", "prompt": prompt(43, 130), "stream": False})[0]
        if texts != alone:
            raise Failed(f"{texts} is not {alone}")
        return f"the request under way got {outcome[0]!r}; the next was served in {time.monotonic() - started:.2f} s"

    def detected(self):
        """What /status says of the pool, within the time of a few rounds."""
        started = time.monotonic()
        while True:
            pool = json.loads(get(f"http://{self.args.admin}/status"))["pools"][0]
            if pool["dialect"] == self.args.detects:
                return f"{pool['dialect']}: {pool['dialect_detection']['reason']}"
            if time.monotonic() - started > DEADLINE_S:
                raise Failed(f"{pool['dialect']}, {pool['dialect_detection']}")
            time.sleep(0.1)

    def pairs(self):
        page = get(f"http://{self.args.admin}/metrics")
        counts = {line.split()[0]: line.split()[1] for line in page.splitlines() if line.startswith("conductor_pd_placements_total")}
        pairs = [float(n) for name, n in counts.items() if 'shape="pair"' in name]
        if not pairs or not pairs[0]:
            raise Failed(f"nothing was split: {counts}")
        whole = [float(n) for name, n in counts.items() if 'shape="whole"' in name]
        if (self.args.dialect, self.args.detects) == ("auto", "nixl") and any(whole):
            raise Failed(f"not everything was split: {counts}")
        return str(counts)


def config(args):
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
        file.write(config(args))
    with open(args.truth) as file:
        truths = json.load(file)
    command = [args.conductor, "--config", path]
    if args.dialect == "auto":
        # As a user starts it who says nothing of how the engines hand over.
        port = [str(urllib.parse.urlsplit(args.bootstrap).port)] if args.detects == "mooncake-connector" else []
        command = [args.conductor, "--prefill", args.prefill, *port, "--decode", args.decode, "--policy", args.policy, "--listen", args.listen]
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
        checks = Check(args)
        if args.dialect == "auto":
            checks.run("the dialect is detected", checks.detected)
        for case in CASES:
            name = f"{case['name']}, {'streamed' if case['stream'] else 'whole'}"
            checks.run(name, checks.compare(case, truths[name]))
        checks.run("usage tells what the prefill side had cached", checks.truthful)
        checks.run("several at once", checks.together)
        for after_s in (0.01, 0.05, 0.3):
            checks.run(f"a client that leaves after {after_s} s, whole", checks.leave(after_s, False))
            checks.run(f"a client that leaves after {after_s} s, streamed", checks.leave(after_s, True))
        checks.run("no load is left booked", checks.loads_are_zero)
        checks.run("requests were split", checks.pairs)
        if args.restart:
            checks.run("the prefill engine killed and started again", checks.restart)
            checks.run("no load is left booked then", checks.loads_are_zero)
    finally:
        router.terminate()
        router.wait()
    return checks.failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--base", required=True)
    recording.add_argument("--out", required=True)
    checking = commands.add_parser("check")
    checking.add_argument("--conductor", required=True)
    checking.add_argument("--dialect", choices=("nixl", "mooncake-connector", "auto"), required=True, help="auto: plain flags, and it must be detected")
    checking.add_argument("--detects", choices=("nixl", "mooncake-connector"), default="nixl", help="with `--dialect auto`: what the engines speak")
    checking.add_argument("--prefill", required=True)
    checking.add_argument("--decode", required=True)
    checking.add_argument("--bootstrap", default="http://127.0.0.1:8998")
    checking.add_argument("--truth", required=True)
    checking.add_argument("--policy", default="cache-aware")
    checking.add_argument("--restart")
    checking.add_argument("--listen", default="127.0.0.1:8090")
    checking.add_argument("--admin", default="127.0.0.1:8091")
    args = parser.parse_args()
    if args.command == "record":
        record(args)
        return 0
    return 1 if check(args) else 0


if __name__ == "__main__":
    sys.exit(main())
