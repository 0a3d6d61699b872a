//! Ends of the commands that show pages again and again.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command;

#[test]
fn an_interrupt_ends_a_command_that_watches_a_router_without_an_answer() {
    let router = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", router.local_addr().unwrap());
    for name in ["workers", "status"] {
        let mut watching = command(&[name, "--watch", "--output", "json", "--admin", &url]);
        let mut watching = watching.stdout(Stdio::null()).spawn().unwrap();
        // It waits for the answer now.
        let _connection = router.accept().unwrap();
        let pid = Pid::from_raw(i32::try_from(watching.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while watching.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Nothing is left of it if it does not end.
        let _ = watching.kill();
        assert_eq!(watching.wait().unwrap().code(), Some(130), "{name}");
    }
}
