//! Probe of a publisher, for tools: checks the connection and the replay socket. Feeds do not use it, and it applies
//! nothing.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_events::replay_part;
use thiserror::Error;

use crate::link::{FeedLink, FeedNotifier, LinkError, LinkNote, LinkReader};
use crate::spec::Endpoint;
use crate::zmtp::{CurveKeys, FeedLimits};

/// Start of the requested replay: after all messages, so that a publisher answers with the end alone.
const BEHIND_ALL: u64 = i64::MAX as u64;

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedProbe {
    /// The PUB socket accepts a subscriber.
    pub is_connected: bool,
    /// The publisher answers replay requests; `None` if it has no socket for them.
    pub replays: Option<bool>,
}

/// Error of a probe.
#[derive(Debug, Error)]
pub enum FeedProbeError {
    /// An endpoint is invalid.
    #[error("open a socket for a probe")]
    Link(#[from] LinkError),
    /// The system refused a thread.
    #[error("start a thread for a probe")]
    Reader(#[source] io::Error),
}

/// Probes a publisher at `endpoint` whose replay socket is at `replay`. Blocks for at most `limit`.
///
/// # Errors
/// Returns [`FeedProbeError`] if no socket can be opened for an endpoint.
pub fn probe(
    endpoint: &str,
    replay: Option<&str>,
    curve: Option<&CurveKeys>,
    limit: Duration,
) -> Result<FeedProbe, FeedProbeError> {
    let deadline = Instant::now() + limit;
    let notifier = Arc::<FeedNotifier>::default();
    let reader =
        LinkReader::start(FeedLimits::default(), Arc::clone(&notifier)).map_err(FeedProbeError::Reader)?;
    let feed = reader.new_feed();
    let live = reader.subscribe(feed, &Endpoint::Connect(endpoint.to_owned()), "", curve)?;
    let replay_link = match replay {
        Some(replay) => Some(reader.request_replay(feed, replay, BEHIND_ALL, curve)?),
        None => None,
    };
    let mut probe = FeedProbe {
        is_connected: false,
        replays: replay_link.as_ref().map(|_| false),
    };
    while !probe.is_done() && Instant::now() < deadline {
        notifier.wait(Some(deadline));
        probe.receive(&live, replay_link.as_ref(), deadline);
    }
    Ok(probe)
}

impl FeedProbe {
    fn is_done(&self) -> bool {
        self.is_connected && self.replays != Some(false)
    }

    /// Receives notes until both sockets have answered. Live events are dropped.
    fn receive(&mut self, live: &FeedLink, replay_link: Option<&FeedLink>, deadline: Instant) {
        while !self.is_done() && Instant::now() < deadline {
            let (live, replay_link) = (live.next(), replay_link.and_then(FeedLink::next));
            if live.is_none() && replay_link.is_none() {
                return;
            }
            match live {
                Some(LinkNote::Connected { .. }) => self.is_connected = true,
                Some(LinkNote::Disconnected) => self.is_connected = false,
                Some(LinkNote::NotReached | LinkNote::Message(_) | LinkNote::Closed(_)) | None => {}
            }
            // A batch and the end both show that requests are answered.
            if let Some(LinkNote::Message(received)) = replay_link
                && replay_part(&received.frames).is_ok()
            {
                self.replays = Some(true);
            }
        }
    }
}
