//! Tests of the blocks of recorded prompts.

use std::num::NonZeroU32;

use proxy::record::{BLOCK_HASH_BYTES, OutcomeLine, RecordSpec};

use super::{Recording, outcomes, recorded_as};
use crate::client::{post, send};
use crate::router::router;
use crate::tokens::querying_worker;
use crate::worker::Worker;

/// Sends two prompts that differ after their tenth token. Returns their outcomes.
async fn outcomes_of_two(change: impl FnOnce(RecordSpec) -> RecordSpec) -> Vec<OutcomeLine> {
    let recording = Recording::start();
    let worker = Worker::named("a").await;
    let router = router()
        .worker("a", &worker.url())
        .with(querying_worker)
        .with(recorded_as(change(recording.everything())))
        .start()
        .await;
    for last in [11, 12] {
        let body = format!(r#"{{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10,{last},{last}]}}"#);
        send(router.address, post("/v1/completions", body))
            .await
            .text()
            .await;
    }
    recording.has_written(4).await;
    let lines = recording.lines();
    outcomes(&lines).into_iter().cloned().collect()
}

#[tokio::test]
async fn the_blocks_of_prompts_are_written_where_configured_as_far_as_they_are_complete() {
    let outcomes = outcomes_of_two(|spec| RecordSpec {
        prompt_blocks: NonZeroU32::new(5),
        ..spec
    })
    .await;
    let blocks = |at: usize| &outcomes[at].blocks.as_ref().unwrap().0;
    assert_eq!(outcomes[0].block_tokens, Some(5));
    assert_eq!(
        blocks(0).len(),
        2 * BLOCK_HASH_BYTES,
        "the last two tokens fill none"
    );
    assert_eq!(blocks(0), blocks(1), "they begin alike");
    let outcomes = outcomes_of_two(|spec| RecordSpec {
        prompt_blocks: NonZeroU32::new(6),
        ..spec
    })
    .await;
    let blocks = |at: usize| outcomes[at].blocks.as_ref().unwrap().0.split_at(BLOCK_HASH_BYTES);
    assert_eq!(blocks(0).0, blocks(1).0);
    assert_ne!(blocks(0).1, blocks(1).1);
}

#[tokio::test]
async fn no_blocks_are_written_where_none_are_configured() {
    let outcomes = outcomes_of_two(|spec| spec).await;
    assert_eq!(
        (&outcomes[0].blocks, outcomes[0].prompt_tokens),
        (&None, None),
        "nor tokens made"
    );
}
