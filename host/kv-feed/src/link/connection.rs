//! Connection: reads from a socket into a session, within limits in bytes and time.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::budget::MemoryCharge;
use super::mailbox::{FeedMailbox, ReceivedMessage};
use super::pause::AttemptEnd;
use super::stream::PeerStream;
use crate::zmtp::{Fault, SessionEvent, ZmtpSession};

/// Timeouts of a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerTimeouts {
    /// Timeout of the whole handshake.
    handshake: Duration,
    /// Timeout of the rest of a message after its first byte, and of memory that its further frames wait for.
    message: Duration,
    /// Time between two pings. Idle publishers are silent, so only pings detect a dead connection.
    ping: Duration,
    /// A silent connection is lost after this time.
    silence: Duration,
    /// Timeout of writes: a few hundred bytes, and answers to pings.
    write: Duration,
}

impl Default for PeerTimeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            message: Duration::from_secs(30),
            ping: Duration::from_secs(5),
            silence: Duration::from_secs(20),
            write: Duration::from_secs(10),
        }
    }
}

/// Cause of a connection's end.
#[derive(Debug)]
enum ConnectionEnd {
    Lost,
    Fault(Fault),
}

impl From<Fault> for ConnectionEnd {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for ConnectionEnd {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

/// Reads one connection to its end, and records it in the mailbox.
pub(super) async fn follow(
    session: ZmtpSession,
    stream: PeerStream,
    mailbox: &FeedMailbox,
    timeouts: PeerTimeouts,
) -> AttemptEnd {
    let began = Instant::now();
    let mut connection = Connection {
        session,
        stream,
        mailbox,
        charge: MemoryCharge::default(),
        times: ConnectionDeadlines::new(began, timeouts),
    };
    let mut end = connection.run().await;
    let was_ready = connection.session.is_ready();
    if matches!(end, ConnectionEnd::Lost) && !was_ready && connection.session.has_greeted() {
        // libzmq closes the connection if keys or socket types do not match.
        end = ConnectionEnd::Fault(Fault::Refused);
    }
    // Releases the memory of an unfinished message before anything waits for memory.
    drop(connection);
    if let ConnectionEnd::Fault(fault) = end {
        mailbox.closed(fault).await;
    }
    if was_ready {
        mailbox.disconnected().await;
    }
    match end {
        ConnectionEnd::Fault(_) => AttemptEnd::Fault(began.elapsed()),
        ConnectionEnd::Lost if was_ready => AttemptEnd::Lost(began.elapsed()),
        ConnectionEnd::Lost => AttemptEnd::NotMade,
    }
}

struct Connection<'a> {
    session: ZmtpSession,
    stream: PeerStream,
    mailbox: &'a FeedMailbox,
    /// Memory of the message being read.
    charge: MemoryCharge,
    times: ConnectionDeadlines,
}

/// Deadlines of a connection.
struct ConnectionDeadlines {
    timeouts: PeerTimeouts,
    /// Deadline of the handshake.
    handshake: Instant,
    /// Deadline of the message being read.
    message: Option<Instant>,
    ping: Instant,
    received: Instant,
}

impl ConnectionDeadlines {
    fn new(now: Instant, timeouts: PeerTimeouts) -> Self {
        Self {
            timeouts,
            handshake: now + timeouts.handshake,
            message: None,
            ping: now + timeouts.ping,
            received: now,
        }
    }

