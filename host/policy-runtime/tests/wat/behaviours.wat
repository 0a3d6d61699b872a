;; Does what the request's number says: well below 1000, and from there on one misdeed or kind of answer each.
(func $crash unreachable)

(func $recurse (param i32) (result i32)
  (i32.add (i32.const 1) (call $recurse (i32.add (local.get 0) (i32.const 1)))))

(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  ;; 1001: traps
  (if (i64.eq (local.get $seq) (i64.const 1001)) (then (call $crash)))
  ;; 1002: never returns
  (if (i64.eq (local.get $seq) (i64.const 1002)) (then (loop $forever (br $forever))))
  ;; 1003: takes memory until there is no more, then gives up
  (if (i64.eq (local.get $seq) (i64.const 1003))
    (then
      (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
      unreachable))
  ;; 1004: overflows its stack
  (if (i64.eq (local.get $seq) (i64.const 1004)) (then (drop (call $recurse (i32.const 0)))))
  ;; 1005: a verdict of a case that does not exist
  (if (i64.eq (local.get $seq) (i64.const 1005))
    (then (i32.store8 (i32.const 1024) (i32.const 9)) (return (i32.const 1024))))
  ;; 1006: a verdict that is not in memory
  (if (i64.eq (local.get $seq) (i64.const 1006)) (then (return (i32.const 0x7ffffff8))))
  ;; 1007: a row that was not offered
  (if (i64.eq (local.get $seq) (i64.const 1007))
    (then (return (call $route (i32.const 99) (f64.const 0)))))
  ;; 1010: queue(order 2.5, 40 ms)
  (if (i64.eq (local.get $seq) (i64.const 1010))
    (then
      (i32.store8 (i32.const 1024) (i32.const 1))
      (f64.store (i32.const 1032) (f64.const 2.5))
      (i32.store (i32.const 1040) (i32.const 40))
      (return (i32.const 1024))))
  ;; 1011: reject(429, 1500 ms, "test-policy")
  (if (i64.eq (local.get $seq) (i64.const 1011))
    (then
      (i32.store8 (i32.const 1024) (i32.const 2))
      (i32.store (i32.const 1032) (i32.const 429))
      (i32.store (i32.const 1036) (i32.const 1500))
      (i32.store (i32.const 1040) (i32.const 16))
      (i32.store (i32.const 1044) (i32.const 11))
      (return (i32.const 1024))))
  ;; 1012: pass
  (if (i64.eq (local.get $seq) (i64.const 1012))
    (then (i32.store8 (i32.const 1024) (i32.const 3)) (return (i32.const 1024))))
  (call $route (i32.const 0) (f64.const 1)))
