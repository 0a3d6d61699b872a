#!/usr/bin/env python3
"""Injects faults into the KV event feeds of two real vLLM servers and measures how long Conductor's index is wrong.

    python tests/engines/vllm_heal.py --conductor target/release/conductor --start ../shared/engines/run.sh \
        --venv /tmp/venv-vllm --model-path /tmp/tiny-model

Conductor follows worker A through a relay of this script (lossy_relay.py), and worker B directly.
The script makes two comparisons after each fault:

- the index (`/query` and `/services` of the index service) with the engine's cache, computed from the engine's event
  history (engine_truth.py);
- the index's matches for requests through Conductor with the engine's own count of reused tokens
  (`usage.prompt_tokens_details.cached_tokens`).

Needs pyzmq and msgpack. tests/engines/README.md has the details.
Exits with 1 after any wrong or late result, or if Conductor's process has exited before the end.
"""

import argparse
import json
import operator
import pathlib
import random
import sys
import time

import engine_truth
from heal_rig import (
    BLOCK,
    COUNTERS,
    DEADLINE_S,
    ConductorProcess,
    EngineServer,
    IndexClient,
    IndexPoller,
    PromptSet,
    RigError,
    TrafficThread,
    complete,
    expected_snapshot,
    post,
)
from lossy_relay import LossyRelay

LIMIT_S = 1.0  # From the repair until the index equals the engine's cache again.
SHORT_FAULTS = ("some_lost", "random_loss", "relay_killed")  # Take seconds.
# Names of methods of `FeedRecoveryTest`.
FAULTS = (*SHORT_FAULTS, "last_lost", "cache_reset", "engine_a_restarted", "engine_b_restarted", "both_gone")


