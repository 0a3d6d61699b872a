//! Fast mock OpenAI backends: fixed replies, many ports, one thread, raw epoll.
//!
//! Not a model of an engine (that is the host's mock-engine). There is no cache and no prefill time here, only a
//! counterpart that costs a small part of a proxy's cost. Its optional cache events are synthetic ([`kv`]).

mod connection;
pub mod kv;
mod reply;
mod steps;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::readiness::{Readiness, Waiting};
use connection::{Connection, Next};
use reply::Replies;
use steps::StepClock;

/// The model that every backend serves.
pub const MODEL: &str = "bench";

/// Most connections of one process; further ones are closed at once.
const MAX_CONNECTIONS: usize = 16_384;

/// Most bytes per read.
const READ_BUFFER: usize = 64 * 1024;

/// Bound listeners with their connections.
pub struct Backends {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    connections: Vec<Slot>,
    free: Vec<u32>,
    /// Streams that wait for their next token.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    readiness: Readiness,
    replies: Replies,
    /// Steps of each engine, by its listener.
    steps: Vec<StepClock>,
    scratch: Box<[u8]>,
}

/// Slot of a connection. The generation distinguishes timers of earlier connections.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Backends {
    /// Listens on `count` ports of 127.0.0.1: from `base_port` upwards, or where that is 0 on any that are free.
    /// Streams write one token per `spacing`, the first at once and the others in the steps of their engine; zero means
    /// without pause.
    /// `waiting` is the behaviour while no request is there.
    ///
    /// # Errors
    /// Where a port is taken or the process has no more file descriptors.
    pub fn bind(count: u16, base_port: u16, spacing: Duration, waiting: Waiting) -> Result<Self> {
        let readiness = Readiness::new(waiting).context("failed to create an epoll set")?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        let begun = Instant::now();
        for index in 0..count {
            let port = if base_port == 0 {
                Some(0)
            } else {
                base_port.checked_add(index)
            };
            let port = port.with_context(|| format!("{count} ports from {base_port} exceed 65535"))?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let listener =
                TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))?;
            listener
                .set_nonblocking(true)
                .context("failed to make a listener non-blocking")?;
            readiness
                .watch(&listener, u64::from(index))
                .context("failed to watch a listener")?;
            addresses.push(
                listener
                    .local_addr()
                    .context("failed to read a listener's address")?,
            );
            listeners.push(listener);
        }
        Ok(Self {
            listeners,
            addresses,
            connections: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            readiness,
            replies: Replies::new(spacing),
            steps: (0..count)
                .map(|index| StepClock::new(begun, index, count, spacing))
                .collect(),
            scratch: vec![0; READ_BUFFER].into_boxed_slice(),
        })
    }

    /// Returns the listening addresses.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `stop` returns `true`; it is called at least ten times a second.
    ///
    /// # Errors
    /// epoll fails. A broken connection is only closed.
    pub fn serve(&mut self, mut stop: impl FnMut() -> bool) -> Result<()> {
        let mut ready = Vec::new();
        let mut look_up = Instant::now();
        loop {
            if Instant::now() >= look_up {
                if stop() {
                    return Ok(());
                }
                look_up = Instant::now() + Duration::from_millis(100);
            }
            let until = self
                .due
                .peek()
                .map_or(look_up, |Reverse((due, _))| look_up.min(*due));
            self.readiness
                .wait(Some(until), &mut ready)
                .context("failed to wait for sockets")?;
            for key in &ready {
                match usize::try_from(*key)
                    .ok()
                    .filter(|index| *index < self.listeners.len())
                {
                    Some(listener) => self.accept(listener)?,
                    None => self.advance(*key, false),
                }
            }
            self.send_due_tokens();
        }
    }

    fn send_due_tokens(&mut self) {
        while let Some(Reverse((due, key))) = self.due.peek().copied() {
            if due > Instant::now() {
                return;
            }
            self.due.pop();
            self.advance(key, true);
        }
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        loop {
            let stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error).context("failed to accept a connection"),
            };
            if self.free.is_empty() && self.connections.len() == MAX_CONNECTIONS {
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(Slot::default());
                (self.connections.len() - 1) as u32
            });
            let place = &mut self.connections[slot as usize];
            place.generation = place.generation.wrapping_add(1);
            let key = (self.listeners.len() as u64 + u64::from(slot)) | (u64::from(place.generation) << 32);
            // A connection that cannot be set up is dropped, and its place is free again.
            match Connection::accepted(stream, key, self.steps[listener], &self.readiness) {
                Ok(connection) => place.connection = Some(connection),
                Err(_) => self.free.push(slot),
            }
        }
    }

    /// Lets a connection go on: it is ready, or its next token is due.
    fn advance(&mut self, key: u64, token_due: bool) {
        let slot = (key as u32).wrapping_sub(self.listeners.len() as u32);
        let Some(place) = self.connections.get_mut(slot as usize) else {
            return;
        };
        if place.generation != (key >> 32) as u32 {
            return;
        }
        let Some(connection) = &mut place.connection else {
            return;
        };
        let next = if token_due {
            connection.token_due(&self.replies, &self.readiness)
        } else {
            connection.ready(&mut self.scratch, &self.replies, &self.readiness)
        };
        match next {
            Ok(Next::Wait) => {}
            Ok(Next::TokenAt(due)) => self.due.push(Reverse((due, key))),
            Ok(Next::Close) | Err(_) => {
                place.connection = None;
                self.free.push(slot);
            }
        }
    }
}
