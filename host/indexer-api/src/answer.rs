//! The bodies of answers to queries, in the shapes of two generations of upstream.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::lookup::{Found, Held, NotCurrent, Ranks};

/// Which shape a caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"instances": {instance: ...}}`, of the third generation.
    Instances,
    /// `{tenant: {instance: ...}}`, of the first one and the public documentation.
    Tenant,
}

impl Shape {
    /// As the query string says: `?shape=tenant` or `?shape=instances`.
    pub(crate) fn named(query: Option<&str>) -> Option<Self> {
        let mut pairs = query.unwrap_or_default().split('&');
        match pairs.find_map(|pair| pair.strip_prefix("shape=")) {
            None | Some("instances") => Some(Self::Instances),
            Some("tenant") => Some(Self::Tenant),
            Some(_) => None,
        }
    }
}

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Instances {
        instances: BTreeMap<Box<str>, InstanceMatch>,
        /// Our own member. Clients of upstream read `instances` only.
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

impl Answer {
    pub(crate) fn new(shape: Shape, tenant: &str, found: Found) -> Self {
        let instances = found.instances.into_iter();
        match shape {
            Shape::Instances => Self::Instances {
                instances: instances
                    .map(|(name, ranks)| (name, InstanceMatch::of(&ranks)))
                    .collect(),
                not_current: found.not_current,
            },
            // Every member of this shape is a tenant or an instance: there is no place for another one.
            Shape::Tenant => {
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

fn best(ranks: &Ranks) -> Held {
    ranks.values().fold(Held::default(), |mut best, held| {
        best.raise(*held);
        best
    })
}

fn on_device(ranks: &Ranks) -> BTreeMap<String, u32> {
    let ranks = ranks.iter();
    ranks.map(|(rank, held)| (rank.to_string(), held.gpu)).collect()
}

impl InstanceMatch {
    fn of(ranks: &Ranks) -> Self {
        let Held { gpu, cpu, disk } = best(ranks);
        let tiers = |held: &Held| TierMatch {
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
    fn of(ranks: &Ranks) -> Self {
        let Held { gpu, cpu, disk } = best(ranks);
        Self {
            longest_matched: disk,
            dp: on_device(ranks),
            gpu,
            cpu,
            disk,
        }
    }
}
