//! Deployment to a router whose pages allow a trial that it then refuses.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use harness::sends_to;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{component, policy_at};

/// Returns the page of the policies: the router has the bytes of the folder.
fn policies(folder: &Path) -> Value {
    let sha256 = Sha256::digest(fs::read(folder.join("mine.wasm")).unwrap());
    let sha256 = sha256.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    json!({
        "policy_dir": folder,
        "routes": [{ "route": 1, "policy": "random", "canaries": { "mine": 0.1 } }],
        "policies": [{ "name": "mine", "sha256": sha256 }],
    })
}

/// Answers a request. The bytes of the folder at the time of a change are sent to `seen`.
fn answer(stream: TcpStream, folder: &Path, seen: &SyncSender<Vec<u8>>) {
    let mut stream = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    stream.read_line(&mut request).unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    let (status, page) = match request.split(' ').nth(1) {
        Some("/admin/policies") => ("200 OK", policies(folder)),
        Some("/admin/me") => ("200 OK", json!({ "key_configured": false, "role": "admin" })),
        Some("/admin/policies/mine/canary") => {
            seen.send(fs::read(folder.join("mine.wasm")).unwrap()).unwrap();
            (
                "409 Conflict",
                json!({ "error": { "message": "not now", "code": "fleet_not_ready" } }),
            )
        }
        _ => ("404 Not Found", json!({})),
    };
    let (page, mut stream) = (page.to_string(), stream.into_inner());
    let length = page.len();
    let head = "content-type: application/json\r\nconnection: close";
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{page}"
    )
    .unwrap();
}

#[tokio::test]
async fn a_trial_that_is_refused_once_the_bytes_are_loaded_brings_the_former_bytes_back() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = component(source.path(), 2);
    let (before, at) = (sends_to(0, 1).unwrap(), folder.path().join("mine.wasm"));
    fs::write(&at, &before).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("http://{}", listener.local_addr().unwrap());
    let (seen, changes) = sync_channel(8);
    let served = folder.path().to_owned();
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &served, &seen);
        }
    });
    let run = policy_at(&admin, &["deploy", &file, "--canary", "20"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("not now") && run.stderr.contains("is as before"),
        "{run:?}"
    );
    let live: Vec<_> = changes.try_iter().collect();
    assert!(live == [fs::read(&file).unwrap()]);
    assert!(fs::read(&at).unwrap() == before);
}
