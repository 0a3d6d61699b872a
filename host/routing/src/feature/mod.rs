//! Features: the numbers that a policy requests by name, and their meaning.
//!
//! A new feature is a new name here: nothing in the WIT changes and no built policy breaks.

mod candidate;
mod request;

use thiserror::Error;

pub use self::candidate::CANDIDATE_CATALOGUE;
pub use self::request::REQUEST_CATALOGUE;

/// Description of a feature for authors (`wit/README.md` is checked against this).
#[derive(Debug, Clone, Copy)]
pub struct FeatureDoc {
    /// Name in a plan.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Age at most.
    pub freshness: &'static str,
    /// Cases in which the number is NaN.
    pub unknown: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

/// A number of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFeature {
    /// `request.prompt-tokens`
    PromptTokens,
    /// `request.max-tokens`
    MaxTokens,
    /// `request.body-bytes`
    BodyBytes,
    /// `request.priority`
    Priority,
    /// `request.stream`
    Stream,
    /// `request.waited-ms`
    WaitedMs,
    /// `request.decode-alone`
    DecodeAlone,
    /// `request.tried`
    Tried,
    /// `request.hold-left-ms`
    HoldLeftMs,
    /// `request.ttft-target-ms`
    TtftTargetMs,
    /// `prefix.best-tokens`
    PrefixBest,
    /// `prefix.key-N`, of so many tokens
    PrefixKey(u32),
    /// `pool.queued`
    PoolQueued,
    /// `pool.workers`
    PoolWorkers,
    /// An optional name this host does not know: always NaN.
    Unknown,
}

/// A column of the matrix: one number a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CandidateFeature {
    /// `worker.weight`
    Weight,
    /// `worker.role`
    Role,
    /// `worker.dp-rank`
    DpRank,
    /// `worker.name-hash`
    NameHash,
    /// `worker.age-ms`
    AgeMs,
    /// `worker.failures`
    Failures,
    /// `load.requests`
    Requests,
    /// `load.queued`
    Queued,
    /// `load.prefill-tokens`
    PrefillTokens,
    /// `load.decoding`
    Decoding,
    /// `load.decoding-tokens`
    DecodingTokens,
    /// `load.prompt-tokens`
    PromptTokens,
    /// `ttft.ewma-ms`
    TtftEwmaMs,
    /// `ttft.p90-ms`
    TtftP90Ms,
    /// `tbt.ewma-ms`
    TbtEwmaMs,
    /// `prefix.device-tokens`
    PrefixDevice,
    /// `prefix.host-tokens`
    PrefixHost,
    /// `prefix.any-tokens`
    PrefixAny,
    /// `cache.blocks`
    CacheBlocks,
    /// `cost.prefill-ms`
    CostPrefill,
    /// `cost.token-ms`
    CostToken,
    /// `cost.transfer-ms`
    CostTransfer,
    /// `cost.tbt-ms`
    CostTbt,
    /// `cost.request-ms`
    CostRequest,
    /// `cost.fetched-share`
    CostFetchedShare,
    /// `engine.running`
    EngineRunning,
    /// `engine.waiting`
    EngineWaiting,
    /// `engine.kv-usage`
    EngineKvUsage,
    /// `engine.kv-tokens`
    EngineKvTokens,
    /// `engine.age-ms`
    EngineAgeMs,
    /// `label.KEY`
    Label(Box<str>),
    /// An optional name this host does not know: always NaN.
    Unknown,
}

/// A name that is neither known nor marked optional.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown feature `{name}`; known are {}", known.join(", "))]
pub struct UnknownFeature {
    /// The name.
    pub name: String,
    /// The known names.
    pub known: Vec<String>,
}

/// The numbers that a policy requests for every call, resolved once at load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeaturePlan {
    request: Vec<RequestFeature>,
    candidate: Vec<CandidateFeature>,
}

