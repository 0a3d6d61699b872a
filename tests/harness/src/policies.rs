//! Handwritten policies: well-behaved ones, distinguishable by the worker they choose, and hostile ones, which pass
//! the trial of a load and misbehave in service.
//!
//! All of them recognise the trial by its numbers of candidates, so a test needs another number of workers: two or
//! three.

use anyhow::{Context, Result};
use policy_component::componentise;

const FRAME: &str = include_str!("policies/hostile.wat");
const LISTENER: &str = include_str!("policies/listener.wat");
const SCORER: &str = include_str!("policies/scorer.wat");
const PRELUDE: &str = include_str!("../../../host/policy-runtime/tests/wat/prelude.wat");
const PLAN: &str = include_str!("../../../host/policy-runtime/tests/wat/plan.wat");

/// A policy that misbehaves.
#[derive(Debug, Clone, Copy)]
pub struct Hostile {
    /// Behaviour.
    pub name: &'static str,
    /// The router detects its faults and opens its circuit.
    pub is_faulty: bool,
    live: &'static str,
}

/// Hostile policies, one of each kind.
pub const HOSTILE: [Hostile; 10] = [
    Hostile {
        name: "spin",
        is_faulty: true,
        live: "(func $live (param i32) (result i32) (loop $on (br $on)) unreachable)",
    },
    Hostile {
        name: "slow host-call loop",
        is_faulty: true,
        live: r#"
            (import "conductor:policy/index@0.1.0" "matched" (func $matched (param i32 i32)))
            (func $live (param i32) (result i32)
              (loop $on
                (global.set $top (i32.const 8192))
                (call $matched (i32.const 2) (i32.const 512))
                (br $on))
              unreachable)"#,
    },
    Hostile {
        name: "memory bomb",
        is_faulty: true,
        live: "
            (func $live (param i32) (result i32)
              (loop $more
                (memory.fill
                  (i32.mul (i32.sub (memory.size) (i32.const 1)) (i32.const 65536)) (i32.const 1) (i32.const 65536))
                (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
              unreachable)",
    },
    Hostile {
        name: "stack bomb",
        is_faulty: true,
        live: "
            (func $deeper (param i32) (result i32)
              (i32.add (i32.const 1) (call $deeper (i32.add (local.get 0) (i32.const 1)))))
            (func $live (param i32) (result i32) (call $deeper (i32.const 0)))",
    },
    Hostile {
        name: "huge strings",
        is_faulty: true,
        live: r#"
            (import "conductor:policy/host@0.1.0" "log" (func $log (param i32 i32 i32)))
            (func $live (param i32) (result i32)
              (drop (memory.grow (i32.const 128)))
              (call $log (i32.const 1) (i32.const 0) (i32.const 0x800000))
              (call $route (i32.const 0) (f64.const 0)))"#,
    },
    Hostile {
        name: "trap on every fifth call",
        is_faulty: true,
        live: "
            (global $calls (mut i32) (i32.const 0))
            (func $live (param i32) (result i32)
              (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
              (if (i32.eqz (i32.rem_u (global.get $calls) (i32.const 5))) (then unreachable))
              (call $route (i32.const 0) (f64.const 0)))",
    },
    Hostile {
        name: "nondeterministic answers",
        is_faulty: false,
        live: "
            (global $calls (mut i32) (i32.const 0))
            (func $live (param $count i32) (result i32)
              (global.set $calls (i32.add (global.get $calls) (i32.const 7)))
              (call $route (i32.rem_u (global.get $calls) (local.get $count)) (f64.const nan)))",
    },
    Hostile {
        name: "wrong index",
        is_faulty: true,
        live: "(func $live (param i32) (result i32) (call $route (i32.const 99) (f64.const 0)))",
    },
    Hostile {
        name: "import flood",
        is_faulty: true,
        live: r#"
            (import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
            (import "conductor:policy/host@0.1.0" "random" (func $random (result i64)))
            (func $live (param i32) (result i32)
              (local $calls i32)
              (loop $more
                (i64.store (i32.const 512)
                  (i64.or (i64.and (call $random) (i64.const 0x3f3f3f3f3f3f3f3f)) (i64.const 0x2020202020202020)))
                (call $add (i32.const 512) (i32.const 8) (i64.const 1) (i32.const 640))
                (local.set $calls (i32.add (local.get $calls) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $calls) (i32.const 1000000))))
              (call $route (i32.const 0) (f64.const 0)))"#,
    },
    Hostile {
        name: "log flood",
        is_faulty: false,
        live: r#"
            (import "conductor:policy/host@0.1.0" "log" (func $log (param i32 i32 i32)))
            (func $live (param i32) (result i32)
              (local $lines i32)
              (loop $more
                (call $log (i32.const 3) (i32.const 16) (i32.const 11))
                (local.set $lines (i32.add (local.get $lines) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $lines) (i32.const 1000))))
              (call $route (i32.const 0) (f64.const 0)))"#,
    },
];

impl Hostile {
    /// Returns its component.
    ///
    /// # Errors
    /// Where this module has a mistake.
    pub fn component(&self) -> Result<Vec<u8>> {
        component(self.live).with_context(|| self.name)
    }
}

/// Returns a policy that sends everything to one row: worker `wN` of a fleet that is whole. `version` makes other bytes
/// of it.
///
/// # Errors
/// Where this module has a mistake.
pub fn sends_to(row: usize, version: usize) -> Result<Vec<u8>> {
    component(&format!(
        "(global (export \"version\") i32 (i32.const {version}))
         (func $live (param i32) (result i32) (call $route (i32.const {row}) (f64.const 0)))"
    ))
}

/// Returns a policy that traps in its first calls, over all its instances, and from then on sends to one row.
///
/// # Errors
/// Where this module has a mistake.
pub fn recovers_after(calls: usize, row: usize) -> Result<Vec<u8>> {
    component(&format!(
        "(import \"conductor:policy/state@0.1.0\" \"add\" (func $add (param i32 i32 i64 i32)))
         (data (i32.const 256) \"calls\")
         (func $live (param i32) (result i32)
           (call $add (i32.const 256) (i32.const 5) (i64.const 1) (i32.const 512))
           (if (i64.le_u (i64.load (i32.const 520)) (i64.const {calls})) (then unreachable))
           (call $route (i32.const {row}) (f64.const 0)))"
    ))
}

/// Returns a policy that learns from events: it takes the first candidate that has not failed a request yet, as its
/// `state` counts.
///
/// # Errors
/// Where this module has a mistake.
pub fn avoids_failed_workers() -> Result<Vec<u8>> {
    framed(
        LISTENER,
        r#"(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
           (data (i32.const 256) "fail-0")
           (func $fails (param $worker i32) (param $by i64) (result i64)
             (i32.store8 (i32.const 261) (i32.add (i32.const 48) (i32.rem_u (local.get $worker) (i32.const 10))))
             (call $add (i32.const 256) (i32.const 6) (local.get $by) (i32.const 512))
             (i64.load (i32.const 520)))
           (func $heard (param $event i32)
             (if (i32.eqz (i32.load (local.get $event)))
               (then (drop (call $fails (i32.load offset=40 (local.get $event)) (i64.const 1))))))
           (func $choose (param $ids i32) (param $count i32) (result i32)
             (local $row i32)
             (loop $next
               (if (i64.eqz
                     (call $fails
                       (i32.load (i32.add (local.get $ids) (i32.shl (local.get $row) (i32.const 2)))) (i64.const 0)))
                 (then (return (local.get $row))))
               (local.set $row (i32.add (local.get $row) (i32.const 1)))
               (br_if $next (i32.lt_u (local.get $row) (local.get $count))))
             (i32.const 0))"#,
    )
}

/// Returns a policy that chooses the first candidate and traps at every event.
///
/// # Errors
/// A mistake in this module.
pub fn traps_at_events() -> Result<Vec<u8>> {
    with_listener("(func $heard (param i32) unreachable)")
}

/// Returns a policy that never returns from an event.
///
/// # Errors
/// A mistake in this module.
pub fn spins_at_events() -> Result<Vec<u8>> {
    with_listener("(func $heard (param i32) (loop $on (br $on)))")
}

fn with_listener(handler: &str) -> Result<Vec<u8>> {
    framed(
        LISTENER,
        &format!("{handler} (func $choose (param i32 i32) (result i32) (i32.const 0))"),
    )
}

/// Returns a scorer that gives one row 1 and the others 0. `version` makes other bytes of it.
///
/// # Errors
/// Where this module has a mistake.
pub fn favours(row: usize, version: usize) -> Result<Vec<u8>> {
    let at = 4096 + 8 * row;
    framed(
        SCORER,
        &format!(
            "(global (export \"version\") i32 (i32.const {version}))
             (func $live (param i32) (result i32)
               (f64.store (i32.const {at}) (f64.const 1))
               (call $scores (local.get 0)))"
        ),
    )
}

/// Returns a scorer that traps.
///
/// # Errors
/// Where this module has a mistake.
pub fn traps_scoring() -> Result<Vec<u8>> {
    framed(SCORER, "(func $live (param i32) (result i32) unreachable)")
}

/// Returns a scorer that gives one score too few.
///
/// # Errors
/// Where this module has a mistake.
pub fn scores_too_few() -> Result<Vec<u8>> {
    let live = "(func $live (param i32) (result i32) (call $scores (i32.sub (local.get 0) (i32.const 1))))";
    framed(SCORER, live)
}

fn component(live: &str) -> Result<Vec<u8>> {
    framed(FRAME, live)
}

fn framed(frame: &str, live: &str) -> Result<Vec<u8>> {
    let module = wat::parse_str(format!("(module {live} {frame} {PLAN} {PRELUDE})"))?;
    Ok(componentise(&module)?)
}
