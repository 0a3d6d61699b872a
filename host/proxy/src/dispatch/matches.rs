//! Lookup of a request's prompt in the prefix index. No other file queries the index about prefixes. A column, an
//! import, a booking and a header therefore have the same matches.

use kv_index::SharedPrefixIndex;
use placement::{CacheKnowledge, PrefixMatches};
use routing::WorkerId;

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::sources::DecisionSources;
use crate::fleet::feeds::LiveFeeds;

/// Looks up the prompt for all candidates at once; clears `matches` where its tokens are not known.
pub(crate) fn find_matches(
    request: &InferenceRequest,
    index: &SharedPrefixIndex,
    live: &LiveFeeds,
    ids: &[WorkerId],
    matches: &mut PrefixMatches,
) {
    let Some(prompt) = &request.params.prompt else {
        return matches.clear();
    };
    let is_assumed = request.pool().prompts.expectation.assumed.is_some();
    let live = live.now();
    matches.replace(
        |found| index.matches(&mut prompt.lock(), ids, found),
        |row| {
            if live.contains(ids[row]) {
                CacheKnowledge::Live
            } else if is_assumed {
                CacheKnowledge::Assumed
            } else {
                CacheKnowledge::Unknown
            }
        },
    );
}

impl DecisionSources {
    /// Looks up the request's prompt for these workers.
    pub(crate) fn find_matches(
        &self,
        request: &InferenceRequest,
        ids: &[WorkerId],
        matches: &mut PrefixMatches,
    ) {
        find_matches(request, &self.index, &self.live, ids, matches);
    }
}
