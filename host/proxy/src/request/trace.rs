//! Start of a request's record in the decision log.

use std::num::NonZeroU32;
use std::sync::Arc;

use decision_log::{PromptBlocks, Trace, TraceStart};
use http::HeaderMap;

use crate::base::headers::X_CONDUCTOR_EXPLAIN;
use crate::dispatch::hashed_prompt::HashedPrompt;
use crate::dispatch::inference_request::InferenceRequest;

/// Starts the record of a request, if it is selected.
pub(crate) fn begin_trace(request: &InferenceRequest) -> Option<Arc<Trace>> {
    let start = TraceStart {
        seq: request.head.seq,
        id: request.head.id.as_bytes(),
        is_explained: requests_explanation(&request.head.headers),
        model: &request.params.model,
        path: request.head.target.path(),
        pool: &request.pool().workers.name,
        route: request.policies.at_arrival().route,
        prompt_tokens: request.params.prompt.as_ref().map(HashedPrompt::tokens),
        arrived: request.head.arrived,
        tokens_took: request.params.tokens_took,
    };
    let blocks = |tokens| {
        request
            .params
            .prompt
            .as_ref()
            .map(|prompt| prompt_blocks(prompt, tokens))
    };
    Trace::begin(&request.settings.record, start, blocks)
}

/// Returns whether the request has the header `x-conductor-explain: 1`.
pub(crate) fn requests_explanation(headers: &HeaderMap) -> bool {
    headers
        .get(X_CONDUCTOR_EXPLAIN)
        .is_some_and(|value| value.as_bytes() == b"1")
}

fn prompt_blocks(prompt: &HashedPrompt, block_tokens: NonZeroU32) -> PromptBlocks {
    let mut prompt = prompt.lock();
    PromptBlocks::of(prompt.hashes(block_tokens.get(), usize::MAX), block_tokens)
}

#[cfg(test)]
mod tests {
    use decision_log::BLOCK_HASH_BYTES;

    use super::*;

    fn blocks(tokens: impl Iterator<Item = u32>) -> Vec<u8> {
        let prompt = HashedPrompt::new(tokens.collect::<Vec<_>>().into(), None, None);
        let blocks = prompt_blocks(&prompt, const { NonZeroU32::new(4).unwrap() });
        blocks.hashes().to_vec()
    }

    #[test]
    fn prompts_have_the_same_blocks_up_to_their_first_difference() {
        let (one, longer) = (blocks(0..11), blocks(0..20));
        assert_eq!(one.len(), 2 * BLOCK_HASH_BYTES, "incomplete blocks have no hash");
        assert_eq!(one, longer[..one.len()]);
        let other = blocks((0..4).map(|_| 7).chain(4..11));
        assert_ne!(
            one[BLOCK_HASH_BYTES..],
            other[BLOCK_HASH_BYTES..],
            "each hash includes all earlier blocks"
        );
    }

    #[test]
    fn only_the_value_1_requests_an_explanation() {
        let mut headers = HeaderMap::new();
        assert!(!requests_explanation(&headers));
        headers.insert(X_CONDUCTOR_EXPLAIN, "1".parse().unwrap());
        assert!(requests_explanation(&headers));
        headers.insert(X_CONDUCTOR_EXPLAIN, "0".parse().unwrap());
        assert!(!requests_explanation(&headers));
    }
}
