//! The binary as a process: its threads, and what it prints where.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::Write;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Router that ends with its test.
#[cfg(target_os = "linux")]
struct Router(Child);

#[cfg(target_os = "linux")]
impl Router {
    /// Starts `conductor --config FILE` with this service manager, if there is one.
    fn start(config: &Path, manager: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
        command.arg("--config").arg(config);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(socket) = manager {
            command.env("NOTIFY_SOCKET", socket);
        }
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        use rustix::process::{Pid, kill_process};

        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

#[cfg(target_os = "linux")]
impl Drop for Router {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

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
fn block_hashes_of_less_than_a_block_are_none_and_the_reason_is_printed() {
    let mut child = waiting();
    child.stdin.take().unwrap().write_all(b"[1, 2, 3]").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("no hashes") && printed.contains("3 tokens"),
        "{printed}"
    );
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

#[test]
fn a_configuration_from_a_pipe_is_refused_at_once() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("conductor.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    // The pipe has no writer: a start that opened it would wait.
    let output = command.arg("--config").arg(&pipe).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(
        shown.contains("no regular file") && shown.contains("save the text to a file"),
        "{shown}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn the_service_manager_is_notified_of_the_start_of_reloads_and_of_the_stop() {
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use rustix::process::Signal;

    let folder = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let next = || {
        let mut datagram = [0; 1024];
        let length = manager.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    };
    let config = folder.path().join("conductor.toml");
    std::fs::write(
        &config,
        "policy-cache = false\n[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"off\"\ndrain-timeout = \"5s\"\n\
         [pools.main]\nworkers = [{ url = \"http://127.0.0.1:1\" }]\n",
    )
    .unwrap();
    let mut router = Router::start(&config, Some(&folder.path().join("notify")));
    assert_eq!(next(), "READY=1\n");
    // An unchanged configuration, and one that is refused: the router serves after both.
    for text in [None, Some("no-such-key = 1")] {
        if let Some(text) = text {
            std::fs::write(&config, text).unwrap();
        }
        router.signal(Signal::HUP);
        let reloading = next();
        assert!(
            reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reloading}"
        );
        assert_eq!(next(), "READY=1\n");
    }
    router.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=15000000\n");
    assert!(router.0.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_second_signal_cuts_is_answered_and_in_the_access_log() {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use harness::{Fleet, eventually};
    use mock_engine::{RequestFault, Times};
    use rustix::process::Signal;

    let fleet = Fleet::start(1, |_, _| {}).await.unwrap();
    let engine = &fleet.engines[0];
    engine
        .faults()
        .on_requests(RequestFault::Hang, Times::UntilCleared);
    let folder = tempfile::tempdir().unwrap();
    // The router binds it later: on an address of its own, since other tests take any port of 127.0.0.1.
    let address = TcpListener::bind("127.0.0.78:0").unwrap().local_addr().unwrap();
    let (config, access) = (
        folder.path().join("conductor.toml"),
        folder.path().join("access.jsonl"),
    );
    let text = format!(
        "policy-cache = false\n[log]\naccess = {access:?}\n[server]\nlisten = \"{address}\"\nadmin-listen = \"off\"\n\
         drain-timeout = \"60s\"\n{}",
        fleet.workers_toml()
    );
    std::fs::write(&config, text).unwrap();
    let mut router = Router::start(&config, None);
    let connects = || async { TcpStream::connect(address).is_ok() };
    eventually("the router listens", connects).await;
    let mut client = TcpStream::connect(address).unwrap();
    let body = r#"{"model": "mock", "messages": [{"role": "user", "content": "x"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    let has_it = || async { engine.requests("/v1/chat/completions").len() == 1 };
    eventually("the engine has the request", has_it).await;
    router.signal(Signal::TERM);
    eventually("it drains", || async { TcpStream::connect(address).is_err() }).await;
    assert!(router.0.try_wait().unwrap().is_none(), "it waits for the request");
    router.signal(Signal::TERM);
    assert!(!router.0.wait().unwrap().success());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("shutting_down"),
        "{answer}"
    );
    let lines = std::fs::read_to_string(access).unwrap();
    assert!(
        lines.lines().count() == 1 && lines.contains("shut-down"),
        "{lines}"
    );
}
