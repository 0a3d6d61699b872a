//! One direction of a tunnel, and the state that both share: when bytes last moved, and which direction ended first.

use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

use crate::base::label::Outcome;

/// Bytes of one direction that are under way in the router.
const BUFFER: usize = 16 << 10;
/// Time for which one direction may go on after the other has ended. A WebSocket with one end closed is of no use.
const AFTER_END: Duration = Duration::from_secs(5);

/// Progress of both directions of a tunnel.
pub(super) struct Progress {
    epoch: Instant,
    /// Milliseconds from the epoch to the last byte that moved.
    moved: AtomicU64,
    /// Outcome of the direction that ended first.
    first: OnceLock<Outcome>,
    ended: Notify,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            moved: AtomicU64::new(0),
            first: OnceLock::new(),
            ended: Notify::new(),
        }
    }

    /// Records that one direction has ended.
    pub(super) fn end(&self, outcome: Outcome) {
        if self.first.set(outcome).is_ok() {
            self.ended.notify_one();
        }
    }

    /// Returns how the first direction ended, where one has.
    pub(super) fn first(&self) -> Option<Outcome> {
        self.first.get().copied()
    }

    /// Waits until one direction has ended and the other has had time to follow.
    pub(super) async fn over(&self) -> Outcome {
        loop {
            self.ended.notified().await;
            if let Some(first) = self.first() {
                sleep(AFTER_END).await;
                return first;
            }
        }
    }

    /// Waits until nothing has moved either way for so long.
    pub(super) async fn silent(&self, idle: Duration) {
        loop {
            let end = self.epoch + Duration::from_millis(self.moved.load(Ordering::Relaxed)) + idle;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end.into()).await;
        }
    }

    fn touch(&self) {
        let after = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(after, Ordering::Relaxed);
    }
}

/// Reason why a direction broke off.
#[derive(Debug)]
pub(super) enum PumpError {
    Read(io::Error),
    Write(io::Error),
}

/// One direction of a tunnel.
pub(super) struct Flow<'a> {
    progress: &'a Progress,
    bytes: &'a Counter,
}

impl<'a> Flow<'a> {
    pub(super) fn new(progress: &'a Progress, bytes: &'a Counter) -> Self {
        Self { progress, bytes }
    }

    /// Moves bytes to their end. The next bytes are read once the last are written: a side that does not read holds the
    /// other back (backpressure).
    pub(super) async fn pump(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), PumpError> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = match from.read(&mut buffer).await {
                // TLS that ends without its last word; a WebSocket has one of its own.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                read => read.map_err(PumpError::Read)?,
            };
            if count == 0 {
                return Ok(());
            }
            self.write(to, &buffer[..count]).await.map_err(PumpError::Write)?;
        }
    }

    /// Writes bytes.
    pub(super) async fn write(&self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
        self.progress.touch();
        to.write_all(bytes).await?;
        to.flush().await?;
        self.progress.touch();
        self.bytes.inc_by(bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn bytes_are_read_no_faster_than_they_are_written() {
        let (mut sender, mut from) = duplex(64);
        let (mut to, mut receiver) = duplex(64);
        let (progress, bytes) = (Progress::new(), Counter::default());
        let flow = Flow::new(&progress, &bytes);
        let sent: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
        let mut pump = std::pin::pin!(flow.pump(&mut from, &mut to));
        let mut sending = std::pin::pin!(async {
            sender.write_all(&sent).await.unwrap();
            sender.shutdown().await.unwrap();
        });
        // Without a receiver, only as much is taken as both pipes hold.
        for _ in 0..100 {
            assert!(sending.as_mut().now_or_never().is_none());
            assert!(pump.as_mut().now_or_never().is_none());
        }
        let mut received = Vec::new();
        let receiving = async {
            let mut piece = [0; 97];
            while received.len() < sent.len() {
                let count = receiver.read(&mut piece).await.unwrap();
                received.extend_from_slice(&piece[..count]);
            }
        };
        let ((), pumped, ()) = tokio::join!(sending, pump, receiving);
        pumped.unwrap();
        assert_eq!(received, sent);
        assert_eq!(bytes.get(), sent.len() as u64);
    }

    #[tokio::test]
    async fn the_direction_that_ends_first_reports_how_it_ended() {
        let progress = Progress::new();
        assert_eq!(progress.first(), None);
        progress.end(Outcome::ClientLeft);
        progress.end(Outcome::Complete);
        assert_eq!(progress.first(), Some(Outcome::ClientLeft));
        // The other direction has some time yet.
        assert!(progress.over().now_or_never().is_none());
    }
}
