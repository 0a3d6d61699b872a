//! Response bodies of queries, in the shapes of two upstream generations.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::lookup::{HeldTokens, LookupResult, NotCurrent, RankHoldings};

/// Response shape, selected by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    /// `{"instances": {instance: ...}}`, of the third generation.
    Instances,
    /// `{tenant: {instance: ...}}`, of the first generation and the public documentation.
    Tenant,
}

impl AnswerShape {
    /// Reads the query string: `?shape=tenant` or `?shape=instances`.
    pub(crate) fn parse(query: Option<&str>) -> Option<Self> {
        let mut pairs = query.unwrap_or_default().split('&');
        match pairs.find_map(|pair| pair.strip_prefix("shape=")) {
            None | Some("instances") => Some(Self::Instances),
            Some("tenant") => Some(Self::Tenant),
            Some(_) => None,
        }
    }
}

/// Response body of a query.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum QueryAnswer {
    Instances {
        instances: BTreeMap<Box<str>, InstanceMatch>,
        /// Member of this service only. Upstream's clients read only `instances`.
        #[serde(skip_serializing_if = "NotCurrent::is_empty")]
        not_current: NotCurrent,
    },
    Tenant(BTreeMap<Box<str>, BTreeMap<Box<str>, TenantMatch>>),
}

/// All numbers are tokens; ranks are decimal text.
#[derive(Debug, Serialize)]
pub(crate) struct InstanceMatch {
    longest_matched: u32,
    dp: BTreeMap<String, u32>,
    rank_matches: BTreeMap<String, TierMatch>,
    gpu: u32,
    cpu: u32,
    disk: u32,
}

#[derive(Debug, Serialize)]
struct TierMatch {
    gpu: u32,
    cpu: u32,
    disk: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) struct TenantMatch {
    #[serde(rename = "longest_matched")]
    longest_matched: u32,
    dp: BTreeMap<String, u32>,
    gpu: u32,
    cpu: u32,
    disk: u32,
}

impl QueryAnswer {
    pub(crate) fn new(shape: AnswerShape, tenant: &str, found: LookupResult) -> Self {
        let instances = found.instances.into_iter();
        match shape {
            AnswerShape::Instances => Self::Instances {
                instances: instances
                    .map(|(name, ranks)| (name, InstanceMatch::of(&ranks)))
                    .collect(),
                not_current: found.not_current,
            },
            // Every member of this shape is a tenant or an instance: there is no place for another one.
            AnswerShape::Tenant => {
                let all: BTreeMap<_, _> = instances
                    .map(|(name, ranks)| (name, TenantMatch::of(&ranks)))
                    .collect();
                Self::Tenant(
                    (!all.is_empty())
                        .then(|| (tenant.into(), all))
                        .into_iter()
                        .collect(),
                )
            }
        }
    }
}

fn best(ranks: &RankHoldings) -> HeldTokens {
    ranks.values().fold(HeldTokens::default(), |mut best, held| {
        best.raise(*held);
        best
    })
}

fn on_device(ranks: &RankHoldings) -> BTreeMap<String, u32> {
    let ranks = ranks.iter();
    ranks.map(|(rank, held)| (rank.to_string(), held.gpu)).collect()
}

impl InstanceMatch {
    fn of(ranks: &RankHoldings) -> Self {
        let HeldTokens { gpu, cpu, disk } = best(ranks);
        let tiers = |held: &HeldTokens| TierMatch {
            gpu: held.gpu,
            cpu: held.cpu,
            disk: held.disk,
        };
        Self {
            longest_matched: disk,
            dp: on_device(ranks),
            rank_matches: ranks
                .iter()
                .map(|(rank, held)| (rank.to_string(), tiers(held)))
                .collect(),
            gpu,
            cpu,
            disk,
        }
    }
}

impl TenantMatch {
    fn of(ranks: &RankHoldings) -> Self {
        let HeldTokens { gpu, cpu, disk } = best(ranks);
        Self {
            longest_matched: disk,
            dp: on_device(ranks),
            gpu,
            cpu,
            disk,
        }
    }
}
