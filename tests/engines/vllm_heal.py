#!/usr/bin/env python3
"""Breaks the KV event feeds of two real vLLM servers in every way we know and measures how long Conductor's index is wrong.

    python tests/engines/vllm_heal.py --conductor target/release/conductor --start ../shared/engines/run.sh \
        --venv /tmp/venv-vllm --model-path /tmp/tiny-model

Worker A is followed through a relay of the script's own (lossy_relay.py), worker B directly. After each disturbance the
index (`/query` and `/services` of the index service) is compared with what the engine holds by its own account
(engine_truth.py: its history replayed from 0), and then requests through Conductor with what the engine really reused
(`usage.prompt_tokens_details.cached_tokens`). Needs pyzmq and msgpack; tests/engines/README.md tells more. Exits with 1
when an answer is wrong, late, or Conductor is not the same process at the end.
"""

import argparse
import json
import operator
import pathlib
import random
import sys
import time

import engine_truth
from heal_rig import BLOCK, COUNTERS, DEADLINE_S, Conductor, Engine, Failed, Index, Prompts, Traffic, Watcher, complete, expected, post
from lossy_relay import LossyRelay

LIMIT_S = 1.0  # From the repair until the index is equal to the engine again.
IN_SECONDS = ("some_lost", "random_loss", "relay_killed")
DISTURBANCES = (*IN_SECONDS, "last_lost", "cache_reset", "engine_a_restarted", "engine_b_restarted", "both_gone")


