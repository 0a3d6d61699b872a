//! Every call of the index under test, and the comparison of its answers with the model's.

use std::collections::BTreeMap;

use kv_index::{Applied, Holder, Prompt, SharedPrefixIndex, WorkerMatch};
use routing::WorkerId;

use super::model::{Asked, Depths, Model};

fn depths(found: &WorkerMatch) -> Depths {
    [found.device_tokens, found.host_tokens, found.any_tokens]
}

/// Returns the index's depths for every cache that events named. The best rank's answer must be the worker's.
pub(crate) fn rank_depths(
    index: &SharedPrefixIndex,
    queried: &Asked,
    workers: &[WorkerId],
) -> Result<BTreeMap<Holder, Depths>, String> {
    let mut prompt = Prompt::new(
        &queried.tokens[..],
        queried.lora.as_deref(),
        queried.salt.as_deref(),
    );
    let (mut ranks, mut best) = (Vec::new(), Vec::new());
    index.rank_matches(&mut prompt, workers, &mut ranks);
    index.matches(&mut prompt, workers, &mut best);
    for (&worker, best) in workers.iter().zip(&best) {
        let of_worker = ranks.iter().filter(|rank| rank.holder.worker == worker);
        let order = |found: &WorkerMatch| {
            (
                found.any_tokens,
                found.device_tokens,
                std::cmp::Reverse(found.rank),
            )
        };
        let expected = of_worker
            .map(|rank| rank.found)
            .max_by_key(order)
            .unwrap_or_default();
        // If no worker holds anything, all are equally good.
        if *best != expected && (best.any_tokens, expected.any_tokens) != (0, 0) {
            return Err(format!(
                "{worker:?} is said to hold {best:?}, its best rank {expected:?}"
            ));
        }
    }
    Ok(ranks
        .iter()
        .map(|rank| (rank.holder, depths(&rank.found)))
        .collect())
}

/// Checks that every cache's depths are the model's.
pub(crate) fn compare(
    index: &SharedPrefixIndex,
    model: &Model,
    queried: &Asked,
    workers: &[WorkerId],
) -> Result<(), String> {
    let expected = model.depths(queried);
    let found = rank_depths(index, queried, workers)?;
    let holders = expected.keys().chain(found.keys());
    for holder in holders.filter(|holder| workers.contains(&holder.worker)) {
        let of = |depths: &BTreeMap<Holder, Depths>| depths.get(holder).copied().unwrap_or_default();
        if of(&expected) != of(&found) {
            return Err(format!(
                "{holder:?} holds {:?} of {queried:?}, the index says {:?}",
                of(&expected),
                of(&found)
            ));
        }
    }
    Ok(())
}

/// Checks that the counts of an event's blocks are the same.
pub(crate) fn same_counts(index: Applied, model: Applied) -> Result<(), String> {
    if index == model {
        return Ok(());
    }
    Err(format!("the event did {model:?}, the index says {index:?}"))
}

/// Checks that the index reports no more for any cache than the model has.
pub(crate) fn never_more(
    index: &SharedPrefixIndex,
    model: &Model,
    queried: &Asked,
    workers: &[WorkerId],
) -> Result<(), String> {
    let most = model.depths(queried);
    for (holder, found) in rank_depths(index, queried, workers)? {
        let most = most.get(&holder).copied().unwrap_or_default();
        if (0..3).any(|tier| found[tier] > most[tier]) {
            return Err(format!(
                "{holder:?} holds {most:?} of {queried:?}, the index says {found:?}"
            ));
        }
    }
    Ok(())
}
