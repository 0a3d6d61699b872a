//! Keeps a link connected: connects again and again, or accepts publishers that connect.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::address::Address;
use super::connection::{Patience, follow};
use super::mailbox::Mailbox;
use super::pause::{Ending, Pause};
use super::stream::{Listener, Resolver, Stream};
use crate::zmtp::{CurveKeys, CurveSecrets, FeedLimits, Session, SocketRole};

/// Publishers connected to one bound address at a time. One is meant; one more may replace it.
const MAX_ACCEPTED: usize = 4;
/// Before the next publisher is accepted after one that broke a limit, or after a failure.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What each connection of a link is made of.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) role: SocketRole,
    pub(super) limits: FeedLimits,
    pub(super) curve: Option<CurveKeys>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Wire {
    /// Reads one connection to its end.
    async fn follow(&self, stream: Stream) -> Ending {
        let curve = match &self.curve {
            None => None,
            Some(keys) => match CurveSecrets::random() {
                Ok(secrets) => Some((keys.clone(), secrets)),
                Err(error) => {
                    warn!(%error, "failed to make keys for a connection to a publisher of KV events: trying again");
                    return Ending::NotMade;
                }
            },
        };
        let session = Session::new(self.role.clone(), self.limits, curve);
        follow(session, stream, &self.mailbox, Patience::default()).await
    }
}

/// Connects until the link is dropped. A replay is asked for over one connection only.
pub(super) async fn dial(wire: Wire, address: Address, resolver: Resolver) {
    let mut pause = Pause::new();
    loop {
        let ending = match Stream::connect(&address, &resolver).await {
            Ok(stream) => wire.follow(stream).await,
            Err(error) => {
                debug!(?address, %error, "failed to connect to a publisher of KV events: trying again");
                Ending::NotMade
            }
        };
        let is_asked = matches!(wire.role, SocketRole::Requester { .. });
        if is_asked && ending != Ending::NotMade {
            return;
        }
        sleep(pause.after(ending)).await;
    }
}

/// Accepts publishers until the link is dropped.
pub(super) async fn accept(wire: Wire, listener: Listener) {
    let mut accepted: JoinSet<Ending> = JoinSet::new();
    loop {
        tokio::select! {
            ended = accepted.join_next(), if !accepted.is_empty() => {
                if matches!(ended, Some(Ok(Ending::Fault(_)))) {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            stream = listener.accept(), if accepted.len() < MAX_ACCEPTED => match stream {
                Ok(stream) => {
                    let wire = wire.clone();
                    accepted.spawn(async move { wire.follow(stream).await });
                }
                Err(error) => {
                    debug!(%error, "failed to accept a publisher of KV events: trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
