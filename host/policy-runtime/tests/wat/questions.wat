;; Asks the import that the request's number names and answers with what it heard, as the score.
(import "conductor:policy/host@0.1.0" "log" (func $log (param i32 i32 i32)))
(import "conductor:policy/host@0.1.0" "now-us" (func $now (result i64)))
(import "conductor:policy/host@0.1.0" "random" (func $random (result i64)))
(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))
(import "conductor:policy/index@0.1.0" "matched" (func $matched (param i32 i32)))
(import "conductor:policy/index@0.1.0" "holders" (func $holders (param i32) (result i32)))
(import "conductor:policy/inspect@0.1.0" "header" (func $header (param i32 i32 i32)))
(import "conductor:policy/inspect@0.1.0" "model" (func $model (param i32)))
(import "conductor:policy/workers@0.1.0" "describe" (func $describe (param i32 i32)))

(data (i32.const 256) "turn")
(data (i32.const 272) "Authorization")
(data (i32.const 288) "x-tenant")

(func $answer (param $seq i64) (result f64)
  (local $lines i32)
  ;; 2001: a random number
  (if (i64.eq (local.get $seq) (i64.const 2001))
    (then (return (f64.convert_i64_u (call $random)))))
  ;; 2002: the clock
  (if (i64.eq (local.get $seq) (i64.const 2002))
    (then (return (f64.convert_i64_u (call $now)))))
  ;; 2003: a counter of its state
  (if (i64.eq (local.get $seq) (i64.const 2003))
    (then
      (call $add (i32.const 256) (i32.const 4) (i64.const 1) (i32.const 512))
      (return (f64.convert_i64_s (i64.load (i32.const 520))))))
  ;; 2004: holders of 32 tokens
  (if (i64.eq (local.get $seq) (i64.const 2004))
    (then (return (f64.convert_i32_u (call $holders (i32.const 32))))))
  ;; 2005: tokens matched by row 1 on the host tier
  (if (i64.eq (local.get $seq) (i64.const 2005))
    (then
      (call $matched (i32.const 1) (i32.const 512))
      (return (f64.convert_i32_u (i32.load offset=4 (i32.load (i32.const 512)))))))
  ;; 2006: whether there is an `Authorization` header
  (if (i64.eq (local.get $seq) (i64.const 2006))
    (then
      (call $header (i32.const 272) (i32.const 13) (i32.const 512))
      (return (f64.convert_i32_u (i32.load8_u (i32.const 512))))))
  ;; 2007: the length of `x-tenant`
  (if (i64.eq (local.get $seq) (i64.const 2007))
    (then
      (call $header (i32.const 288) (i32.const 8) (i32.const 512))
      (return (f64.convert_i32_u (i32.load (i32.const 520))))))
  ;; 2008: the length of the name of worker 7
  (if (i64.eq (local.get $seq) (i64.const 2008))
    (then
      (call $describe (i32.const 7) (i32.const 512))
      (return (f64.convert_i32_u (i32.load (i32.const 520))))))
  ;; 2009: the length of the model's name
  (if (i64.eq (local.get $seq) (i64.const 2009))
    (then
      (call $model (i32.const 512))
      (return (f64.convert_i32_u (i32.load (i32.const 516))))))
  ;; 2010: a hundred lines for the log
  (if (i64.eq (local.get $seq) (i64.const 2010))
    (then
      (loop $more
        (call $log (i32.const 1) (i32.const 16) (i32.const 11))
        (local.set $lines (i32.add (local.get $lines) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $lines) (i32.const 100))))
      (return (f64.const 0))))
  ;; 2011: a line that would have the host allocate 2 MiB
  (if (i64.eq (local.get $seq) (i64.const 2011))
    (then
      (drop (memory.grow (i32.const 64)))
      (call $log (i32.const 1) (i32.const 0) (i32.const 0x200000))))
  (f64.const 0))

(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (call $route (i32.const 0) (call $answer (local.get $seq))))
