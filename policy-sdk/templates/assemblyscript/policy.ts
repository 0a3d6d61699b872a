// least-queued: routes to the candidate with the fewest requests relative to its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may
// serve any request, so globals must not carry data from one call to the next.

import { Candidates, Request, Verdict, pass, queue, random, route } from "./conductor";

export const NAME = "least-queued";
export const VERSION = "0.1.0";

// Requested numbers, of the request and of each candidate. All names: wit/README.md of Conductor.
export const REQUEST_FEATURES: StaticArray<string> = [];
export const CANDIDATE_FEATURES: StaticArray<string> = ["load.requests", "worker.weight"];
const enum Column { Requests, Weight }

// A candidate with this many requests is full; 0 means no limit.
let maxRequests: f64 = 0;

// Reads the table `[policies.least-queued.params]` of conductor.toml, which arrives as JSON: `{}` or
// `{"max-requests": NUMBER}`. A returned text is shown to the operator, and the previous policy stays active.
export function configure(params: string): string | null {
  maxRequests = 0;
  const text = params.trim();
  if (!text.startsWith("{") || !text.endsWith("}")) return "the parameters must be a table";
  const inner = text.slice(1, -1).trim();
  if (inner.length == 0) return null;
  const colon = inner.indexOf(":");
  if (colon < 0 || inner.slice(0, colon).trim() != '"max-requests"' || inner.includes(",")) {
    return "there is no parameter but `max-requests`";
  }
  maxRequests = parseFloat(inner.slice(colon + 1));
  return maxRequests >= 0 ? null : "`max-requests` must be a number, 0 or more";
}

export function schedule(request: Request, candidates: Candidates): Verdict {
  let least = Infinity;
  let tied: u64 = 0;
  let anyFull = false;
  for (let row = 0; row < candidates.rows; row++) {
    const here = cost(candidates, row);
    if (full(candidates, row)) anyFull = true;
    if (here < least) {
      least = here;
      tied = 1;
    } else if (here == least) {
      tied++;
    }
  }
  if (tied > 0) {
    // Picks one of the tied candidates, each with the same probability.
    let nth = tied > 1 ? ((random() >> 32) * tied) >> 32 : 0;
    let row = 0;
    while (cost(candidates, row) != least || nth-- > 0) row++;
    return route(row, -least);
  }
  // If all are full: first come, first served, since equal orders go by arrival.
  // If no load is known: the router's fallback decides.
  return anyFull ? queue(0, 50) : pass();
}

function full(candidates: Candidates, row: i32): bool {
  return maxRequests > 0 && candidates.get(row, Column.Requests) >= maxRequests;
}

// Returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
// equal. Unknown numbers are NaN: an unknown weight counts as 1, and an unknown load makes the cost NaN.
function cost(candidates: Candidates, row: i32): f64 {
  if (full(candidates, row)) return NaN;
  const weight = candidates.get(row, Column.Weight);
  return candidates.get(row, Column.Requests) / (weight > 0 ? weight : 1);
}
