;; A scorer: each candidate's number, negated. Of request 1001 it traps, of 1002 it gives one score too few, of 1003 all are NaN,
;; and to request 1004 the first score is what the state counts.
(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
(data (i32.const 256) "turn")
(func (export "conductor:policy/score@0.1.0#score")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param $length i32)
  (result i32)
  (local $at i32) (local $row i32) (local $score f64)
  (if (i64.eq (local.get $seq) (i64.const 1001)) (then unreachable))
  ;; In place: the numbers are this instance's own.
  (local.set $at (local.get $numbers))
  (block $end
    (loop $next
      (br_if $end (i32.ge_u (local.get $row) (local.get $count)))
      (local.set $score (f64.neg (f64.load (local.get $at))))
      (if (i64.eq (local.get $seq) (i64.const 1003)) (then (local.set $score (f64.const nan))))
      (f64.store (local.get $at) (local.get $score))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (local.set $row (i32.add (local.get $row) (i32.const 1)))
      (br $next)))
  (if (i64.eq (local.get $seq) (i64.const 1004))
    (then
      (call $add (i32.const 256) (i32.const 4) (i64.const 1) (i32.const 512))
      (f64.store (local.get $numbers) (f64.convert_i64_s (i64.load (i32.const 520))))))
  (i32.store (i32.const 1024) (local.get $numbers))
  (i32.store (i32.const 1028)
    (i32.sub (local.get $count) (i64.eq (local.get $seq) (i64.const 1002))))
  (global.set $top (i32.const 8192))
  (i32.const 1024))
