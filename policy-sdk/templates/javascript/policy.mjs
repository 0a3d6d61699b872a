// least-queued: routes to the candidate with the fewest requests relative to its weight.
//
// The router calls `policy.configure` once for each instance and `schedule.schedule` for every request. Any
// instance may serve any request, so globals must not carry data from one call to the next; use
// "conductor:policy/state@0.1.0".

import host from "conductor:policy/host@0.1.0";

// Requested columns, in this order: `numbers` has them row by row. All names: wit/README.md of Conductor.
const COLUMNS = ["load.requests", "worker.weight"];

// A candidate with this many requests is full; 0 means no limit.
let maxRequests = 0;

export const policy = {
  describe: () => ({ name: "least-queued", version: "0.1.0" }),

  // `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. A thrown text is shown
  // to the operator, and the previous policy stays active.
  configure(params) {
    const { "max-requests": most = 0, ...unknown } = JSON.parse(params);
    for (const name of Object.keys(unknown)) throw `\`${name}\` is not a parameter; the only one is \`max-requests\``;
    if (typeof most !== "number" || !(most >= 0)) throw "`max-requests` must be a number, 0 or more";
    maxRequests = most;
    return { requestFeatures: [], candidateFeatures: COLUMNS };
  },
};

export const schedule = {
  schedule(request, { ids, numbers }) {
    let least = Infinity;
    let tied = [];
    let full = false;
    for (let row = 0, at = 0; row < ids.length; row++, at += COLUMNS.length) {
      const requests = numbers[at];
      if (maxRequests > 0 && requests >= maxRequests) {
        full = true;
        continue;
      }
      // Unknown numbers are NaN. An unknown weight counts as 1. An unknown load makes the cost NaN, which
      // compares as neither less nor equal, so the row is skipped.
      const weight = numbers[at + 1] > 0 ? numbers[at + 1] : 1;
      const cost = requests / weight;
      if (cost < least) {
        least = cost;
        tied = [row];
      } else if (cost === least) {
        tied.push(row);
      }
    }
    if (tied.length === 0) {
      // If all are full: first come, first served, since equal orders go by arrival.
      // If no load is known: the router's fallback decides.
      return full ? { tag: "queue", val: { order: 0, askAgainMs: 50 } } : { tag: "pass" };
    }
    return { tag: "route", val: { row: pick(tied), prefill: null, score: -least } };
  },
};

// Picks one of the rows, each with the same probability.
function pick(rows) {
  if (rows.length === 1) return rows[0];
  // A u64 arrives as a Number, rounded to 53 bits. Its low bits are lost, so `% rows.length` would favour the
  // first rows; scaling the whole range does not.
  const place = Math.floor((host.random() / 2 ** 64) * rows.length);
  return rows[Math.min(place, rows.length - 1)];
}
