//! The binary as a process: its threads, and what it prints where.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::Write;
use std::process::{Child, Command, Stdio};

/// Starts `conductor block-hashes`, which waits for a prompt.
fn waiting() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(["block-hashes", "--scheme", "rfc1527"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn block_hashes_of_less_than_a_block_are_none_and_it_says_why() {
    let mut child = waiting();
    child.stdin.take().unwrap().write_all(b"[1, 2, 3]").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("no hashes") && told.contains("3 tokens"), "{told}");
}

/// Without such a thread, what an idle router freed last stays with the process.
#[cfg(target_os = "linux")]
#[test]
fn the_allocator_gives_memory_back_in_a_thread_of_its_own() {
    use std::time::{Duration, Instant};

    let mut child = waiting();
    let tasks = format!("/proc/{}/task", child.id());
    let threads = || -> Vec<String> {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .collect()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !threads().iter().any(|name| name.starts_with("jemalloc")) {
        assert!(Instant::now() < deadline, "its threads are {:?}", threads());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}
