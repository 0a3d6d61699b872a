;; The frame of every scorer of this folder: in the trial of a load (1, 16 and 256 candidates) all candidates are worth 0, and
;; everything else is up to the case, which defines `$live` and may import. The prelude is that of policy-runtime's tests, whose memory
;; has room for the scores from 4096 on.
(func $scores (param $count i32) (result i32)
  (global.set $top (i32.const 8192))
  (i32.store (i32.const 1024) (i32.const 4096))
  (i32.store (i32.const 1028) (local.get $count))
  (i32.const 1024))
(func (export "conductor:policy/score@0.1.0#score")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param i32)
  (result i32)
  (memory.fill (i32.const 4096) (i32.const 0) (i32.mul (local.get $count) (i32.const 8)))
  (if (i32.or
        (i32.or (i32.eq (local.get $count) (i32.const 1)) (i32.eq (local.get $count) (i32.const 16)))
        (i32.eq (local.get $count) (i32.const 256)))
    (then (return (call $scores (local.get $count)))))
  (call $live (local.get $count)))
