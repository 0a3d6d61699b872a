//! One connection: reads from a socket into a session, within the limits in bytes and time.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::budget::Charge;
use super::mailbox::{Mailbox, Received};
use super::pause::Ending;
use super::stream::Stream;
use crate::zmtp::{Event, Fault, Session};

/// How long a peer may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For the whole handshake.
    handshake: Duration,
    /// For the rest of a message after its first byte, and for memory that its further frames wait for.
    message: Duration,
    /// Between two pings. Publishers are silent while idle, so only pings tell a dead connection.
    ping: Duration,
    /// A connection that brings nothing for so long is lost.
    silence: Duration,
    /// For what is sent: a few hundred bytes, and answers to pings.
    write: Duration,
}

impl Default for Patience {
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

/// Why a connection ended.
#[derive(Debug)]
enum End {
    Lost,
    Fault(Fault),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

/// Reads one connection to its end, and records it in the mailbox.
pub(super) async fn follow(
    session: Session,
    stream: Stream,
    mailbox: &Mailbox,
    patience: Patience,
) -> Ending {
    let began = Instant::now();
    let mut connection = Connection {
        session,
        stream,
        mailbox,
        charge: Charge::default(),
        times: Times::new(began, patience),
    };
    let mut end = connection.run().await;
    let was_ready = connection.session.is_ready();
    if matches!(end, End::Lost) && !was_ready && connection.session.has_greeted() {
        // libzmq closes the connection where keys or types of sockets do not fit.
        end = End::Fault(Fault::Refused);
    }
    // What an unfinished message held is free before anything waits for room.
    drop(connection);
    if let End::Fault(fault) = end {
        mailbox.closed(fault).await;
    }
    if was_ready {
        mailbox.disconnected().await;
    }
    match end {
        End::Fault(_) => Ending::Fault(began.elapsed()),
        End::Lost if was_ready => Ending::Lost(began.elapsed()),
        End::Lost => Ending::NotMade,
    }
}

struct Connection<'a> {
    session: Session,
    stream: Stream,
    mailbox: &'a Mailbox,
    /// Of the message that is being read.
    charge: Charge,
    times: Times,
}

/// When something is due.
struct Times {
    patience: Patience,
    /// By when the handshake must be done.
    handshake: Instant,
    /// By when the message that was begun must be complete.
    message: Option<Instant>,
    ping: Instant,
    heard: Instant,
}

impl Times {
    fn new(now: Instant, patience: Patience) -> Self {
        Self {
            patience,
            handshake: now + patience.handshake,
            message: None,
            ping: now + patience.ping,
            heard: now,
        }
    }

