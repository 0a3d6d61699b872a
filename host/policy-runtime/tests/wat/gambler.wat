;; Answers from chance and from what it remembers: the score's bits are a NaN with a random payload, the row follows a counter.
;; Asks as often as the request's number says, up to 600 times; request 3001 asks for the model first; from 3002 on it traps
;; after its questions.
(import "conductor:policy/host@0.1.0" "random" (func $random (result i64)))
(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
(import "conductor:policy/inspect@0.1.0" "model" (func $model (param i32)))

(data (i32.const 256) "turn")

(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32) (param $candidates i32) (param i32 i32) (result i32)
  (local $left i64)
  (local.set $left (local.get $seq))
  (if (i64.gt_u (local.get $left) (i64.const 600)) (then (local.set $left (i64.const 1))))
  (if (i64.eq (local.get $seq) (i64.const 3001)) (then (call $model (i32.const 640))))
  (loop $more
    (call $add (i32.const 256) (i32.const 4) (i64.const 1) (i32.const 512))
    (local.set $left (i64.sub (local.get $left) (i64.const 1)))
    (br_if $more (i64.gt_s (local.get $left) (i64.const 0))))
  (if (i64.gt_u (local.get $seq) (i64.const 3001)) (then unreachable))
  (call $route
    (i32.rem_u (i32.load (i32.const 520)) (local.get $candidates))
    (f64.reinterpret_i64 (i64.or (call $random) (i64.const 0x7ff0000000000001)))))
