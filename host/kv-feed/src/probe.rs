//! Probe of a publisher, for tools: whether it can be connected to, and whether it answers a request for a replay. Feeds do not use
//! it, and it applies nothing.

use std::time::{Duration, Instant};

use kv_events::replay_part;
use thiserror::Error;
use zmq::{Context, Message, POLLIN, PollItem, Socket};

use crate::sockets::{self, Live, Turn};
use crate::spec::Endpoint;

/// Where the replay begins that is asked for: behind everything, so that a publisher answers with the end alone.
const BEHIND_ALL: u64 = i64::MAX as u64;
/// Messages received of each socket before the time is looked at again.
const TURN: usize = 256;

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
#[error("open a socket for `{endpoint}`")]
pub struct FeedProbeError {
    endpoint: String,
    #[source]
    source: zmq::Error,
}

/// Probes a publisher at `endpoint`, whose socket for replays is at `replay`. Blocks, for at most `limit`.
///
/// # Errors
/// [`FeedProbeError`] for endpoints that no socket can be opened for.
pub fn probe(endpoint: &str, replay: Option<&str>, limit: Duration) -> Result<FeedProbe, FeedProbeError> {
    let failed = |endpoint: &str| {
        let endpoint = endpoint.to_owned();
        move |source| FeedProbeError { endpoint, source }
    };
    let context = Context::new();
    let live = Live::open(&context, &Endpoint::Connect(endpoint.to_owned()), "");
    let mut live = live.map_err(failed(endpoint))?;
    let asked = match replay {
        Some(replay) => Some(sockets::ask(&context, replay, BEHIND_ALL).map_err(failed(replay))?),
        None => None,
    };
    let deadline = Instant::now() + limit;
    let mut probe = FeedProbe {
        is_connected: false,
        replays: asked.as_ref().map(|_| false),
    };
    let mut frames = Vec::new();
    while !probe.is_done() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        wait(&live, asked.as_ref(), left).map_err(failed(endpoint))?;
        probe
            .hear(&mut live, asked.as_ref(), &mut frames)
            .map_err(failed(endpoint))?;
    }
    Ok(probe)
}

impl FeedProbe {
    fn is_done(&self) -> bool {
        self.is_connected && self.replays != Some(false)
    }

    fn hear(
        &mut self,
        live: &mut Live,
        asked: Option<&Socket>,
        frames: &mut Vec<Message>,
    ) -> zmq::Result<()> {
        while let Some(turn) = live.turn(frames)? {
            self.is_connected = matches!(turn, Turn::Connected { .. });
        }
        // Events of a publisher that is busy meanwhile: none of them is kept.
        for _ in 0..TURN {
            if !sockets::receive(&live.messages, frames)? {
                break;
            }
        }
        let Some(asked) = asked else { return Ok(()) };
        for _ in 0..TURN {
            if !sockets::receive(asked, frames)? {
                break;
            }
            // A batch or the end: either shows that requests are answered.
            if replay_part(frames).is_ok() {
                self.replays = Some(true);
            }
        }
        Ok(())
    }
}

fn wait(live: &Live, asked: Option<&Socket>, limit: Duration) -> zmq::Result<()> {
    let sockets = live.sockets().into_iter().chain(asked);
    let mut items: Vec<PollItem<'_>> = sockets.map(|socket| socket.as_poll_item(POLLIN)).collect();
    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1);
    match zmq::poll(&mut items, limit) {
        Ok(_) | Err(zmq::Error::EINTR) => Ok(()),
        Err(error) => Err(error),
    }
}
