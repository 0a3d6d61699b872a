//! The numbers a policy can ask for by name, and what each of them means.
//!
//! A new feature is a new name here: nothing in the WIT changes and no built policy breaks.

use thiserror::Error;

/// How a feature is described to authors (`wit/README.md` is checked against this).
#[derive(Debug, Clone, Copy)]
pub struct FeatureDoc {
    /// Its name in a plan.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// How old it can be.
    pub freshness: &'static str,
    /// When it is NaN.
    pub unknown: &'static str,
    /// What it is.
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
    /// `load.requests`
    Requests,
    /// `load.prefill-tokens`
    PrefillTokens,
    /// `load.decoding`
    Decoding,
    /// `load.prompt-tokens`
    PromptTokens,
    /// `ttft.ewma-ms`
    TtftEwmaMs,
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
    /// `label.KEY`
    Label(Box<str>),
    /// An optional name this host does not know: always NaN.
    Unknown,
}

/// Every request feature.
pub const REQUEST_CATALOGUE: &[(RequestFeature, FeatureDoc)] = &[
    (
        RequestFeature::PromptTokens,
        FeatureDoc {
            name: "request.prompt-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the prompt's tokens are not known (no tokeniser, or it missed its deadline)",
            meaning: "length of the prompt; asking for it makes the router tokenise",
        },
    ),
    (
        RequestFeature::MaxTokens,
        FeatureDoc {
            name: "request.max-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the client set no limit",
            meaning: "most tokens the client allows in the answer",
        },
    ),
    (
        RequestFeature::BodyBytes,
        FeatureDoc {
            name: "request.body-bytes",
            unit: "bytes",
            freshness: "this request",
            unknown: "never",
            meaning: "length of the request body",
        },
    ),
    (
        RequestFeature::Priority,
        FeatureDoc {
            name: "request.priority",
            unit: "a rank, lower is sooner (as in vLLM)",
            freshness: "this request",
            unknown: "the body has no `priority`",
            meaning: "`priority` of the request body",
        },
    ),
    (
        RequestFeature::Stream,
        FeatureDoc {
            name: "request.stream",
            unit: "0 or 1",
            freshness: "this request",
            unknown: "never",
            meaning: "1 where the client asked for a streamed answer",
        },
    ),
    (
        RequestFeature::WaitedMs,
        FeatureDoc {
            name: "request.waited-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "never",
            meaning: "time since the request's head arrived",
        },
    ),
    (
        RequestFeature::DecodeAlone,
        FeatureDoc {
            name: "request.decode-alone",
            unit: "0 or 1",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "1 where a decode worker may do the whole of the request; elsewhere naming one without a prefill worker is a fault",
        },
    ),
];

