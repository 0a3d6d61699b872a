// The router's contract (wit/policy.wit) in AssemblyScript, together with exports.ts. It is written by hand,
// because there is no binding generator. It follows the canonical ABI of the component model: a list is an
// address and a length, and results lie in memory. The policy itself is policy.ts.

import { CANDIDATE_FEATURES, REQUEST_FEATURES } from "./policy";

// ---- input of a policy

export const enum Phase { Mixed, Prefill, Decode }

@unmanaged
export class Request {
  seq: u64;
  session: u64;
  hasSession: bool;
  phase: Phase;
  attempt: u32;
}

@unmanaged
export class Candidates {
  private ids: usize;
  private numbers: usize;
  rows: i32;

  // Returns the id of the worker in that row.
  id(row: i32): u32 { return load<u32>(this.ids + (<usize>row << 2)); }

  // Returns a number of the request.
  ofRequest(feature: i32): f64 { return load<f64>(this.numbers + (<usize>feature << 3)); }

  // Returns a number of the candidate in that row.
  get(row: i32, column: i32): f64 {
    const at = REQUEST_FEATURES.length + row * CANDIDATE_FEATURES.length + column;
    return load<f64>(this.numbers + (<usize>at << 3));
  }

  set(ids: usize, numbers: usize, rows: i32): void {
    this.ids = ids;
    this.numbers = numbers;
    this.rows = rows;
  }
}

// Functions of the router's interface "host". Functions of the other interfaces are declared the same way, by
// their lowered signatures.

// Returns a uniform 64-bit number; the sequence is the same for the same request.
@external("conductor:policy/host@0.1.0", "random")
export declare function random(): u64;

// Returns microseconds on a monotonic clock, which is frozen during a call.
@external("conductor:policy/host@0.1.0", "now-us")
export declare function nowUs(): u64;

export const enum Level { Debug, Info, Warn, Error }
@external("conductor:policy/host@0.1.0", "log")
declare function lowered_log(level: u32, text: usize, length: usize): void;

// Writes a line to the router's log.
export function log(level: Level, text: string): void {
  const bytes = String.UTF8.encode(text);
  lowered_log(level, changetype<usize>(bytes), bytes.byteLength);
}

// ---- output of a policy

// Address of the verdict in memory: a tag at 0, and its fields from 8 on.
export type Verdict = usize;
export const answer: usize = memory.data(32, 8);

export function route(row: i32, score: f64): Verdict {
  store<u8>(answer, 0);
  store<u32>(answer, row, 8);
  store<u8>(answer, 0, 12); // No separate prefill worker.
  store<f64>(answer, score, 24);
  return answer;
}

export function queue(order: f64, askAgainMs: u32): Verdict {
  store<u8>(answer, 1);
  store<f64>(answer, order, 8);
  store<u32>(answer, askAgainMs, 16);
  return answer;
}

export function reject(status: u16, retryAfterMs: u32, reason: string): Verdict {
  store<u8>(answer, 2);
  store<u16>(answer, status, 8);
  store<u32>(answer, retryAfterMs, 12);
  storeText(answer + 16, reason);
  return answer;
}

export function pass(): Verdict {
  store<u8>(answer, 3);
  return answer;
}

// ---- texts in memory, as UTF-8

export function storeText(at: usize, text: string): void {
  const bytes = String.UTF8.encode(text);
  store<usize>(at, changetype<usize>(bytes));
  store<usize>(at, bytes.byteLength, 4);
}

export function storeTexts(at: usize, texts: StaticArray<string>): void {
  const list = new StaticArray<u64>(texts.length);
  for (let i = 0; i < texts.length; i++) storeText(changetype<usize>(list) + (<usize>i << 3), texts[i]);
  store<usize>(at, changetype<usize>(list));
  store<usize>(at, texts.length, 4);
}