    fn next(&self, is_ready: bool) -> Instant {
        if !is_ready {
            return self.handshake;
        }
        let next = self.ping.min(self.heard + self.patience.silence);
        self.message.map_or(next, |message| next.min(message))
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.turn().await {
                return end;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), End> {
        let out = self.session.take_output();
        if !out.is_empty() {
            let written = timeout(self.times.patience.write, self.stream.write(&out)).await;
            written.map_err(|_| End::Lost)??;
        }
        let due = self.times.next(self.session.is_ready());
        let Ok(readable) = timeout_at(due, self.stream.readable()).await else {
            return self.fall_due();
        };
        readable?;
        let chunk = match self.stream.read() {
            Ok(chunk) if chunk.is_empty() => return Err(End::Lost),
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.times.heard = Instant::now();
        self.take(&chunk).await?;
        if !self.session.is_ready() || !self.session.is_amid_message() {
            self.times.message = None;
        } else if self.times.message.is_none() {
            self.times.message = Some(Instant::now() + self.times.patience.message);
        }
        Ok(())
    }

    /// Acts on the time.
    fn fall_due(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if !self.session.is_ready() {
            return Err(Fault::HandshakeTimeout.into());
        }
        if self.times.message.is_some_and(|due| now >= due) {
            return Err(Fault::Unfinished.into());
        }
        if now >= self.times.heard + self.times.patience.silence {
            return Err(End::Lost);
        }
        if now >= self.times.ping {
            self.times.ping = now + self.times.patience.ping;
            self.session.ping()?;
        }
        Ok(())
    }

    async fn take(&mut self, chunk: &[u8]) -> Result<(), End> {
        let mut input = chunk;
        while let Some(event) = self.session.advance(&mut input)? {
            match event {
                Event::Ready => self.mailbox.connected().await,
                Event::Reserve(bytes) => self.reserve(bytes).await?,
                Event::Skipped => drop(self.end_message()),
                Event::Message(frames) => {
                    let charge = self.end_message();
                    self.mailbox.message(Received { frames, charge });
                }
            }
        }
        Ok(())
    }

    fn end_message(&mut self) -> Charge {
        self.times.message = None;
        std::mem::take(&mut self.charge)
    }

    /// Waits for memory; nothing is read meanwhile. A message that holds some must not keep it from others forever.
    async fn reserve(&mut self, bytes: usize) -> Result<(), End> {
        let began = Instant::now();
        let more = self.mailbox.allowance().take(bytes);
        let more = if self.charge.is_empty() {
            more.await
        } else {
            timeout(self.times.patience.message, more)
                .await
                .map_err(|_| Fault::Unfinished)?
        };
        self.charge.add(more);
        // The peer is not to blame for this time.
        let waited = began.elapsed();
        self.times.heard += waited;
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
    use crate::link::budget::Budget;
    use crate::link::mailbox::Bell;
    use crate::zmtp::{FeedLimits, SocketRole};

    /// The opening of a publisher: its greeting and its READY command.
    fn opening() -> Vec<u8> {
        let greeting = [&b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"[..], &[0; 48]].concat();
        [&greeting[..], b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB"].concat()
    }

    /// How a connection ends whose peer sends this, and nothing more.
    async fn ending(sent: &[u8], patience: Patience) -> Ending {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(sent).await.unwrap();
        end_of(ours, patience).await
    }

    async fn end_of(ours: UnixStream, patience: Patience) -> Ending {
        let limits = FeedLimits::default();
        let bell = Arc::<Bell>::default();
        let allowance = Budget::new(limits, Arc::clone(&bell)).allowance(limits);
        let mailbox = Mailbox::new(0, bell, allowance);
        let topic = Box::default();
        let session = Session::new(SocketRole::Subscriber { topic }, limits, None);
        follow(session, Stream::Unix(ours), &mailbox, patience).await
    }

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn a_peer_that_says_nothing_is_given_up_in_the_handshake() {
        let patience = Patience {
            handshake: SHORT,
            ..Patience::default()
        };
        for sent in [&b""[..], b"\xff", &opening()[..70]] {
            assert!(matches!(ending(sent, patience).await, Ending::Fault(_)));
        }
    }

    #[tokio::test]
    async fn a_peer_that_closes_in_the_handshake_has_refused_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&opening()[..64]).await.unwrap();
        theirs.shutdown().await.unwrap();
        assert!(matches!(
            end_of(ours, Patience::default()).await,
            Ending::Fault(_)
        ));
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(end_of(ours, Patience::default()).await, Ending::NotMade));
    }

    #[tokio::test]
    async fn a_message_that_is_begun_and_not_finished_is_a_fault() {
        let patience = Patience {
            message: SHORT,
            ..Patience::default()
        };
        for begun in [&b"\x01"[..], b"\x01\x05top", b"\x01\x00"] {
            let sent = [&opening()[..], begun].concat();
            assert!(matches!(ending(&sent, patience).await, Ending::Fault(_)));
        }
    }

    #[tokio::test]
    async fn a_peer_that_answers_no_ping_is_lost() {
        let patience = Patience {
            ping: SHORT,
            silence: 3 * SHORT,
            ..Patience::default()
        };
        assert!(matches!(ending(&opening(), patience).await, Ending::Lost(_)));
    }
}
