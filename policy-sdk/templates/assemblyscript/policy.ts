// least-queued: the candidate with the fewest requests for its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may answer any
// request, so nothing that matters is kept here between calls.

import { Candidates, Request, Verdict, nowUs, pass, queue, random, route } from "./conductor";

export const NAME = "least-queued";
export const VERSION = "0.1.0";

// The numbers asked for, of the request and of each candidate. All names: wit/README.md of Conductor.
export const REQUEST_FEATURES: StaticArray<string> = [];
export const CANDIDATE_FEATURES: StaticArray<string> = ["load.requests", "worker.weight"];
const enum Column { Requests, Weight }

// A candidate with so many requests gets no more; 0 is no limit.
let maxRequests: f64 = 0;

// Reads the table `[policies.least-queued.params]` of conductor.toml, which arrives as JSON: `{}` or
// `{"max-requests": NUMBER}` is all this policy knows. A refusal is shown to the operator, and the policy before this one
// keeps deciding.
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
    // The n-th of those tied, each as likely as the others.
    let nth = tied > 1 ? ((random() >> 32) * tied) >> 32 : 0;
    let row = 0;
    while (cost(candidates, row) != least || nth-- > 0) row++;
    return route(row, -least);
  }
  // All full: first come, first served. Nobody's load known: the router's own fallback decides.
  return anyFull ? queue(<f64>nowUs(), 50) : pass();
}

function full(candidates: Candidates, row: i32): bool {
  return maxRequests > 0 && candidates.get(row, Column.Requests) >= maxRequests;
}

// Requests for the weight; NaN for a row that is out of the question, since NaN is neither less than nor equal to
// anything. What the router does not know is NaN: an unknown weight counts as 1, and an unknown load stays NaN.
function cost(candidates: Candidates, row: i32): f64 {
  if (full(candidates, row)) return NaN;
  const weight = candidates.get(row, Column.Weight);
  return candidates.get(row, Column.Requests) / (weight > 0 ? weight : 1);
}
