//! One connection of the generator, with at most one request under way.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::http::{Framing, Head, MessageReader, MessageSink};
use crate::loopback::Loopback;
use crate::readiness::Readiness;

/// Connect timeout: loopback either accepts or refuses at once.
const CONNECT: Duration = Duration::from_secs(2);

pub(super) struct Client {
    key: usize,
    target: Loopback,
    stream: Option<TcpStream>,
    reader: MessageReader,
    reply: ReplySoFar,
    /// Bytes to write, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Due time of the request under way.
    since: Option<Instant>,
}

/// Outcome of a request.
pub(super) enum Outcome {
    /// No result yet.
    Pending,
    /// A whole reply has come.
    Answered(Answer),
    /// No usable reply will come.
    Failed(Failure),
    /// The peer closed the connection while there was no request on it.
    ClosedIdle,
}

/// A whole reply.
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// Time from when the request was due to the end of its reply.
    pub(super) latency: Duration,
    /// Time from when the request was due to the first byte of the reply's body.
    pub(super) first_byte: Duration,
    /// Set if the answer was an event stream.
    pub(super) streamed: bool,
    /// The peer closes the connection.
    pub(super) close: bool,
}

/// Reason for a missing reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection broke or ended before the reply did.
    Broken,
    /// The reply is not HTTP in the form this generator supports.
    Malformed,
}

/// Parts of the current reply.
#[derive(Default)]
struct ReplySoFar {
    status: u16,
    close: bool,
    endless: bool,
    events: bool,
    first_byte: Option<Instant>,
    /// Lines not yet taken that begin with `d`, as only `data:` does in an event stream.
    data_lines: u64,
    in_line: bool,
}

impl MessageSink for ReplySoFar {
    fn head(&mut self, head: &Head<'_>) {
        let status = head
            .start
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        *self = Self {
            // Zero, which is no status, for a line that is none.
            status: status.and_then(|digits| digits.parse().ok()).unwrap_or(0),
            close: head.close,
            endless: head.framing == Framing::None,
            // The only chunked replies that are looked into are event streams: see `data_lines`.
            events: head.framing == Framing::Chunked,
            ..Self::default()
        };
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.first_byte.is_none() {
            self.first_byte = Some(Instant::now());
        }
        if self.events {
            for byte in bytes {
                self.data_lines += u64::from(!self.in_line && *byte == b'd');
                self.in_line = *byte != b'\n';
            }
        }
    }
}

impl Client {
    pub(super) fn new(key: usize, target: Loopback) -> Self {
        Self {
            key,
            target,
            stream: None,
            reader: MessageReader::default(),
            reply: ReplySoFar::default(),
            unsent: Vec::new(),
            sent: 0,
            since: None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the due time of the request under way, if there is one.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.since
    }

    /// Returns `true` while an event stream has begun and not ended.
    pub(super) fn is_streaming(&self) -> bool {
        self.since.is_some() && self.reply.events && self.reply.first_byte.is_some()
    }

    /// Closes the connection; what was under way is forgotten.
    pub(super) fn disconnect(&mut self) {
        *self = Self::new(self.key, self.target);
    }

    /// Reconnects; drops the current request.
    pub(super) fn connect(&mut self, readiness: &Readiness) -> io::Result<()> {
        self.disconnect();
        let stream = TcpStream::connect_timeout(&self.target.address(), CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        readiness.watch(&stream, self.key as u64)?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Sends a request that is due since `since`.
    pub(super) fn send(&mut self, request: &[u8], since: Instant, readiness: &Readiness) -> Outcome {
        self.since = Some(since);
        let Some(mut stream) = self.stream.as_ref() else {
            return Outcome::Failed(Failure::Broken);
        };
        let written = match stream.write(request) {
            Ok(written) => written,
            Err(error) if is_pause(&error) => 0,
            Err(_) => return Outcome::Failed(Failure::Broken),
        };
        if written < request.len() {
            self.unsent.extend_from_slice(&request[written..]);
            if readiness.watch_room(stream, self.key as u64, true).is_err() {
                return Outcome::Failed(Failure::Broken);
            }
        }
        Outcome::Pending
    }

    /// Handles a socket that has input, or room for unsent bytes.
    pub(super) fn ready(&mut self, scratch: &mut [u8], readiness: &Readiness) -> Outcome {
        if !self.unsent.is_empty() && self.send_rest(readiness).is_err() {
            return Outcome::Failed(Failure::Broken);
        }
        let Some(mut stream) = self.stream.as_ref() else {
            return Outcome::Pending;
        };
        match stream.read(scratch) {
            Ok(received) if received > 0 => self.receive(&scratch[..received]),
            Err(error) if is_pause(&error) => Outcome::Pending,
            _ if self.since.is_none() => Outcome::ClosedIdle,
            _ => Outcome::Failed(Failure::Broken),
        }
    }

    /// Returns the number of `data:` lines since the last call, including `[DONE]`.
    pub(super) fn take_data_lines(&mut self) -> u64 {
        std::mem::take(&mut self.reply.data_lines)
    }

    fn receive(&mut self, bytes: &[u8]) -> Outcome {
        let Some(since) = self.since else {
            return Outcome::Failed(Failure::Malformed);
        };
        let Ok((used, complete)) = self.reader.feed(bytes, &mut self.reply) else {
            return Outcome::Failed(Failure::Malformed);
        };
        // Bytes behind the reply answer no request of ours.
        if self.reply.endless || used < bytes.len() {
            return Outcome::Failed(Failure::Malformed);
        }
        if !complete {
            return Outcome::Pending;
        }
        self.since = None;
        let now = Instant::now();
        Outcome::Answered(Answer {
            status: self.reply.status,
            latency: now - since,
            first_byte: self.reply.first_byte.unwrap_or(now) - since,
            streamed: self.reply.events,
            close: self.reply.close,
        })
    }

    fn send_rest(&mut self, readiness: &Readiness) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref() else {
            return Ok(());
        };
        match stream.write(&self.unsent[self.sent..]) {
            Ok(written) => self.sent += written,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
            readiness.watch_room(stream, self.key as u64, false)?;
        }
        Ok(())
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::readiness::Waiting;

    /// Reads until the outcome is known, or the first byte of the body where `first_byte` is set.
    fn read(client: &mut Client, readiness: &Readiness, first_byte: bool) -> Outcome {
        let mut scratch = [0; 4096];
        loop {
            match client.ready(&mut scratch, readiness) {
                Outcome::Pending if first_byte && client.is_streaming() => return Outcome::Pending,
                Outcome::Pending => thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn the_first_byte_of_a_stream_is_earlier_than_its_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = Loopback::port(listener.local_addr().unwrap().port());
        let readiness = Readiness::new(Waiting::Sleep).unwrap();
        let mut client = Client::new(0, target);
        client.connect(&readiness).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert!(matches!(
            client.send(b"GET / HTTP/1.1\r\n\r\n", Instant::now(), &readiness),
            Outcome::Pending
        ));
        server
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata:\n\r\n")
            .unwrap();
        assert!(matches!(read(&mut client, &readiness, true), Outcome::Pending));
        thread::sleep(Duration::from_millis(1));
        server.write_all(b"0\r\n\r\n").unwrap();
        let Outcome::Answered(answer) = read(&mut client, &readiness, false) else {
            panic!("the stream has ended");
        };
        assert!(answer.streamed && answer.first_byte + Duration::from_millis(1) <= answer.latency);
    }
}
