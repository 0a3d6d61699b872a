//! Targets of the attacks, and an account of the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::setup::Router;
use crate::loopback::Loopback;

/// Most bytes that are read of an answer.
const MOST_READ: usize = 64 << 10;

/// The router as attackers see it.
pub(super) struct Field {
    pub(super) clients: Loopback,
    pub(super) admin: Loopback,
    pub(super) indexer: Loopback,
    /// Counts by attack and result.
    tally: Mutex<BTreeMap<(&'static str, String), u64>>,
    smuggled: AtomicU64,
}

impl Field {
    pub(super) fn new(router: &Router) -> Self {
        Self {
            clients: router.target,
            admin: router.admin,
            indexer: router.indexer,
            tally: Mutex::default(),
            smuggled: AtomicU64::new(0),
        }
    }

    /// Records the result of an attack.
    pub(super) fn saw(&self, attack: &'static str, what: impl Into<String>) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        *tally.entry((attack, what.into())).or_default() += 1;
    }

    /// Records an answer to a request that was hidden in another one.
    pub(super) fn saw_smuggled(&self) {
        self.smuggled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn smuggled(&self) -> u64 {
        self.smuggled.load(Ordering::Relaxed)
    }

    pub(super) fn to_markdown(&self) -> String {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from("| attack | what came of it | times |\n| --- | --- | ---: |\n");
        for ((attack, what), times) in tally.iter() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {attack} | {what} | {times} |");
        }
        text
    }
}

/// Connects from an address of the attack's own, as `connections-per-address` counts them.
pub(super) async fn connect(from: u8, to: Loopback) -> io::Result<TcpStream> {
    connect_with(TcpSocket::new_v4()?, from, to).await
}

/// Connects as a peer with a minimal receive window.
pub(super) async fn connect_unwilling(from: u8, to: Loopback) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4 << 10)?;
    connect_with(socket, from, to).await
}

async fn connect_with(socket: TcpSocket, from: u8, to: Loopback) -> io::Result<TcpStream> {
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from)), 0))?;
    let stream = timeout(Duration::from_secs(10), socket.connect(to.address())).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends bytes and reads what comes until the end, or for so long.
pub(super) async fn exchange(from: u8, to: Loopback, bytes: &[u8], patience: Duration) -> io::Result<String> {
    let mut stream = connect(from, to).await?;
    // A refusal may come before everything is sent.
    let sent = timeout(patience, stream.write_all(bytes)).await;
    if sent.is_err() {
        return Ok(String::new());
    }
    Ok(read_all(&mut stream, patience).await)
}

/// Returns the bytes received until the end or the timeout.
pub(super) async fn read_all(stream: &mut TcpStream, patience: Duration) -> String {
    let mut seen = Vec::new();
    let reading = async {
        while seen.len() < MOST_READ {
            match stream.read_buf(&mut seen).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    };
    let _ = timeout(patience, reading).await;
    String::from_utf8_lossy(&seen).into_owned()
}

/// Returns the status of an answer and the code of its error.
pub(super) fn status(answer: &str) -> String {
    let Some(status) = answer.get(9..12) else {
        return "closed without an answer".to_owned();
    };
    let code = answer
        .split_once("\"code\":\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    match code {
        Some((code, _)) => format!("{status} {code}"),
        None => status.to_owned(),
    }
}