class FeedRecoveryTest:
    def __init__(self, options):
        self.options = options
        self.prompts = PromptSet(options.seed)
        self.random = random.Random(options.seed)
        self.engines = {
            "A": EngineServer("A", 8000, 5557, 5558, options),
            "B": EngineServer("B", 8010, 5567, 5568, options),
        }
        a = self.engines["A"]
        events, replay = (f"tcp://127.0.0.1:{port}" for port in options.ports[3:5])
        self.relay = LossyRelay(a.events, a.replay, events, replay, options.seed)
        self.rows, self.failure_count = [], 0

    def run(self):
        for engine in self.engines.values():
            if engine.is_up() and not engine.has_full_history():
                engine.kill()
            engine.start()
        for engine in self.engines.values():
            engine.wait_until_up()
        self.fill_caches()
        self.relay.start()
        began = time.monotonic()
        self.conductor = ConductorProcess(self.options, self.relay, self.engines)
        self.poller = IndexPoller(self.conductor.indexer, self.prompts.all)
        self.poller.start()
        recovered = {name: self.wait_until_equal(name) for name in self.engines}
        for name in self.engines:
            self.check_recovery(
                "Conductor started after the engine", name, "everything", began, "Conductor's start", 5.0,
                recovered=recovered[name],
            )
        for fault in self.options.only or FAULTS:
            for _ in range(self.options.rounds if fault in SHORT_FAULTS else 1):
                getattr(self, fault)()

    def poll_interval_ms(self):
        """Returns the mean time between two polls of the index, which is the resolution of all measured times."""
        return (self.poller.busy_s / max(1, self.poller.poll_count) + self.poller.pause_s) * 1_000

    def fill_caches(self):
        for engine in self.engines.values():
            for _ in range(12):
                engine.complete(self.prompts.random_prompt())

    # --- checks

    def index_errors(self, name, moment=None, must_differ=True):
        """Returns a summary of the differences between the index at a moment and the engine's current cache.

        No request may run meanwhile. If there must be a difference, its absence is a failure.
        """
        moment = moment or time.monotonic()
        expected_matches, expected_count = expected_snapshot(self.engines[name].cache_state(), self.prompts.all)
        matches, count = self.poller.snapshot_at(moment)[name]
        too_long, too_short = (
            sum(differs(match, expected) for match, expected in zip(matches, expected_matches))
            for differs in (operator.gt, operator.lt)
        )
        if must_differ and too_long + too_short == 0:
            self.failure_count += 1
            print("FAIL  the fault caused no difference", flush=True)
        prompt_count = len(expected_matches)
        return f"{too_long} too long, {too_short} too short of {prompt_count}; {count} blocks for {expected_count}"

    def wait_until_equal(self, name):
        """Waits until the index equals the engine's cache. Returns the cache state and the time since when it does."""
        state = self.engines[name].cache_state()
        expected = expected_snapshot(state, self.prompts.all)
        started = time.monotonic()
        while (since := self.poller.equal_since(name, expected)) is None:
            if time.monotonic() - started > DEADLINE_S or self.poller.error is not None:
                break
            time.sleep(0.02)
        return state, since

    def check_recovery(
        self, fault, name, before, repaired_at, repair="", limit=LIMIT_S, earlier=None, note="", recovered=None
    ):
        """Waits until the index equals the engine's cache, runs all other checks, and adds a row to the table.

        `earlier` has the feed's counters from before the fault, `recovered` the result of an earlier
        `wait_until_equal`.
        """
        state, equal_since = recovered or self.wait_until_equal(name)
        expected = expected_snapshot(state, self.prompts.all)
        row = {"fault": fault, "worker": name, "wrong before": before, "note": note}
        problems = []
        if equal_since is None:
            problems.append(f"index {self.poller.fresh_snapshot()[name]} engine {expected}")
        else:
            took = max(0.0, equal_since - repaired_at)
            row["repair to equal"] = f"{took * 1_000:.0f} ms" + (f" after {repair}" if repair else "")
            if took > limit:
                problems.append(f"took {took:.2f} s")
        row["chains"] = self.check_chains(name, self.wait_until_equal(name)[0] if recovered else state, problems)
        row["cached"] = self.check_cached_tokens(problems)
        now = self.conductor.counters(name) if self.conductor.is_alive() else None
        if now is None:
            problems.append("Conductor has exited")
        else:
            row["feed"] = " ".join(f"{key}+{now[key] - (earlier or {}).get(key, 0)}" for key in COUNTERS)
        row["verdict"] = "ok" if not problems else "FAIL: " + "; ".join(problems)
        self.failure_count += bool(problems)
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def check_chains(self, name, state, problems):
        """Checks that the index matches exactly the held part of every chain the engine ever stored."""
        index, wrong, chains = IndexClient(self.conductor.indexer), 0, state.chains()
        for chain in chains:
            wrong += index.matched_tokens(chain).get(name, 0) != state.matched_tokens(chain, BLOCK)
        if wrong:
            problems.append(f"{wrong} of {len(chains)} chains wrong")
        return f"{len(chains) - wrong}/{len(chains)}"

    def check_cached_tokens(self, problems):
        """Checks for requests through Conductor that the index, the engine's events and its cached tokens agree."""
        probes = self.random.sample(self.prompts.all, 6)
        agreed = 0
        for probe in probes:
            states = {name: engine.cache_state() for name, engine in self.engines.items() if engine.is_up()}
            self.wait_until_all_equal(states)
            headers, cached = complete(f"http://{self.conductor.base}", probe)
            worker, matched = headers["x-conductor-worker"], int(headers["x-conductor-matched-tokens"] or -1)
            held = states[worker].matched_tokens(probe, BLOCK)
            reusable = min(held, (len(probe) - 1) // BLOCK * BLOCK)
            if (matched, cached) == (held, reusable):
                agreed += 1
            else:
                problems.append(f"at {worker}: index {matched}, events {held}, engine reused {cached}")
        return f"{agreed}/{len(probes)}"

    def wait_until_all_equal(self, states):
        """Waits until the index equals these cache states, which include the blocks of the previous probe."""
        started = time.monotonic()
        for name, state in states.items():
            expected = expected_snapshot(state, self.prompts.all)
            while self.poller.fresh_snapshot()[name] != expected and time.monotonic() - started < 3:
                time.sleep(0.02)

    # --- faults

    def send_while(self, condition, pause_s=0.02):
        while condition():
            self.engines["A"].complete(self.prompts.random_prompt())
            time.sleep(pause_s)

    def forward_one(self):
        """Sends requests until the relay forwards a message, by which the subscriber can detect a gap.

        Returns the time of the message.
        """
        forwarded = self.relay.forwarded_count
        while self.relay.forwarded_count == forwarded:
            self.engines["A"].complete(self.prompts.random_prompt())
            time.sleep(0.02)
        return self.relay.last_forwarded_at

    def some_lost(self):
        earlier, lost = self.conductor.counters("A"), self.random.randrange(2, 9)
        self.relay.drop_next(lost)
        self.send_while(self.relay.is_dropping)
        before = self.index_errors("A", self.relay.last_dropped_at + 0.05)
        fault = f"{lost} messages lost, the next is forwarded"
        self.check_recovery(fault, "A", before, self.forward_one(), earlier=earlier)

    def random_loss(self):
        earlier, dropped = self.conductor.counters("A"), self.relay.dropped_count
        until = time.monotonic() + 3
        self.relay.set_loss_rate(0.6)
        self.send_while(
            lambda: time.monotonic() < until or self.relay.last_dropped_at < self.relay.last_forwarded_at
        )
        # The replay of an earlier gap may include the last messages, so a difference is not required.
        before = self.index_errors("A", self.relay.last_dropped_at + 0.05, must_differ=False)
        self.relay.set_loss_rate(0.0)
        repaired_at = self.forward_one()
        fault = f"{self.relay.dropped_count - dropped} messages lost at random in 3 s"
        self.check_recovery(fault, "A", before, repaired_at, earlier=earlier)

    def last_lost(self):
        """Drops one message without a successor: only an idle check detects it. The time is taken from the loss."""
        earlier = self.conductor.counters("A")
        self.forward_one()
        time.sleep(0.2)
        self.relay.drop_next(1)
        self.send_while(self.relay.is_dropping, pause_s=0.15)
        before = self.index_errors("A", self.relay.last_dropped_at + 0.05)
        self.check_recovery(
            "1 message lost, silence follows", "A", before, self.relay.last_dropped_at, "the loss", 2.0, earlier
        )

    def relay_killed(self):
        earlier, seconds = self.conductor.counters("A"), self.random.uniform(1, 8)
        traffic = TrafficThread(self.conductor.base, self.prompts, self.engines["A"])
        traffic.start()
        time.sleep(0.5)
        self.relay.stop()
        traffic.is_fault_active = True
        time.sleep(seconds)
        note = traffic.stop()
        before = self.index_errors("A")
        restored_at = self.relay.start()
        fault = f"relay killed for {seconds:.1f} s and restored"
        self.check_recovery(fault, "A", before, restored_at, earlier=earlier, note=note)

    def cache_reset(self):
        """Resets both caches. An engine publishes the reset with its next step."""
        for name, engine in self.engines.items():
            earlier, cleared = self.conductor.counters(name), engine.cache_state().cleared_count
            held = self.poller.fresh_snapshot()[name][1]
            post(f"{engine.base}/reset_prefix_cache")
            before = f"{held} blocks for 0"
            step_at = time.monotonic()
            engine.complete(self.prompts.random_prompt())
            fault = "/reset_prefix_cache, then a step"
            self.check_recovery(fault, name, before, step_at, "the start of the step", earlier=earlier)
            if engine.cache_state().cleared_count != cleared + 1:
                raise RigError(f"{name} did not publish its reset")

    def restart(self, engine):
        """Restarts an engine. Polls less often meanwhile, because the engine's start needs the processors."""
        self.poller.pause_s, usual_pause_s = 0.5, self.poller.pause_s
        engine.kill()
        engine.start()
        engine.wait_until_up()
        self.poller.pause_s = usual_pause_s

    def check_engine_restart(self, name):
        engine, earlier = self.engines[name], self.conductor.counters(name)
        traffic = TrafficThread(self.conductor.base, self.prompts, pause_s=0.5)
        traffic.start()
        time.sleep(2)
        killed_at = time.monotonic()
        traffic.is_fault_active = True
        self.restart(engine)
        up_at = time.monotonic()
        note = traffic.stop()
        before = self.index_errors(name, killed_at + 0.2)
        fault = f"engine killed, and up again after {up_at - killed_at:.0f} s"
        if name == "A":
            # The subscriber's connection to the relay was never lost: only a message can reveal the restart.
            repaired_at, repair = self.forward_one(), "its first message"
        else:
            repaired_at, repair = up_at, "its start with an empty cache"
        self.check_recovery(fault, name, before, repaired_at, repair, earlier=earlier, note=note)

    def engine_a_restarted(self):
        self.check_engine_restart("A")

    def engine_b_restarted(self):
        self.check_engine_restart("B")

    def both_gone(self):
        """Restarts the engine while the relay is down, and continues until it has passed its old sequence number."""
        engine, earlier = self.engines["A"], self.conductor.counters("A")
        old = engine.cache_state().last
        self.relay.stop()
        self.restart(engine)
        while (engine_truth.replay_history(engine.replay).last or 0) < old + 3:
            engine.complete(self.prompts.random_prompt())
        before = self.index_errors("A")
        restored_at = self.relay.start()
        fault = "engine restarted behind a stopped relay, and past its old sequence number"
        self.check_recovery(fault, "A", before, restored_at, earlier=earlier)


def print_table(rows):
    columns = ["fault", "worker", "wrong before", "repair to equal", "chains", "cached", "feed", "note", "verdict"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/release/conductor")
    parser.add_argument("--start", default="../shared/engines/run.sh",
                        help="script that starts a server; environment: PORT, EV, REPLAY, BLOCKS, VENV, MODEL")
    parser.add_argument("--venv", default="/tmp/venv-vllm")
    parser.add_argument("--model-path", default="/tmp/tiny-model")
    parser.add_argument("--blocks", type=int, default=48, help="KV blocks of a server, few enough to cause evictions")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of each fault that takes only seconds")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--ports", type=int, nargs=5, default=[8190, 8191, 8192, 5657, 5658],
                        help="ports of Conductor, its admin pages, its index service, the relay's events and replays")
    parser.add_argument("--only", nargs="+", choices=FAULTS,
                        help="faults to inject instead of all; the last three take minutes")
    parser.add_argument("--keep", action="store_true", help="leave the servers running for the next run")
    options = parser.parse_args()
    options.start = str(pathlib.Path(options.start).resolve())
    test = FeedRecoveryTest(options)
    test.conductor = None
    exit_code = None
    try:
        test.run()
    except (RigError, engine_truth.HistoryError, OSError) as error:
        test.failure_count += 1
        print(f"FAIL  {error!r}", flush=True)
    finally:
        if test.conductor is not None:
            is_alive = test.conductor.is_alive()
            test.failure_count += not is_alive
            exit_code = test.conductor.stop()
        if not options.keep:
            for engine in test.engines.values():
                engine.kill()
    print_table(test.rows)
    if test.conductor is not None:
        print(f"Conductor: process {test.conductor.process.pid} from the start, "
              f"{'running' if is_alive else 'exited'} at the end, exit code {exit_code} on SIGTERM; "
              f"log: {test.conductor.log}")
        print(f"the index was polled for {len(test.prompts.all)} prompts every {test.poll_interval_ms():.0f} ms")
    print(f"{len(test.rows)} comparisons, {test.failure_count} failures")
    return 1 if test.failure_count else 0


if __name__ == "__main__":
    sys.exit(main())