impl FeaturePlan {
    /// Resolves names. A name that ends in `?` may be unknown and is then always NaN.
    ///
    /// # Errors
    /// [`UnknownFeature`] for the first unknown name.
    pub fn resolve<S: AsRef<str>>(request: &[S], candidate: &[S]) -> Result<Self, UnknownFeature> {
        Ok(Self {
            request: request
                .iter()
                .map(|name| request_feature(name.as_ref()))
                .collect::<Result<_, _>>()?,
            candidate: candidate
                .iter()
                .map(|name| CandidateFeature::resolve(name.as_ref()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns the plan of these numbers.
    pub(crate) fn of(request: Vec<RequestFeature>, candidate: Vec<CandidateFeature>) -> Self {
        Self { request, candidate }
    }

    /// Returns the numbers at the front, in order.
    #[must_use]
    pub fn request(&self) -> &[RequestFeature] {
        &self.request
    }

    /// Returns the columns, in order.
    #[must_use]
    pub fn candidate(&self) -> &[CandidateFeature] {
        &self.candidate
    }

    /// Returns whether a number needs a lookup in the prefix index.
    #[must_use]
    pub fn needs_prefix(&self) -> bool {
        let in_front = self.request.contains(&RequestFeature::PrefixBest);
        in_front
            || self.candidate.iter().any(|feature| {
                matches!(
                    feature,
                    CandidateFeature::PrefixDevice
                        | CandidateFeature::PrefixHost
                        | CandidateFeature::PrefixAny
                        | CandidateFeature::CostPrefill
                )
            })
    }

    /// Returns whether the policy places both legs of a request in one call: its plan has the workers' roles.
    #[must_use]
    pub fn pairs(&self) -> bool {
        self.candidate.contains(&CandidateFeature::Role)
    }

    /// Returns whether the prompt's tokens are needed at all.
    #[must_use]
    pub fn needs_tokens(&self) -> bool {
        self.needs_prefix()
            || self.request.iter().any(|feature| {
                matches!(
                    feature,
                    RequestFeature::PromptTokens | RequestFeature::PrefixKey(_)
                )
            })
            || self.candidate.contains(&CandidateFeature::CostTransfer)
            || self.candidate.contains(&CandidateFeature::CostTbt)
    }
}

fn request_feature(name: &str) -> Result<RequestFeature, UnknownFeature> {
    let (bare, optional) = split_optional(name);
    let known = REQUEST_CATALOGUE
        .iter()
        .find(|(_, doc)| doc.name == bare)
        .map(|(feature, _)| *feature);
    match known {
        Some(feature) => Ok(feature),
        None if optional => Ok(RequestFeature::Unknown),
        None => Err(unknown(
            bare,
            REQUEST_CATALOGUE.iter().map(|(_, doc)| doc.name),
            &[],
        )),
    }
}

impl CandidateFeature {
    /// Returns the column of that name, as [`FeaturePlan::resolve`] finds it.
    pub(crate) fn resolve(name: &str) -> Result<Self, UnknownFeature> {
        let (bare, optional) = split_optional(name);
        if let Some(key) = bare.strip_prefix("label.").filter(|key| !key.is_empty()) {
            return Ok(Self::Label(key.into()));
        }
        let known = CANDIDATE_CATALOGUE
            .iter()
            .find(|(_, doc)| doc.name == bare)
            .map(|(feature, _)| feature.clone());
        match known {
            Some(feature) => Ok(feature),
            None if optional => Ok(Self::Unknown),
            None => Err(unknown(
                bare,
                CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name),
                &["label.KEY"],
            )),
        }
    }
}

fn split_optional(name: &str) -> (&str, bool) {
    name.strip_suffix('?').map_or((name, false), |bare| (bare, true))
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>, more: &[&'a str]) -> UnknownFeature {
    UnknownFeature {
        name: name.to_owned(),
        known: known.chain(more.iter().copied()).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_catalogue_resolves_to_its_feature() {
        for (feature, doc) in REQUEST_CATALOGUE {
            let plan = FeaturePlan::resolve(&[doc.name], &[]).unwrap();
            assert_eq!(plan.request(), [*feature]);
        }
        for (feature, doc) in CANDIDATE_CATALOGUE {
            let plan = FeaturePlan::resolve(&[], &[doc.name]).unwrap();
            assert_eq!(plan.candidate(), std::slice::from_ref(feature));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = FeaturePlan::resolve(&[], &["prefix.hbm"]).unwrap_err();
        assert_eq!(error.name, "prefix.hbm");
        assert!(error.to_string().contains("prefix.device-tokens"), "{error}");
        assert!(error.to_string().contains("label.KEY"), "{error}");
    }

    #[test]
    fn an_optional_unknown_name_is_a_column_of_its_own() {
        let plan = FeaturePlan::resolve(&["request.mood?"], &["engine.watts?", "load.requests?"]).unwrap();
        assert_eq!(plan.request(), [RequestFeature::Unknown]);
        assert_eq!(
            plan.candidate(),
            [CandidateFeature::Unknown, CandidateFeature::Requests]
        );
    }

    #[test]
    fn tokens_are_needed_only_for_prefix_columns_and_the_prompt_length() {
        let plan = |request: &[&str], candidate: &[&str]| FeaturePlan::resolve(request, candidate).unwrap();
        assert!(!plan(&["request.body-bytes"], &["load.requests", "cache.blocks"]).needs_tokens());
        assert!(plan(&["request.prompt-tokens"], &[]).needs_tokens());
        assert!(plan(&[], &["prefix.any-tokens"]).needs_prefix());
        let key = plan(&["prefix.key-256"], &[]);
        assert!(key.needs_tokens() && !key.needs_prefix());
    }
}
