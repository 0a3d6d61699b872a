;; Stubs of WASI preview 1 for Go's runtime, because a policy has no WASI. With these functions inside, the
;; component imports nothing but the router's contract. None of them blocks, and all are deterministic.
;; `wasm-tools component new --adapt` links those that Go imports.
(module
  (import "env" "memory" (memory 0))

  ;; ---- clock: advances by a microsecond on each read, because Go's timers require progress
  (global $now (mut i64) (i64.const 1000000))
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $at i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $at) (global.get $now))
    (i32.const 0))
  (func (export "clock_res_get") (param $clock i32) (param $at i32) (result i32)
    (i64.store (local.get $at) (i64.const 1000))
    (i32.const 0))

  ;; ---- sleep: the first subscription completes immediately; if it is a clock, the clock advances to it
  (func (export "poll_oneoff")
    (param $wanted i32) (param $happened i32) (param $count i32) (param $how_many i32) (result i32)
    (if (i32.eqz (i32.load8_u offset=8 (local.get $wanted)))
      (then (global.set $now (i64.add (global.get $now) (i64.load offset=24 (local.get $wanted))))))
    (memory.fill (local.get $happened) (i32.const 0) (i32.const 32))
    (i64.store (local.get $happened) (i64.load (local.get $wanted)))
    (i32.store8 offset=10 (local.get $happened) (i32.load8_u offset=8 (local.get $wanted)))
    (i32.store (local.get $how_many) (i32.const 1))
    (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))

  ;; ---- random numbers for Go's maps: the same in every instance. A policy calls `Random`.
  (global $seed (mut i64) (i64.const 0x9e3779b97f4a7c15))
  (func (export "random_get") (param $at i32) (param $count i32) (result i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (global.set $seed
          (i64.add (i64.mul (global.get $seed) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i32.store8 (local.get $at) (i32.wrap_i64 (i64.shr_u (global.get $seed) (i64.const 56))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; ---- output: discarded, but counted as written
  (func (export "fd_write") (param $file i32) (param $parts i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $parts))))
        (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))

  ;; ---- exit, as after a panic: a trap ends the call
  (func (export "proc_exit") (param i32) unreachable)
  (func (export "proc_raise") (param i32) (result i32) unreachable)

  ;; ---- no arguments and no environment
  (func $none (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (export "args_sizes_get" (func $none))
  (export "environ_sizes_get" (func $none))
  (func $nothing (param i32 i32) (result i32) (i32.const 0))
  (export "args_get" (func $nothing))
  (export "environ_get" (func $nothing))

  ;; ---- no files, folders or sockets: 8 is "bad file descriptor", 52 "not supported"
  (func $bad1 (param i32) (result i32) (i32.const 8))
  (export "fd_close" (func $bad1))
  (export "fd_datasync" (func $bad1))
  (export "fd_sync" (func $bad1))
  (func $bad2 (param i32 i32) (result i32) (i32.const 8))
  (export "fd_fdstat_get" (func $bad2))
  (export "fd_fdstat_set_flags" (func $bad2))
  (export "fd_filestat_get" (func $bad2))
  (export "fd_prestat_get" (func $bad2))
  (export "fd_renumber" (func $bad2))
  (export "fd_tell" (func $bad2))
  (export "sock_shutdown" (func $bad2))
  (func $bad3 (param i32 i32 i32) (result i32) (i32.const 8))
  (export "fd_prestat_dir_name" (func $bad3))
  (export "path_create_directory" (func $bad3))
  (export "path_remove_directory" (func $bad3))
  (export "path_unlink_file" (func $bad3))
  (export "sock_accept" (func $bad3))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 52))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52)))
