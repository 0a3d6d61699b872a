;; The frame of policies that are told events. The trial of a load, whose events all happen at the same moment, is passed; what a case
;; makes of an event is its `$heard`, and which of the candidates it takes its `$choose`. The kinds: 0 a failed request, 1 and 2
;; workers that come and go, 3 a dispatched request. An event takes 56 bytes: its kind at 0, its time at 8, its worker at 40.
(data (i32.const 304) "request.failed")
(data (i32.const 320) "worker.joined")
(data (i32.const 336) "worker.left")
(data (i32.const 392) "request.dispatched")
(data (i32.const 352)
  "\30\01\00\00\0e\00\00\00\40\01\00\00\0d\00\00\00\50\01\00\00\0b\00\00\00\88\01\00\00\12\00\00\00")
(data (i32.const 384) "\60\01\00\00\04\00\00\00")

(func (export "conductor:policy/events@0.1.0#subscribe") (result i32) (i32.const 384))

(func (export "conductor:policy/events@0.1.0#handle") (param $event i32) (param $count i32)
  (block $done
    (br_if $done (i64.eq (i64.load offset=8 (local.get $event)) (i64.const 999000)))
    (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (call $heard (local.get $event))
      (local.set $event (i32.add (local.get $event) (i32.const 56)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
  (global.set $top (i32.const 8192)))

(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param i32)
  (result i32)
  (call $route (call $choose (local.get $ids) (local.get $count)) (f64.const 0)))