    fn next(&self, is_ready: bool) -> Instant {
        if !is_ready {
            return self.handshake;
        }
        let next = self.ping.min(self.received + self.timeouts.silence);
        self.message.map_or(next, |message| next.min(message))
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> ConnectionEnd {
        loop {
            if let Err(end) = self.turn().await {
                return end;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), ConnectionEnd> {
        let out = self.session.take_output();
        if !out.is_empty() {
            let written = timeout(self.times.timeouts.write, self.stream.write(&out)).await;
            written.map_err(|_| ConnectionEnd::Lost)??;
        }
        let due = self.times.next(self.session.is_ready());
        let Ok(readable) = timeout_at(due, self.stream.readable()).await else {
            return self.fall_due();
        };
        readable?;
        let chunk = match self.stream.read() {
            Ok(chunk) if chunk.is_empty() => return Err(ConnectionEnd::Lost),
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.times.received = Instant::now();
        self.take(&chunk).await?;
        if !self.session.is_ready() || !self.session.is_amid_message() {
            self.times.message = None;
        } else if self.times.message.is_none() {
            self.times.message = Some(Instant::now() + self.times.timeouts.message);
        }
        Ok(())
    }

    /// Handles expired deadlines.
    fn fall_due(&mut self) -> Result<(), ConnectionEnd> {
        let now = Instant::now();
        if !self.session.is_ready() {
            return Err(Fault::HandshakeTimeout.into());
        }
        if self.times.message.is_some_and(|due| now >= due) {
            return Err(Fault::Unfinished.into());
        }
        if now >= self.times.received + self.times.timeouts.silence {
            return Err(ConnectionEnd::Lost);
        }
        if now >= self.times.ping {
            self.times.ping = now + self.times.timeouts.ping;
            self.session.ping()?;
        }
        Ok(())
    }

    async fn take(&mut self, chunk: &[u8]) -> Result<(), ConnectionEnd> {
        let mut input = chunk;
        while let Some(event) = self.session.advance(&mut input)? {
            match event {
                SessionEvent::Ready => self.mailbox.connected().await,
                SessionEvent::Reserve(bytes) => self.reserve(bytes).await?,
                SessionEvent::Skipped => drop(self.end_message()),
                SessionEvent::Message(frames) => {
                    let charge = self.end_message();
                    self.mailbox.message(ReceivedMessage { frames, charge });
                }
            }
        }
        Ok(())
    }

    fn end_message(&mut self) -> MemoryCharge {
        self.times.message = None;
        std::mem::take(&mut self.charge)
    }

    /// Waits for memory without reading. A message that holds some must not block others forever.
    async fn reserve(&mut self, bytes: usize) -> Result<(), ConnectionEnd> {
        let began = Instant::now();
        let more = self.mailbox.allowance().take(bytes);
        let more = if self.charge.is_empty() {
            more.await
        } else {
            timeout(self.times.timeouts.message, more)
                .await
                .map_err(|_| Fault::Unfinished)?
        };
        self.charge.add(more);
        // This time is not the peer's fault.
        let waited = began.elapsed();
        self.times.received += waited;
        self.times.message = self.times.message.map(|due| due + waited);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;
    use crate::link::budget::MemoryBudget;
    use crate::link::mailbox::FeedNotifier;
    use crate::zmtp::{FeedLimits, SocketRole};

    /// Returns a publisher's greeting and READY command.
    fn opening() -> Vec<u8> {
        let greeting = [&b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"[..], &[0; 48]].concat();
        [&greeting[..], b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB"].concat()
    }

    /// Returns the end of a connection whose peer sends this and nothing more.
    async fn ending(sent: &[u8], timeouts: PeerTimeouts) -> AttemptEnd {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(sent).await.unwrap();
        end_of(ours, timeouts).await
    }

    async fn end_of(ours: UnixStream, timeouts: PeerTimeouts) -> AttemptEnd {
        let limits = FeedLimits::default();
        let notifier = Arc::<FeedNotifier>::default();
        let allowance = MemoryBudget::new(limits, Arc::clone(&notifier)).allowance(limits);
        let mailbox = FeedMailbox::new(0, notifier, allowance);
        let topic = Box::default();
        let session = ZmtpSession::new(SocketRole::Subscriber { topic }, limits, None);
        follow(session, PeerStream::Unix(ours), &mailbox, timeouts).await
    }

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn a_peer_that_says_nothing_is_given_up_in_the_handshake() {
        let timeouts = PeerTimeouts {
            handshake: SHORT,
            ..PeerTimeouts::default()
        };
        for sent in [&b""[..], b"\xff", &opening()[..70]] {
            assert!(matches!(ending(sent, timeouts).await, AttemptEnd::Fault(_)));
        }
    }

    #[tokio::test]
    async fn a_peer_that_closes_in_the_handshake_has_refused_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&opening()[..64]).await.unwrap();
        theirs.shutdown().await.unwrap();
        assert!(matches!(
            end_of(ours, PeerTimeouts::default()).await,
            AttemptEnd::Fault(_)
        ));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(
            end_of(ours, PeerTimeouts::default()).await,
            AttemptEnd::NotMade
        ));
    }

    #[tokio::test]
    async fn a_message_that_is_begun_and_not_finished_is_a_fault() {
        let timeouts = PeerTimeouts {
            message: SHORT,
            ..PeerTimeouts::default()
        };
        for begun in [&b"\x01"[..], b"\x01\x05top", b"\x01\x00"] {
            let sent = [&opening()[..], begun].concat();
            assert!(matches!(ending(&sent, timeouts).await, AttemptEnd::Fault(_)));
        }
    }

    #[tokio::test]
    async fn a_peer_that_answers_no_ping_is_lost() {
        let timeouts = PeerTimeouts {
            ping: SHORT,
            silence: 3 * SHORT,
            ..PeerTimeouts::default()
        };
        assert!(matches!(ending(&opening(), timeouts).await, AttemptEnd::Lost(_)));
    }
}
