//! Ends of the commands that show pages again and again.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{command, fleet, read_until, router, run, run_of_follower};

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

#[tokio::test]
async fn live_commands_show_the_routers_that_are_there_while_another_is_away() {
    let fleet = fleet().await;
    let (here, other) = (router(&fleet).await, router(&fleet).await);
    let away = other.admin.base().to_owned();
    other.stop().await.unwrap();

    let mut top = command(&["top", "--admin", here.admin.base(), "--admin", &away]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let shown = async {
        let (lines, is_named) = read_until(lines, "failed to reach").await;
        is_named && read_until(lines, "ready, generation 1").await.1
    };
    let shown = tokio::time::timeout(Duration::from_secs(20), shown).await;
    // The end of `top` ends its lines.
    top.kill().unwrap();
    top.wait().unwrap();
    assert!(shown.unwrap());

    let rows = run_of_follower(&here, &["-n", "1", "--admin", &away]).await;
    assert!(rows.stdout.contains("complete"), "{rows:?}");
    assert_eq!(rows.code, 1, "{rows:?}");

    let none = run(command(&["top", "--count", "1", "--admin", &away])).await;
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains(&away), "{none:?}");
}