/// Every candidate feature but `label.KEY`.
pub const CANDIDATE_CATALOGUE: &[(CandidateFeature, FeatureDoc)] = &[
    (
        CandidateFeature::Weight,
        FeatureDoc {
            name: "worker.weight",
            unit: "relative speed, 1 unless configured",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "`weight` of the worker: 2 means twice the work in the same time",
        },
    ),
    (
        CandidateFeature::Role,
        FeatureDoc {
            name: "worker.role",
            unit: "0 mixed, 1 prefill, 2 decode",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "what the worker does; a policy that asks for it places both legs of a request in one call",
        },
    ),
    (
        CandidateFeature::Requests,
        FeatureDoc {
            name: "load.requests",
            unit: "requests",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "sent by this router and not yet answered in full",
        },
    ),
    (
        CandidateFeature::PrefillTokens,
        FeatureDoc {
            name: "load.prefill-tokens",
            unit: "tokens",
            freshness: "now, as this router knows it",
            unknown: "never; where a prompt's tokens are not known, a quarter of its body's bytes stands for them",
            meaning: "prompt tokens without a cache match, summed over requests that have no first token yet",
        },
    ),
    (
        CandidateFeature::Decoding,
        FeatureDoc {
            name: "load.decoding",
            unit: "requests",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "requests that have their first token and are not finished",
        },
    ),
    (
        CandidateFeature::PromptTokens,
        FeatureDoc {
            name: "load.prompt-tokens",
            unit: "tokens",
            freshness: "now, as this router knows it",
            unknown: "never; estimated as in `load.prefill-tokens`",
            meaning: "prompt tokens, cached or not, of all requests in flight",
        },
    ),
    (
        CandidateFeature::TtftEwmaMs,
        FeatureDoc {
            name: "ttft.ewma-ms",
            unit: "milliseconds",
            freshness: "the last first token from that worker",
            unknown: "no request has had its first token from it yet",
            meaning: "moving average (weight 1/8 for the newest) of the time from dispatch to first token",
        },
    ),
    (
        CandidateFeature::PrefixDevice,
        FeatureDoc {
            name: "prefix.device-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "the prompt's tokens are not known, or the worker has no live event feed",
            meaning: "longest prefix of the prompt whose every block is in device memory there",
        },
    ),
    (
        CandidateFeature::PrefixHost,
        FeatureDoc {
            name: "prefix.host-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "as `prefix.device-tokens`",
            meaning: "the same, each block in device or host memory; never less than the device one",
        },
    ),
    (
        CandidateFeature::PrefixAny,
        FeatureDoc {
            name: "prefix.any-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "as `prefix.device-tokens`",
            meaning: "the same, each block on any tier; never less than the host one",
        },
    ),
    (
        CandidateFeature::CacheBlocks,
        FeatureDoc {
            name: "cache.blocks",
            unit: "blocks",
            freshness: "the engine's events, some milliseconds",
            unknown: "the worker has no live event feed",
            meaning: "blocks the index holds for that worker, over all tiers and ranks",
        },
    ),
    (
        CandidateFeature::CostPrefill,
        FeatureDoc {
            name: "cost.prefill-ms",
            unit: "milliseconds",
            freshness: "fitted to the last 128 first tokens from that worker",
            unknown: "fewer than 16 streamed answers or prefill legs were measured there",
            meaning: "predicted time to this request's first token there, were nothing waiting before it; matched tokens count as cached",
        },
    ),
    (
        CandidateFeature::CostToken,
        FeatureDoc {
            name: "cost.token-ms",
            unit: "milliseconds a token",
            freshness: "as `cost.prefill-ms`",
            unknown: "as `cost.prefill-ms`",
            meaning: "time to compute one prompt token there; times `load.prefill-tokens`, the wait for the prompts before this one",
        },
    ),
    (
        CandidateFeature::CostTransfer,
        FeatureDoc {
            name: "cost.transfer-ms",
            unit: "milliseconds",
            freshness: "fitted to the last 128 prompts that worker fetched",
            unknown: "fewer than 16 prompts computed elsewhere were taken over there",
            meaning: "predicted time to the first token there, were the prompt computed elsewhere",
        },
    ),
    (
        CandidateFeature::CostTbt,
        FeatureDoc {
            name: "cost.tbt-ms",
            unit: "milliseconds",
            freshness: "fitted to the last 128 streams from that worker that told their tokens",
            unknown: "fewer than 16 streams of 8 tokens or more told how many they had",
            meaning: "predicted time between tokens there, were this request among those that decode",
        },
    ),
];

/// A name that is neither known nor marked optional.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown feature `{name}`; known are {}", known.join(", "))]
pub struct UnknownFeature {
    /// The name asked for.
    pub name: String,
    /// What could have been asked for.
    pub known: Vec<String>,
}

/// What a policy wants laid out for every call, resolved once at load.
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
                .map(|name| candidate_feature(name.as_ref()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The numbers at the front, in order.
    #[must_use]
    pub fn request(&self) -> &[RequestFeature] {
        &self.request
    }

    /// The columns, in order.
    #[must_use]
    pub fn candidate(&self) -> &[CandidateFeature] {
        &self.candidate
    }

    /// Whether a column needs the prefix index to be asked.
    #[must_use]
    pub fn needs_prefix(&self) -> bool {
        self.candidate.iter().any(|feature| {
            matches!(
                feature,
                CandidateFeature::PrefixDevice
                    | CandidateFeature::PrefixHost
                    | CandidateFeature::PrefixAny
                    | CandidateFeature::CostPrefill
            )
        })
    }

    /// Whether the policy places both legs of a request in one call: it asks which worker does what.
    #[must_use]
    pub fn pairs(&self) -> bool {
        self.candidate.contains(&CandidateFeature::Role)
    }

    /// Whether the prompt's tokens are needed at all.
    #[must_use]
    pub fn needs_tokens(&self) -> bool {
        self.needs_prefix()
            || self.request.contains(&RequestFeature::PromptTokens)
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

fn candidate_feature(name: &str) -> Result<CandidateFeature, UnknownFeature> {
    let (bare, optional) = split_optional(name);
    if let Some(key) = bare.strip_prefix("label.").filter(|key| !key.is_empty()) {
        return Ok(CandidateFeature::Label(key.into()));
    }
    let known = CANDIDATE_CATALOGUE
        .iter()
        .find(|(_, doc)| doc.name == bare)
        .map(|(feature, _)| feature.clone());
    match known {
        Some(feature) => Ok(feature),
        None if optional => Ok(CandidateFeature::Unknown),
        None => Err(unknown(
            bare,
            CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name),
            &["label.KEY"],
        )),
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
    }
}
