//! Probe of a publisher, for tools: whether it can be connected to, and whether it answers a request for a replay. Feeds do not use
//! it, and it applies nothing.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_events::replay_part;
use thiserror::Error;

use crate::link::{Bell, Link, LinkError, Note, Reader};
use crate::spec::Endpoint;
use crate::zmtp::{CurveKeys, FeedLimits};

/// Where the replay begins that is asked for: behind everything, so that a publisher answers with the end alone.
const BEHIND_ALL: u64 = i64::MAX as u64;

/// What a publisher does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedProbe {
    /// Whether its PUB socket takes a subscriber.
    pub is_connected: bool,
    /// Whether it answers a request for a replay; none where it has no socket for them.
    pub replays: Option<bool>,
}

/// A publisher cannot be probed.
#[derive(Debug, Error)]
pub enum FeedProbeError {
    /// An endpoint is of no use.
    #[error("open a socket for a probe")]
    Link(#[from] LinkError),
    /// The system refused a thread.
    #[error("start a thread for a probe")]
    Reader(#[source] io::Error),
}

/// Probes a publisher at `endpoint`, whose socket for replays is at `replay`. Blocks, for at most `limit`.
///
/// # Errors
/// [`FeedProbeError`] for endpoints that no socket can be opened for.
pub fn probe(
    endpoint: &str,
    replay: Option<&str>,
    curve: Option<&CurveKeys>,
    limit: Duration,
) -> Result<FeedProbe, FeedProbeError> {
    let deadline = Instant::now() + limit;
    let bell = Arc::<Bell>::default();
    let reader = Reader::start(FeedLimits::default(), Arc::clone(&bell)).map_err(FeedProbeError::Reader)?;
    let feed = reader.new_feed();
    let live = reader.subscribe(feed, &Endpoint::Connect(endpoint.to_owned()), "", curve)?;
    let asked = match replay {
        Some(replay) => Some(reader.ask(feed, replay, BEHIND_ALL, curve)?),
        None => None,
    };
    let mut probe = FeedProbe {
        is_connected: false,
        replays: asked.as_ref().map(|_| false),
    };
    while !probe.is_done() && Instant::now() < deadline {
        bell.wait(Some(deadline));
        probe.hear(&live, asked.as_ref(), deadline);
    }
    Ok(probe)
}

impl FeedProbe {
    fn is_done(&self) -> bool {
        self.is_connected && self.replays != Some(false)
    }

    /// Takes what was read. Events of a publisher that is busy meanwhile are not kept.
    fn hear(&mut self, live: &Link, asked: Option<&Link>, deadline: Instant) {
        while !self.is_done() && Instant::now() < deadline {
            let (live, asked) = (live.next(), asked.and_then(Link::next));
            if live.is_none() && asked.is_none() {
                return;
            }
            match live {
                Some(Note::Connected { .. }) => self.is_connected = true,
                Some(Note::Disconnected) => self.is_connected = false,
                Some(Note::Message(_) | Note::Closed(_)) | None => {}
            }
            // A batch or the end: either shows that requests are answered.
            if let Some(Note::Message(received)) = asked
                && replay_part(&received.frames).is_ok()
            {
                self.replays = Some(true);
            }
        }
    }
}
