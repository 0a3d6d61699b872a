//! Prefill side: blocks of a prompt that was computed for another engine.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::core_loop::Command;
use crate::transfer::fabric::{Expiry, Key, Offer};
use crate::transfer::side::TransferEndpoint;
use crate::transfer::{Keep, KeptBlocks, Transfer};

/// Host in the answers of a nixl engine.
const HOST: &str = "127.0.0.1";

/// Use of the blocks once they are computed.
#[derive(Debug)]
pub(super) enum Plan {
    /// They are offered.
    Offer(Handover),
    /// They are copied into the shared store.
    Store {
        /// The store's hashes of the prompt's full blocks.
        hashes: Vec<u64>,
    },
    /// They can never be fetched, and are never freed.
    Strand,
}

/// Parameters of an offer.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) key: Key,
    /// Time that they are kept, in real time.
    pub(super) keep_for: Duration,
    /// Time before the decode side can fetch them, in real time.
    pub(super) unavailable_for: Duration,
    /// Contents of the prefill's answer.
    pub(super) answer: PrefillAnswer,
}

/// Answer of a prefill leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefillAnswer {
    /// Answer at once, with the location of the blocks: the parameters of nixl.
    Where {
        /// Tokens of the prompt.
        tokens: usize,
        /// Port of the side channel.
        port: u16,
    },
    /// Answer at once, without parameters.
    Nothing,
    /// Answer without parameters, once the blocks have been fetched.
    NothingUntilFetched,
}

/// The blocks were not fetched in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotFetched;

type Settled = Result<Value, NotFetched>;

/// Prefill legs of one answer: the events to wait for, and the parameters to send.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    legs: Vec<oneshot::Receiver<Settled>>,
    /// The answer must wait for [`Self::params`] before it begins.
    pub(crate) before_head: bool,
}

impl Settling {
    pub(super) fn add(&mut self, leg: oneshot::Receiver<Settled>, answer: PrefillAnswer) {
        self.legs.push(leg);
        self.before_head |= answer == PrefillAnswer::NothingUntilFetched;
    }

    /// Returns the answer's `kv_transfer_params`: those of the first leg that has any.
    pub(crate) async fn params(self) -> Settled {
        let mut params = Value::Null;
        for leg in self.legs {
            // A leg ends without parameters if its blocks were not kept.
            let settled = leg.await.unwrap_or(Ok(Value::Null))?;
            if params.is_null() {
                params = settled;
            }
        }
        Ok(params)
    }
}

/// Keeps the blocks of one sequence that is about to be computed.
pub(super) fn keep(
    side: &Arc<TransferEndpoint>,
    plan: Plan,
    after_stop: bool,
) -> (Transfer, oneshot::Receiver<Settled>) {
    let (kept, blocks) = oneshot::channel();
    let (settle, settled) = oneshot::channel();
    let id = side.new_id();
    side.spawn(see_to(Arc::clone(side), id, plan, blocks, settle));
    let keep = Keep { id, after_stop, kept };
    (Transfer::Keep(keep), settled)
}

async fn see_to(
    side: Arc<TransferEndpoint>,
    id: u64,
    plan: Plan,
    blocks: oneshot::Receiver<KeptBlocks>,
    settle: oneshot::Sender<Settled>,
) {
    let Ok(kept) = blocks.await else {
        return;
    };
    match plan {
        Plan::Offer(handover) => hand_over(&side, handover, &kept, settle).await,
        Plan::Store { hashes } => side.fabric().store(&hashes),
        Plan::Strand => return,
    }
    side.command(Command::ReleaseKept(id)).await;
}

/// Returns when the blocks are not needed any more.
async fn hand_over(
    side: &TransferEndpoint,
    plan: Handover,
    kept: &KeptBlocks,
    mut settle: oneshot::Sender<Settled>,
) {
    let (fetched, wait) = oneshot::channel();
    let (now, key) = (Instant::now(), plan.key);
    let expiry = side.fabric().expiry(plan.keep_for);
    let params = match plan.answer {
        PrefillAnswer::Where { tokens, port } => nixl_params(&key, kept, tokens, port),
        PrefillAnswer::Nothing | PrefillAnswer::NothingUntilFetched => Value::Null,
    };
    let offer = Offer {
        cached_tokens: kept.cached_tokens,
        ready_at: now + plan.unavailable_for,
        fetched,
    };
    side.fabric().offer(key.clone(), offer);
    // The receiver may be gone; the blocks are kept all the same.
    if plan.answer == PrefillAnswer::NothingUntilFetched {
        let fetched = until_fetched(side, &key, wait, expiry, settle.closed()).await;
        let _ = settle.send(if fetched { Ok(params) } else { Err(NotFetched) });
    } else {
        let _ = settle.send(Ok(params));
        until_fetched(side, &key, wait, expiry, std::future::pending()).await;
    }
}

/// Waits until the blocks were fetched, or their time is over. A fetch in progress at that time, or without a client,
/// is completed.
async fn until_fetched(
    side: &TransferEndpoint,
    key: &Key,
    wait: oneshot::Receiver<()>,
    mut expiry: Expiry,
    unwanted: impl Future<Output = ()>,
) -> bool {
    let (mut wait, unwanted) = (wait, pin!(unwanted));
    let fetched = tokio::select! {
        fetched = &mut wait => fetched.is_ok(),
        () = expiry.passed() => !side.fabric().withdraw(key) && wait.await.is_ok(),
        () = unwanted => return !side.fabric().withdraw(key) && wait.await.is_ok(),
    };
    if !fetched {
        // The other side has died with it, or does not fetch any more.
        expiry.passed().await;
    }
    fetched
}

/// Parameters as recorded from vLLM 0.32.
fn nixl_params(key: &Key, kept: &KeptBlocks, tokens: usize, port: u16) -> Value {
    json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [kept.blocks],
        "remote_engine_id": key.engine, "remote_request_id": key.request, "remote_host": HOST,
        "remote_port": port, "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": tokens,
        "remote_blocks_expiry_time": null, "transfer_mode": "pull",
        "remote_prefill_cached_tokens": kept.cached_tokens,
    })
}