class Proof:
    def __init__(self, options):
        self.options = options
        self.prompts = Prompts(options.seed)
        self.random = random.Random(options.seed)
        self.engines = {
            "A": Engine("A", 8000, 5557, 5558, options),
            "B": Engine("B", 8010, 5567, 5568, options),
        }
        a = self.engines["A"]
        events, replay = (f"tcp://127.0.0.1:{port}" for port in options.ports[3:5])
        self.relay = LossyRelay(a.events, a.replay, events, replay, options.seed)
        self.rows, self.failures = [], 0

    def run(self):
        for engine in self.engines.values():
            if engine.is_up() and not engine.has_history():
                engine.kill()
            engine.start()
        for engine in self.engines.values():
            engine.wait_up()
        self.fill()
        self.relay.start()
        began = time.monotonic()
        self.conductor = Conductor(self.options, self.relay, self.engines)
        self.watcher = Watcher(self.conductor.indexer, self.prompts.all)
        self.watcher.start()
        healed = {name: self.heal(name) for name in self.engines}
        for name in self.engines:
            self.judge("Conductor started after the engine", name, "everything", began, "its own start", 5.0, healed=healed[name])
        for disturb in self.options.only or DISTURBANCES:
            for _ in range(self.options.rounds if disturb in IN_SECONDS else 1):
                getattr(self, disturb)()

    def pause_ms(self):
        """Between two looks at the index: times are exact to this."""
        return (self.watcher.busy_s / max(1, self.watcher.asked) + self.watcher.pause_s) * 1_000

    def fill(self):
        for engine in self.engines.values():
            for _ in range(12):
                engine.complete(self.prompts.any())

    # --- judging

    def wrong(self, name, moment=None, must=True):
        """How many prompts the index was wrong about then, by what the engine holds now; in which nothing may run."""
        moment = moment or time.monotonic()
        depths, held = expected(self.engines[name].truth(), self.prompts.all)
        claimed, count = self.watcher.at(moment)[name]
        more, less = (sum(better(a, b) for a, b in zip(claimed, depths)) for better in (operator.gt, operator.lt))
        if must and more + less == 0:
            self.failures += 1
            print("FAIL  the disturbance changed nothing", flush=True)
        return f"{more} too long, {less} too short of {len(depths)}; {count} blocks for {held}"

    def heal(self, name):
        """Waits until the index is equal to the engine. Answers what the engine holds, and since when it is."""
        truth = self.engines[name].truth()
        wanted = expected(truth, self.prompts.all)
        started = time.monotonic()
        while (since := self.watcher.equal_since(name, wanted)) is None:
            if time.monotonic() - started > DEADLINE_S or self.watcher.error is not None:
                break
            time.sleep(0.02)
        return truth, since

    def judge(self, what, name, before, repaired_at, began_at="", limit=LIMIT_S, since=None, note="", healed=None):
        """Waits until the index is equal to the engine, checks everything else there is, and adds a row."""
        truth, equal_since = healed or self.heal(name)
        wanted = expected(truth, self.prompts.all)
        row = {"what": what, "worker": name, "wrong before": before, "note": note}
        problems = []
        if equal_since is None:
            problems.append(f"index {self.watcher.now()[name]} engine {wanted}")
        else:
            took = max(0.0, equal_since - repaired_at)
            row["repair to equal"] = f"{took * 1_000:.0f} ms" + (f" after {began_at}" if began_at else "")
            if took > limit:
                problems.append(f"took {took:.2f} s")
        row["chains"] = self.chains(name, self.heal(name)[0] if healed else truth, problems)
        row["cached"] = self.cached(problems)
        now = self.conductor.counters(name) if self.conductor.is_alive() else None
        if now is None:
            problems.append("conductor is gone")
        else:
            row["feed"] = " ".join(f"{key}+{now[key] - (since or {}).get(key, 0)}" for key in COUNTERS)
        row["verdict"] = "ok" if not problems else "FAIL: " + "; ".join(problems)
        self.failures += bool(problems)
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def chains(self, name, truth, problems):
        """Every chain that the engine ever stored, held or not: exactly the held part is in the index."""
        index, wrong, chains = Index(self.conductor.indexer), 0, truth.chains()
        for chain in chains:
            wrong += index.depths(chain).get(name, 0) != truth.depth(chain, BLOCK)
        if wrong:
            problems.append(f"{wrong} of {len(chains)} chains wrong")
        return f"{len(chains) - wrong}/{len(chains)}"

    def cached(self, problems):
        """Requests through Conductor: the index's answer, the engine's events and what the engine reused agree."""
        probes = self.random.sample(self.prompts.all, 6)
        agreed = 0
        for probe in probes:
            truths = {name: engine.truth() for name, engine in self.engines.items() if engine.is_up()}
            self.wait_equal(truths)
            headers, cached = complete(f"http://{self.conductor.base}", probe)
            worker, matched = headers["x-conductor-worker"], int(headers["x-conductor-matched-tokens"] or -1)
            held = truths[worker].depth(probe, BLOCK)
            usable = min(held, (len(probe) - 1) // BLOCK * BLOCK)
            if (matched, cached) == (held, usable):
                agreed += 1
            else:
                problems.append(f"at {worker}: index {matched}, events {held}, engine reused {cached}")
        return f"{agreed}/{len(probes)}"

    def wait_equal(self, truths):
        """A probe that was not held is stored by its engine: what follows is asked for when the index has that."""
        started = time.monotonic()
        for name, truth in truths.items():
            wanted = expected(truth, self.prompts.all)
            while self.watcher.now()[name] != wanted and time.monotonic() - started < 3:
                time.sleep(0.02)

    # --- disturbances

    def lose_while(self, condition, pause_s=0.02):
        while condition():
            self.engines["A"].complete(self.prompts.any())
            time.sleep(pause_s)

    def passes_again(self):
        """The next message gets through: since then the subscriber can know that others did not."""
        passed = self.relay.passed
        while self.relay.passed == passed:
            self.engines["A"].complete(self.prompts.any())
            time.sleep(0.02)
        return self.relay.last_passed_at

    def some_lost(self):
        since, lost = self.conductor.counters("A"), self.random.randrange(2, 9)
        self.relay.drop(lost)
        self.lose_while(self.relay.dropping)
        before = self.wrong("A", self.relay.last_lost_at + 0.05)
        self.judge(f"{lost} messages lost, the next passes", "A", before, self.passes_again(), since=since)

    def random_loss(self):
        since, lost = self.conductor.counters("A"), self.relay.lost
        until = time.monotonic() + 3
        self.relay.lose(0.6)
        self.lose_while(lambda: time.monotonic() < until or self.relay.last_lost_at < self.relay.last_passed_at)
        # A replay that an earlier gap asked for may bring the last ones too.
        before = self.wrong("A", self.relay.last_lost_at + 0.05, must=False)
        self.relay.lose(0.0)
        repaired_at = self.passes_again()
        self.judge(f"{self.relay.lost - lost} messages lost at random in 3 s", "A", before, repaired_at, since=since)

    def last_lost(self):
        """No message follows: only a look finds this one. The clock starts at the loss."""
        since = self.conductor.counters("A")
        self.passes_again()
        time.sleep(0.2)
        self.relay.drop(1)
        self.lose_while(self.relay.dropping, pause_s=0.15)
        before = self.wrong("A", self.relay.last_lost_at + 0.05)
        self.judge("1 message lost, silence follows", "A", before, self.relay.last_lost_at, "the loss", 2.0, since)

    def relay_killed(self):
        since, seconds = self.conductor.counters("A"), self.random.uniform(1, 8)
        traffic = Traffic(self.conductor.base, self.prompts, self.engines["A"])
        traffic.start()
        time.sleep(0.5)
        self.relay.stop()
        traffic.broken = True
        time.sleep(seconds)
        note = traffic.end()
        before = self.wrong("A")
        restored_at = self.relay.start()
        self.judge(f"relay killed for {seconds:.1f} s and restored", "A", before, restored_at, since=since, note=note)

    def cache_reset(self):
        """An engine tells of a reset with its next step."""
        for name, engine in self.engines.items():
            since, cleared = self.conductor.counters(name), engine.truth().cleared
            held = self.watcher.now()[name][1]
            post(f"{engine.base}/reset_prefix_cache")
            before = f"{held} blocks for 0"
            step_at = time.monotonic()
            engine.complete(self.prompts.any())
            self.judge("/reset_prefix_cache, then a step", name, before, step_at, "the step began", since=since)
            if engine.truth().cleared != cleared + 1:
                raise Failed(f"{name} did not tell of its reset")

    def restart(self, engine):
        """Leaves the processors to the engine meanwhile: nearly all of its start is computing."""
        self.watcher.pause_s, usual = 0.5, self.watcher.pause_s
        engine.kill()
        engine.start()
        engine.wait_up()
        self.watcher.pause_s = usual

    def engine_restarted(self, name):
        engine, since = self.engines[name], self.conductor.counters(name)
        traffic = Traffic(self.conductor.base, self.prompts, pause_s=0.5)
        traffic.start()
        time.sleep(2)
        killed_at = time.monotonic()
        traffic.broken = True
        self.restart(engine)
        up_at = time.monotonic()
        note = traffic.end()
        before = self.wrong(name, killed_at + 0.2)
        what = f"engine killed, and up again after {up_at - killed_at:.0f} s"
        if name == "A":
            # To the subscriber the relay was there all the time: it takes a message to tell.
            self.judge(what, name, before, self.passes_again(), "its first message", since=since, note=note)
        else:
            self.judge(what, name, before, up_at, "it was up, empty", since=since, note=note)

    def engine_a_restarted(self):
        self.engine_restarted("A")

    def engine_b_restarted(self):
        self.engine_restarted("B")

    def both_gone(self):
        """The engine starts anew and goes on past the numbers known, while the feed is down."""
        engine, since = self.engines["A"], self.conductor.counters("A")
        old = engine.truth().last
        self.relay.stop()
        self.restart(engine)
        while (engine_truth.replay(engine.replay).last or 0) < old + 3:
            engine.complete(self.prompts.any())
        before = self.wrong("A")
        restored_at = self.relay.start()
        self.judge("engine restarted and past the old numbers behind a dead relay", "A", before, restored_at, since=since)


def table(rows):
    columns = ["what", "worker", "wrong before", "repair to equal", "chains", "cached", "feed", "note", "verdict"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/release/conductor")
    parser.add_argument("--start", default="../shared/engines/run.sh", help="starts a server: PORT, EV, REPLAY, BLOCKS, VENV, MODEL")
    parser.add_argument("--venv", default="/tmp/venv-vllm")
    parser.add_argument("--model-path", default="/tmp/tiny-model")
    parser.add_argument("--blocks", type=int, default=48, help="KV blocks of a server: few, so that it evicts")
    parser.add_argument("--rounds", type=int, default=3, help="of everything that takes seconds only")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--ports", type=int, nargs=5, default=[8190, 8191, 8192, 5657, 5658],
                        help="Conductor's, its admin's and index service's, and the relay's for events and replay")
    parser.add_argument("--only", nargs="+", choices=DISTURBANCES, help="instead of all; the last three take minutes")
    parser.add_argument("--keep", action="store_true", help="leave the servers running for the next run")
    options = parser.parse_args()
    options.start = str(pathlib.Path(options.start).resolve())
    proof = Proof(options)
    proof.conductor = None
    ended = None
    try:
        proof.run()
    except (Failed, engine_truth.NoHistory, OSError) as error:
        proof.failures += 1
        print(f"FAIL  {error!r}", flush=True)
    finally:
        if proof.conductor is not None:
            alive = proof.conductor.is_alive()
            proof.failures += not alive
            ended = proof.conductor.end()
        if not options.keep:
            for engine in proof.engines.values():
                engine.kill()
    table(proof.rows)
    if proof.conductor is not None:
        print(f"conductor: one process from the start ({proof.conductor.process.pid}), "
              f"{'running' if alive else 'gone'} at the end, {ended} on SIGTERM; its log: {proof.conductor.log}")
        print(f"the index was asked about {len(proof.prompts.all)} prompts every {proof.pause_ms():.0f} ms")
    print(f"{len(proof.rows)} comparisons, {proof.failures} failures")
    return 1 if proof.failures else 0


if __name__ == "__main__":
    sys.exit(main())
