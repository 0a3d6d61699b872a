"""least-queued: the candidate with the fewest requests for its weight.

The router calls `Policy.configure` once for each instance and `Schedule.schedule` for every request. Any instance may
answer any request, so nothing that matters is kept here between calls: that is what `wit_world.imports.state` is for.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.policy import Manifest, Plan
from wit_world.imports import host
from wit_world.imports.types import Candidates, Choice, Hold, Request, Verdict
from wit_world.imports.types import Verdict_Pass, Verdict_Queue, Verdict_Route

# Requested columns, in this order: `numbers` has them row by row. All names: wit/README.md of Conductor.
COLUMNS = ["load.requests", "worker.weight"]

# A candidate with this many requests is full; 0 means no limit.
max_requests = 0.0


class Policy(exports.Policy):
    def describe(self) -> Manifest:
        return Manifest("least-queued", "0.1.0")

    def configure(self, params: str) -> Plan:
        """Reads `[policies.least-queued.params]` of conductor.toml, which arrives as JSON.

        An `Err` is shown to the operator, and the policy before this one keeps deciding.
        """
        global max_requests
        known = json.loads(params)
        most = known.pop("max-requests", 0)
        for name in known:
            raise Err(f"`{name}` is not a parameter; the only one is `max-requests`")
        # In Python, True is an int too.
        if isinstance(most, bool) or not isinstance(most, (int, float)) or not most >= 0:
            raise Err("`max-requests` must be a number, 0 or more")
        max_requests = float(most)
        return Plan(request_features=[], candidate_features=COLUMNS)


class Schedule(exports.Schedule):
    def schedule(self, request: Request, candidates: Candidates) -> Verdict:
        least, tied, full = float("inf"), [], False
        # The same iterator twice yields the two numbers of a row.
        numbers = iter(candidates.numbers)
        for row, (requests, weight) in enumerate(zip(numbers, numbers)):
            if 0 < max_requests <= requests:
                full = True
                continue
            # Unknown numbers are NaN. An unknown weight counts as 1. An unknown load makes the cost NaN,
            # which compares as neither less nor equal, so the row is skipped.
            cost = requests / weight if weight > 0 else requests
            if cost < least:
                least, tied = cost, [row]
            elif cost == least:
                tied.append(row)
        if tied:
            return Verdict_Route(Choice(pick(tied), None, -least))
        # If all are full: first come, first served, since equal orders go by arrival.
        # If no load is known: the router's fallback decides.
        return Verdict_Queue(Hold(0.0, 50)) if full else Verdict_Pass()


def pick(rows: list[int]) -> int:
    """One of the rows, each as likely as the others."""
    return rows[host.random() * len(rows) >> 64] if len(rows) > 1 else rows[0]
