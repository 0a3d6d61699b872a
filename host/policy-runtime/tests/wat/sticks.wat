;; Sticks to where its session was remembered, else to row 1; forgets it after request 9.
(import "conductor:policy/sessions@0.1.0" "recall" (func $recall (param i32)))
(import "conductor:policy/sessions@0.1.0" "remember" (func $remember (param i32 i32)))
(import "conductor:policy/sessions@0.1.0" "forget" (func $forget))
(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32) (param $count i32) (param i32 i32) (result i32)
  (call $recall (i32.const 512))
  (if (i64.eq (local.get $seq) (i64.const 9)) (then (call $forget)))
  (if (i32.eqz (i32.load8_u (i32.const 512)))
    (then
      ;; A row that does not exist is not remembered.
      (call $remember (i32.const 99) (i32.const 60000))
      (call $remember (i32.const 1) (i32.const 60000))
      (return (call $route (i32.gt_u (local.get $count) (i32.const 1)) (f64.const 0)))))
  (call $route (i32.load offset=4 (i32.const 512)) (f64.const 1)))
