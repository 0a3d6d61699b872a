// Exported functions in the form of the canonical ABI; build.sh renames them to the names of the contract.

import { Candidates, Phase, Request, answer, storeText, storeTexts } from "./conductor";
import { CANDIDATE_FEATURES, NAME, REQUEST_FEATURES, VERSION, configure, schedule } from "./policy";

export function exportedDescribe(): usize {
  storeText(answer, NAME);
  storeText(answer + 8, VERSION);
  return answer;
}

export function exportedConfigure(params: usize, length: usize): usize {
  const text = String.UTF8.decodeUnsafe(params, length);
  release(params, length);
  const refusal = configure(text);
  store<u8>(answer, refusal === null ? 0 : 1);
  if (refusal !== null) {
    storeText(answer + 4, refusal);
  } else {
    storeTexts(answer + 4, REQUEST_FEATURES);
    storeTexts(answer + 12, CANDIDATE_FEATURES);
  }
  return answer;
}

const request = changetype<Request>(memory.data(offsetof<Request>(), 8));
const candidates = changetype<Candidates>(memory.data(offsetof<Candidates>(), 8));

export function exportedSchedule(
  seq: u64, hasSession: i32, session: u64, phase: i32, attempt: u32,
  ids: usize, rows: i32, numbers: usize, count: i32,
): usize {
  request.seq = seq;
  request.session = session;
  request.hasSession = hasSession != 0;
  request.phase = <Phase>phase;
  request.attempt = attempt;
  candidates.set(ids, numbers, rows);
  const verdict = schedule(request, candidates);
  release(ids, rows);
  release(numbers, count);
  return verdict;
}

// Called after the router has read the result: the memory of the call can be collected. There is no
// collection before.
export function afterConfigure(_answer: usize): void { __collect(); }
export function afterSchedule(_answer: usize): void { __collect(); }

// Allocates memory in which the router places a list. The router never grows a list.
export function cabi_realloc(old: usize, oldSize: usize, align: usize, size: usize): usize {
  if (size == 0) return align;
  return old == 0 ? heap.alloc(size) : heap.realloc(old, size);
}

function release(list: usize, length: usize): void {
  if (length != 0) heap.free(list);
}
