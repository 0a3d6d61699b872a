;; Refuses its `params`, whatever they are.
(data (i32.const 256) "weight must be a number")
(data (i32.const 128) "\01\00\00\00\00\01\00\00\17\00\00\00")
(func (export "conductor:policy/policy@0.1.0#configure") (param i32 i32) (result i32)
  (i32.const 128))
(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param i64 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (call $route (i32.const 0) (f64.const 0)))
