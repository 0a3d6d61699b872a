;; The plan of a case that has none of its own: no request feature, the column `load.requests`.
(data (i32.const 48) "load.requests")
(data (i32.const 128)
  "\00\00\00\00"                       ;; ok
  "\00\00\00\00\00\00\00\00"           ;; request features: none
  "\98\00\00\00\01\00\00\00"           ;; candidate features: 1 at 152
  "\00\00\00\00"
  "\30\00\00\00\0d\00\00\00")          ;; 13 bytes at 48
(func (export "conductor:policy/policy@0.1.0#configure") (param i32 i32) (result i32)
  (i32.const 128))
