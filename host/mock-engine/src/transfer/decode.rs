//! Decode side: fetches KV cache that another engine computed, or fails to.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

use crate::core_loop::Command;
use crate::transfer::fabric::{Key, Offer};
use crate::transfer::handshake::{MooncakeSource, NixlSource};
use crate::transfer::side::TransferEndpoint;
use crate::transfer::{PdDialect, Receive, Received, Reserved, Transfer, bootstrap};

/// Source of KV cache.
#[derive(Debug)]
pub(super) enum Source {
    /// The handshake lacks a field.
    Nowhere,
    /// The other side cannot serve this, which takes a while to detect.
    Refused,
    /// An engine that has finished.
    Nixl(NixlSource),
    /// An engine that may not have begun.
    Mooncake(MooncakeSource),
    /// An engine that may not have begun, known by its bootstrap server.
    Room(Key),
    /// The shared store, immediately.
    Store,
}

/// Starts receiving the KV cache of the first `tokens` of a sequence.
pub(super) fn receive(side: &Arc<TransferEndpoint>, source: Source, tokens: usize) -> Transfer {
    let id = side.new_id();
    let (alive, gone) = oneshot::channel();
    let mut receive = Receive {
        id,
        tokens,
        // SGLang drops the blocks at once. vLLM keeps them, because the other side may still write to them.
        outlives_client: !matches!(source, Source::Room(_)),
        reserved: None,
        _alive: alive,
    };
    if !matches!(source, Source::Nowhere) {
        let (reserved, news) = oneshot::channel();
        receive.reserved = Some(reserved);
        side.spawn(see_to(Arc::clone(side), id, source, news, gone));
    }
    Transfer::Receive(receive)
}

async fn see_to(
    side: Arc<TransferEndpoint>,
    id: u64,
    source: Source,
    reserved: oneshot::Receiver<Reserved>,
    gone: oneshot::Receiver<()>,
) {
    let missing = match reserved.await {
        Ok(Reserved::Missing(missing)) => missing,
        Ok(Reserved::Abandoned) => return source.give_up(&side),
        // Refused: the client may retry elsewhere.
        Err(_) => return,
    };
    tokio::select! {
        received = source.fetch(&side, missing) => side.command(Command::Received(id, received)).await,
        _ = gone => {}
    }
}

impl Source {
    /// Notifies the other side that its blocks will not be fetched, if the dialect does so.
    pub(super) fn give_up(self, side: &TransferEndpoint) {
        match self {
            Self::Nixl(NixlSource { key, .. }) | Self::Mooncake(MooncakeSource { key, .. }) => {
                side.fabric().renounce(key);
            }
            Self::Nowhere | Self::Refused | Self::Room(_) | Self::Store => {}
        }
    }

    /// Waits for `missing` tokens; `None` if they will not arrive.
    async fn fetch(self, side: &TransferEndpoint, missing: usize) -> Option<Received> {
        let cached_tokens = match self {
            Self::Nowhere | Self::Refused => {
                sleep(side.real(side.config().refused_after)).await;
                return None;
            }
            Self::Nixl(source) => Some(fetch_nixl(side, source, missing).await?),
            Self::Mooncake(source) => {
                let known = bootstrap::has_engine(&source.bootstrap, &source.key.engine).await;
                claim(side, &source.key, known, missing).await?;
                None
            }
            Self::Room(key) => {
                let known = bootstrap::is_up(&key.engine).await;
                Some(claim(side, &key, known, missing).await?)
            }
            Self::Store => {
                sleep(side.transfer_time(missing)).await;
                None
            }
        };
        Some(Received { cached_tokens })
    }
}

/// Returns the prefill's cached tokens.
async fn fetch_nixl(side: &TransferEndpoint, source: NixlSource, missing: usize) -> Option<u32> {
    if !side.fabric().reaches(&source.key.engine, source.port) {
        sleep(side.real(side.config().unreachable_after)).await;
        return None;
    }
    match side.fabric().take(&source.key) {
        Some(offer) => pull(side, offer, missing).await?,
        // Fetched before, or no longer kept: the other side does not check its blocks' contents.
        None => sleep(side.transfer_time(missing)).await,
    }
    Some(source.cached_tokens)
}

/// Waits for the other side, if its bootstrap server has it, and fetches. Returns the prefill's cached tokens.
async fn claim(side: &TransferEndpoint, key: &Key, known: bool, missing: usize) -> Option<u32> {
    if !known {
        sleep(side.real(side.config().refused_after)).await;
        return None;
    }
    let mut expiry = side.fabric().expiry(side.real(side.config().abort_timeout));
    let offer = tokio::select! {
        offer = side.fabric().taken(key) => offer,
        () = expiry.passed() => return None,
    };
    let cached_tokens = offer.cached_tokens;
    pull(side, offer, missing).await?;
    Some(cached_tokens)
}

/// Moves the offered blocks; `None` if their engine dies meanwhile.
async fn pull(side: &TransferEndpoint, mut offer: Offer, missing: usize) -> Option<()> {
    let moved = async {
        sleep_until(offer.ready_at).await;
        sleep(side.transfer_time(missing)).await;
    };
    tokio::select! {
        () = moved => {}
        () = offer.fetched.closed() => return None,
    }
    offer.fetched.send(()).ok()
}

/// Returns the network time of a prompt, in engine time.
pub(super) fn transfer_time(ms_per_1k_tokens: f64, tokens: usize) -> Duration {
    let seconds = ms_per_1k_tokens * tokens as f64 / 1e6;
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns `true` if a decode engine of this dialect notifies the other side when it refuses a request.
pub(super) fn gives_up_when_refused(dialect: PdDialect) -> bool {
    dialect == PdDialect::Mooncake
}
