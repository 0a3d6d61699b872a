//! The prefill side: what happens to the blocks of a prompt that was computed for another engine.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::core_loop::Command;
use crate::transfer::fabric::{Key, Offer};
use crate::transfer::side::Side;
use crate::transfer::{Keep, Kept, Transfer};

/// Where a nixl engine says its blocks are.
const HOST: &str = "127.0.0.1";

/// What is to happen once the blocks are there.
#[derive(Debug)]
pub(super) enum Plan {
    /// They are offered.
    Offer(Handover),
    /// They are copied into the shared store.
    Store {
        /// Of the prompt's full blocks, as the store names them.
        hashes: Vec<u64>,
    },
    /// Nobody can ever fetch them, and nobody frees them.
    Strand,
}

/// How blocks are offered.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) key: Key,
    /// How long they are kept, in real time.
    pub(super) keep_for: Duration,
    /// How long the decode side cannot get at them, in real time.
    pub(super) unavailable_for: Duration,
    /// What the prefill's answer says of them.
    pub(super) says: Says,
}

/// What a prefill answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// At once, where the blocks are: the parameters of nixl.
    Where {
        /// Of the prompt.
        tokens: usize,
        /// The side channel.
        port: u16,
    },
    /// At once, and nothing.
    Nothing,
    /// Nothing either, once they have been fetched.
    NothingUntilFetched,
}

/// Nobody fetched the blocks in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotFetched;

type Settled = Result<Value, NotFetched>;

/// The prefill legs of one answer: what to wait for, and what to say.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    legs: Vec<oneshot::Receiver<Settled>>,
    /// Whether the answer has to wait for [`Self::params`] before it begins.
    pub(crate) before_head: bool,
}

impl Settling {
    pub(super) fn add(&mut self, leg: oneshot::Receiver<Settled>, says: Says) {
        self.legs.push(leg);
        self.before_head |= says == Says::NothingUntilFetched;
    }

    /// The answer's `kv_transfer_params`: those of the first leg that has any.
    pub(crate) async fn params(self) -> Settled {
        let mut params = Value::Null;
        for leg in self.legs {
            // A leg ends without a word where its blocks were not kept.
            let said = leg.await.unwrap_or(Ok(Value::Null))?;
            if params.is_null() {
                params = said;
            }
        }
        Ok(params)
    }
}

/// Sees to the blocks of one sequence that is about to be computed.
pub(super) fn keep(side: &Arc<Side>, plan: Plan, after_stop: bool) -> (Transfer, oneshot::Receiver<Settled>) {
    let (kept, blocks) = oneshot::channel();
    let (settle, settled) = oneshot::channel();
    let id = side.new_id();
    side.spawn(see_to(Arc::clone(side), id, plan, blocks, settle));
    let keep = Keep { id, after_stop, kept };
    (Transfer::Keep(keep), settled)
}

async fn see_to(
    side: Arc<Side>,
    id: u64,
    plan: Plan,
    blocks: oneshot::Receiver<Kept>,
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

/// Returns when the blocks are needed no longer.
async fn hand_over(side: &Side, plan: Handover, kept: &Kept, mut settle: oneshot::Sender<Settled>) {
    let (fetched, wait) = oneshot::channel();
    let (now, key) = (Instant::now(), plan.key);
    let until = now + plan.keep_for;
    let params = match plan.says {
        Says::Where { tokens, port } => nixl_params(&key, kept, tokens, port),
        Says::Nothing | Says::NothingUntilFetched => Value::Null,
    };
    let offer = Offer {
        cached_tokens: kept.cached_tokens,
        ready_at: now + plan.unavailable_for,
        fetched,
    };
    side.fabric().offer(key.clone(), offer);
    // Nobody may be there to hear either; the blocks are kept all the same.
    if plan.says == Says::NothingUntilFetched {
        let fetched = until_fetched(side, &key, wait, until, settle.closed()).await;
        let _ = settle.send(if fetched { Ok(params) } else { Err(NotFetched) });
    } else {
        let _ = settle.send(Ok(params));
        until_fetched(side, &key, wait, until, std::future::pending()).await;
    }
}

/// Waits until the blocks were fetched, or they need not be kept any longer. What is being fetched when the time
/// is up, or when nobody wants the answer, is fetched to its end.
async fn until_fetched(
    side: &Side,
    key: &Key,
    wait: oneshot::Receiver<()>,
    until: Instant,
    unwanted: impl Future<Output = ()>,
) -> bool {
    let (mut wait, unwanted) = (wait, pin!(unwanted));
    let fetched = tokio::select! {
        fetched = &mut wait => fetched.is_ok(),
        () = sleep_until(until) => !side.fabric().withdraw(key) && wait.await.is_ok(),
        () = unwanted => return !side.fabric().withdraw(key) && wait.await.is_ok(),
    };
    if !fetched {
        // The other side died with it, or asks no more.
        sleep_until(until).await;
    }
    fetched
}

/// As recorded from vLLM 0.32.
fn nixl_params(key: &Key, kept: &Kept, tokens: usize, port: u16) -> Value {
    json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [kept.blocks],
        "remote_engine_id": key.engine, "remote_request_id": key.request, "remote_host": HOST,
        "remote_port": port, "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": tokens,
        "remote_blocks_expiry_time": null, "transfer_mode": "pull",
        "remote_prefill_cached_tokens": kept.cached_tokens,
    })
}
