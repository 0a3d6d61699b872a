;; Routes to the candidate with the least of column 0; unknown is never less.
(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param i32)
  (result i32)
  (local $row i32) (local $best i32) (local $least f64) (local $number f64)
  (local.set $least (f64.const inf))
  (loop $next
    (local.set $number
      (f64.load (i32.add (local.get $numbers) (i32.mul (local.get $row) (i32.const 8)))))
    (if (f64.lt (local.get $number) (local.get $least))
      (then
        (local.set $least (local.get $number))
        (local.set $best (local.get $row))))
    (local.set $row (i32.add (local.get $row) (i32.const 1)))
    (br_if $next (i32.lt_u (local.get $row) (local.get $count))))
  (call $route (local.get $best) (f64.neg (local.get $least))))
