//! One connection of a mock backend: requests in, fixed replies out, at most one reply under way.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::reply::{Endpoint, Replies, Reply};
use super::steps::StepClock;
use crate::http::{Framing, Head, MessageReader, MessageSink};
use crate::readiness::Readiness;

/// The longest request body kept, in bytes; the connection of a longer one is closed.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// Event that a connection waits for.
pub(super) enum Next {
    /// Socket.
    Wait,
    /// The socket or this time, when the next token of the stream is due.
    TokenAt(Instant),
    /// The connection is done.
    Close,
}

pub(super) struct Connection {
    stream: TcpStream,
    key: u64,
    reader: MessageReader,
    request: Request,
    /// Bytes to write, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    tokens: Option<Tokens>,
    /// Steps of the engine.
    steps: StepClock,
}

/// The rest of a streamed reply.
struct Tokens {
    left: u32,
    due: Instant,
    spacing: Duration,
    /// Steps that the tokens after the first come in, if the engine's pace is the stream's.
    steps: Option<StepClock>,
}

#[derive(Default)]
struct Request {
    endpoint: Option<Endpoint>,
    body: Vec<u8>,
    too_long: bool,
}

impl MessageSink for Request {
    fn head(&mut self, head: &Head<'_>) {
        self.endpoint = Some(Endpoint::of(head.start));
        self.body.clear();
        if let Framing::Exact(length) = head.framing {
            self.body
                .reserve(usize::try_from(length).unwrap_or(usize::MAX).min(MAX_BODY));
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        self.too_long |= self.body.len() + bytes.len() > MAX_BODY;
        if !self.too_long {
            self.body.extend_from_slice(bytes);
        }
    }
}

impl Connection {
    pub(super) fn accepted(
        stream: TcpStream,
        key: u64,
        steps: StepClock,
        readiness: &Readiness,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        readiness.watch(&stream, key)?;
        Ok(Self {
            stream,
            key,
            reader: MessageReader::default(),
            request: Request::default(),
            unsent: Vec::new(),
            sent: 0,
            tokens: None,
            steps,
        })
    }

    /// Handles a socket that has input, or room for unsent bytes.
    pub(super) fn ready(
        &mut self,
        scratch: &mut [u8],
        replies: &Replies,
        readiness: &Readiness,
    ) -> io::Result<Next> {
        if !self.unsent.is_empty() {
            self.flush(readiness)?;
            if self.unsent.is_empty() && self.tokens.is_some() {
                return self.stream_on(replies, readiness);
            }
        }
        let received = match self.stream.read(scratch) {
            Ok(0) => return Ok(Next::Close),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Next::Wait);
            }
            Err(error) => return Err(error),
        };
        self.receive(&scratch[..received], replies, readiness)
    }

    fn receive(&mut self, mut bytes: &[u8], replies: &Replies, readiness: &Readiness) -> io::Result<Next> {
        let mut next = Next::Wait;
        while !bytes.is_empty() {
            // Requests behind an unfinished stream would need a queue; no client of the bench pipelines.
            if self.tokens.is_some() {
                return Ok(Next::Close);
            }
            let (used, complete) = self
                .reader
                .feed(bytes, &mut self.request)
                .map_err(io::Error::other)?;
            bytes = &bytes[used..];
            if self.request.too_long {
                return Ok(Next::Close);
            }
            if complete {
                next = self.answer(replies, readiness)?;
            }
        }
        Ok(next)
    }

    fn answer(&mut self, replies: &Replies, readiness: &Readiness) -> io::Result<Next> {
        let endpoint = self.request.endpoint.take().unwrap_or(Endpoint::Unknown);
        let body = std::mem::take(&mut self.request.body);
        let next = match replies.reply(endpoint, &body) {
            Reply::Fixed(bytes) => self.send(bytes, readiness).map(|()| Next::Wait),
            Reply::Built(bytes) => self.send(&bytes, readiness).map(|()| Next::Wait),
            Reply::Stream {
                head,
                tokens,
                spacing,
                in_steps,
            } => {
                self.tokens = Some(Tokens {
                    left: tokens,
                    due: Instant::now(),
                    spacing,
                    steps: in_steps.then_some(self.steps),
                });
                self.send(head, readiness)?;
                self.stream_on(replies, readiness)
            }
        };
        self.request.body = body;
        next
    }

    /// Sends the next token when its time has come.
    pub(super) fn token_due(&mut self, replies: &Replies, readiness: &Readiness) -> io::Result<Next> {
        if self.unsent.is_empty() {
            self.stream_on(replies, readiness)
        } else {
            Ok(Next::Wait)
        }
    }

    /// Writes the tokens that are due, each with a write of its own.
    fn stream_on(&mut self, replies: &Replies, readiness: &Readiness) -> io::Result<Next> {
        while let Some(tokens) = &mut self.tokens {
            if !self.unsent.is_empty() {
                // Goes on when the socket has room again.
                return Ok(Next::Wait);
            }
            if tokens.left == 0 {
                self.tokens = None;
                self.send(replies.stream_end(), readiness)?;
                break;
            }
            if !tokens.spacing.is_zero() && tokens.due > Instant::now() {
                return Ok(Next::TokenAt(tokens.due));
            }
            tokens.left -= 1;
            // From the time it was due, so that lateness does not add up.
            tokens.due = match tokens.steps.take() {
                Some(steps) => steps.after(tokens.due, tokens.spacing),
                None => tokens.due + tokens.spacing,
            };
            self.send(replies.token(), readiness)?;
        }
        Ok(Next::Wait)
    }

    fn send(&mut self, bytes: &[u8], readiness: &Readiness) -> io::Result<()> {
        let mut written = 0;
        if self.unsent.is_empty() {
            written = write_some(&self.stream, bytes)?;
        }
        if written < bytes.len() {
            if self.unsent.is_empty() {
                readiness.watch_room(&self.stream, self.key, true)?;
            }
            self.unsent.extend_from_slice(&bytes[written..]);
        }
        Ok(())
    }

    fn flush(&mut self, readiness: &Readiness) -> io::Result<()> {
        self.sent += write_some(&self.stream, &self.unsent[self.sent..])?;
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
            readiness.watch_room(&self.stream, self.key, false)?;
        }
        Ok(())
    }
}

/// Writes as much as a non-blocking socket takes: zero when it is full.
fn write_some(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        result => result,
    }
}
