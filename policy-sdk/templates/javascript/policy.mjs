// least-queued: the candidate with the fewest requests for its weight.
//
// The router calls `policy.configure` once for each instance and `schedule.schedule` for every request. Any instance
// may answer any request, so nothing that matters is kept here between calls: that is what
// "conductor:policy/state@0.1.0" is for.

import host from "conductor:policy/host@0.1.0";

// The columns asked for, in this order: `numbers` has them row after row. All names: wit/README.md of Conductor.
const COLUMNS = ["load.requests", "worker.weight"];

// A candidate with so many requests gets no more; 0 is no limit.
let maxRequests = 0;

export const policy = {
  describe: () => ({ name: "least-queued", version: "0.1.0" }),

  // `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. What is thrown is shown to the
  // operator, and the policy before this one keeps deciding.
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
      // What the router does not know is NaN. A weight that is unknown counts as 1; an unknown load makes the cost NaN,
      // which is neither less than nor equal to anything, so that the row is passed over.
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
      // All full: first come, first served. Nobody's load known: the router's own fallback decides.
      return full ? { tag: "queue", val: { order: host.nowUs(), askAgainMs: 50 } } : { tag: "pass" };
    }
    return { tag: "route", val: { row: pick(tied), prefill: null, score: -least } };
  },
};

// One of the rows, each as likely as the others.
function pick(rows) {
  if (rows.length === 1) return rows[0];
  // A u64 arrives as a Number, rounded to 53 bits: its low bits are gone, so `% rows.length` would favour the first
  // rows. Its place between 0 and 2^64 is what is random.
  const place = Math.floor((host.random() / 2 ** 64) * rows.length);
  return rows[Math.min(place, rows.length - 1)];
}
