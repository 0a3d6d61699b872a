//! Connection maintenance of a link: reconnects, or accepts publishers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::address::PublisherAddress;
use super::connection::{PeerTimeouts, follow};
use super::mailbox::FeedMailbox;
use super::pause::{AttemptEnd, ReconnectBackoff};
use super::stream::{NameResolver, PeerStream, PublisherListener};
use crate::zmtp::{CurveKeys, CurveSecrets, FeedLimits, SocketRole, ZmtpSession};

/// Most publishers connected to one bound address. One is intended; a second may replace it.
const MAX_ACCEPTED: usize = 4;
/// Pause before the next publisher is accepted after a protocol error or a failure.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Shared parts of a link's connections.
#[derive(Clone)]
pub(super) struct LinkParts {
    pub(super) role: SocketRole,
    pub(super) limits: FeedLimits,
    pub(super) curve: Option<CurveKeys>,
    pub(super) mailbox: Arc<FeedMailbox>,
}

impl LinkParts {
    /// Reads one connection to its end.
    async fn follow(&self, stream: PeerStream) -> AttemptEnd {
        let curve = match &self.curve {
            None => None,
            Some(keys) => match CurveSecrets::random() {
                Ok(secrets) => Some((keys.clone(), secrets)),
                Err(error) => {
                    warn!(
                        error = &error as &dyn Error,
                        "failed to make keys for a connection to a publisher of KV events: retrying"
                    );
                    return AttemptEnd::NotMade;
                }
            },
        };
        let session = ZmtpSession::new(self.role.clone(), self.limits, curve);
        follow(session, stream, &self.mailbox, PeerTimeouts::default()).await
    }
}

/// Connects until the link is dropped. A replay is requested over one connection only.
pub(super) async fn dial(wire: LinkParts, address: PublisherAddress, resolver: NameResolver) {
    let mut pause = ReconnectBackoff::new();
    let is_requester = matches!(wire.role, SocketRole::Requester { .. });
    let mut is_noted = is_requester;
    loop {
        let ending = match PeerStream::connect(&address, &resolver).await {
            Ok(stream) => wire.follow(stream).await,
            Err(error) => {
                debug!(
                    ?address,
                    error = &error as &dyn Error,
                    "failed to connect to a publisher of KV events: retrying"
                );
                AttemptEnd::NotMade
            }
        };
        if is_requester && ending != AttemptEnd::NotMade {
            return;
        }
        if ending == AttemptEnd::NotMade && !is_noted {
            is_noted = true;
            wire.mailbox.not_reached();
        }
        sleep(pause.after(ending)).await;
    }
}

/// Accepts publishers until the link is dropped.
pub(super) async fn accept(wire: LinkParts, listener: PublisherListener) {
    let mut accepted: JoinSet<AttemptEnd> = JoinSet::new();
    loop {
        tokio::select! {
            ended = accepted.join_next(), if !accepted.is_empty() => {
                if matches!(ended, Some(Ok(AttemptEnd::Fault(_)))) {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            stream = listener.accept(), if accepted.len() < MAX_ACCEPTED => match stream {
                Ok(stream) => {
                    let wire = wire.clone();
                    accepted.spawn(async move { wire.follow(stream).await });
                }
                Err(error) => {
                    debug!(error = &error as &dyn Error, "failed to accept a publisher of KV events: retrying");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
