;; Takes two parameters: `weight`, a number from 0 to 10, and `zone`, a text that must be given.
(data (i32.const 256) "weightnumber1.5xWhat it is worth.zonetextWhere it is.")
(data (i32.const 320)
  "\00\01\00\00\06\00\00\00" "\06\01\00\00\06\00\00\00"   ;; weight, number
  "\0c\01\00\00\03\00\00\00" "\0f\01\00\00\01\00\00\00"   ;; 1.5, x
  "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\24\40"   ;; 0 to 10
  "\00\00\00\00\00\00\00\00" "\10\01\00\00\11\00\00\00"   ;; no choices, What it is worth.
  "\21\01\00\00\04\00\00\00" "\25\01\00\00\04\00\00\00"   ;; zone, text
  "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"   ;; no default, no unit
  "\00\00\00\00\00\00\f8\7f" "\00\00\00\00\00\00\f8\7f"   ;; no bounds
  "\00\00\00\00\00\00\00\00" "\29\01\00\00\0c\00\00\00")  ;; no choices, Where it is.
(data (i32.const 448) "\40\01\00\00\02\00\00\00")
(func (export "conductor:policy/parameters@0.1.0#parameters") (result i32)
  (i32.const 448))
