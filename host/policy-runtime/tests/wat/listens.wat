;; Is told of dispatches, of failures, and of what may never happen; counts in `state` what it was told and how often it ticked. What
;; it is told to do comes as the number of an event: 666 traps, 667 spins, 668 asks for the name of the event's worker.
(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
(import "conductor:policy/workers@0.1.0" "describe" (func $describe (param i32 i32)))
(import "conductor:policy/host@0.1.0" "now-us" (func $now (result i64)))

(data (i32.const 256) "told-0")
(data (i32.const 264) "ticks")
(data (i32.const 272) "name-length")
(data (i32.const 288) "now")
(data (i32.const 304) "request.dispatched")
(data (i32.const 324) "moon.full?")
(data (i32.const 336) "request.failed")
;; The list of three.
(data (i32.const 352) "\30\01\00\00\12\00\00\00\44\01\00\00\0a\00\00\00\50\01\00\00\0e\00\00\00")
(data (i32.const 376) "\60\01\00\00\03\00\00\00")

(func (export "conductor:policy/events@0.1.0#subscribe") (result i32) (i32.const 376))

(func $count (param $key i32) (param $length i32) (param $by i64)
  (call $add (local.get $key) (local.get $length) (local.get $by) (i32.const 512)))

;; An event takes 56 bytes: kind 0, at-us 8, seq 16, session 24 (flag) and 32, worker 40, number 48.
(func (export "conductor:policy/events@0.1.0#handle") (param $at i32) (param $count i32)
  (local $number f64)
  (call $count (i32.const 288) (i32.const 3) (call $now))
  (block $done
    (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (i32.store8 (i32.const 261) (i32.add (i32.const 48) (i32.load (local.get $at))))
      (call $count (i32.const 256) (i32.const 6) (i64.const 1))
      (local.set $number (f64.load offset=48 (local.get $at)))
      (if (f64.eq (local.get $number) (f64.const 666)) (then unreachable))
      (if (f64.eq (local.get $number) (f64.const 667)) (then (loop $on (br $on))))
      (if (f64.eq (local.get $number) (f64.const 668))
        (then
          (call $describe (i32.load offset=40 (local.get $at)) (i32.const 640))
          (call $count (i32.const 272) (i32.const 11) (i64.extend_i32_u (i32.load (i32.const 648))))))
      (local.set $at (i32.add (local.get $at) (i32.const 56)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
  (global.set $top (i32.const 8192)))

(func (export "conductor:policy/tick@0.1.0#tick") (result i32)
  (call $count (i32.const 264) (i32.const 5) (i64.const 1))
  (i32.const 5))

(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (call $route (i32.const 0) (f64.const 0)))
