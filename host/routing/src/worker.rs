//! Worker: one inference server.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{DpRank, WorkerId};
use crate::load::WorkerLoad;

/// Role of a worker: the parts of a request that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Prefill and decode.
    Mixed,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Role {
    /// Returns its number in the column `worker.role`.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::Mixed => 0.0,
            Self::Prefill => 1.0,
            Self::Decode => 2.0,
        }
    }

    /// Returns its name in the configuration and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// A worker as configured. Two workers with equal specs are the same worker to a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSpec {
    /// Unique in the fleet.
    pub name: Box<str>,
    /// `http://host:port`, without a trailing slash.
    pub url: Box<str>,
    /// Role.
    pub role: Role,
    /// Model names it serves; empty means whatever its pool's routes send.
    pub models: Vec<Box<str>>,
    /// Relative speed, above 0.
    pub weight: f64,
    /// Free facts for policies.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Rank that requests are pinned to, where several data-parallel ranks share the URL, each being a worker of its
    /// own.
    pub rank: Option<DpRank>,
    /// Address of a prefill worker's bootstrap server, `http://host:port`. `None` if its dialect has none.
    pub bootstrap: Option<Box<str>>,
}

impl WorkerSpec {
    /// Returns a mixed worker of weight 1 that serves any model.
    #[must_use]
    pub fn mixed(name: impl Into<Box<str>>, url: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            role: Role::Mixed,
            models: Vec::new(),
            weight: 1.0,
            labels: BTreeMap::new(),
            rank: None,
            bootstrap: None,
        }
    }
}

/// A worker of the running fleet: its spec, its identity, and the load this router put on it.
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    spec: Arc<WorkerSpec>,
    /// As in the specification: decisions read it of every worker.
    role: Role,
    name_hash: f64,
    load: Arc<WorkerLoad>,
}

impl Worker {
    /// Returns a worker new to the fleet.
    #[must_use]
    pub fn new(id: WorkerId, spec: WorkerSpec) -> Self {
        Self::loaded(id, spec, Arc::default())
    }

    /// Returns the same worker with a changed spec: requests in flight keep counting.
    #[must_use]
    pub(crate) fn with_spec(&self, spec: WorkerSpec) -> Self {
        Self::loaded(self.id, spec, Arc::clone(&self.load))
    }

    fn loaded(id: WorkerId, spec: WorkerSpec, load: Arc<WorkerLoad>) -> Self {
        Self {
            id,
            name_hash: text_number(&spec.name),
            role: spec.role,
            spec: Arc::new(spec),
            load,
        }
    }

    /// Returns its identity.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns its role.
    #[must_use]
    #[inline]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the specification, as configured.
    #[must_use]
    pub fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    /// Returns the specification, to be kept for longer than the worker is.
    #[must_use]
    pub fn shared_spec(&self) -> &Arc<WorkerSpec> {
        &self.spec
    }

    /// Returns its load from this router.
    #[must_use]
    pub fn load(&self) -> &Arc<WorkerLoad> {
        &self.load
    }

    /// Returns whether it serves this model.
    #[must_use]
    pub fn serves(&self, model: &str) -> bool {
        self.spec.models.is_empty() || self.spec.models.iter().any(|served| &**served == model)
    }

    /// Returns a 53-bit hash of its name: the same in every router.
    #[must_use]
    pub fn name_hash(&self) -> f64 {
        self.name_hash
    }

    /// Returns a label as a number: its value where it reads as one, else a 53-bit hash of its text (equal texts give
    /// equal numbers); NaN where it is not set.
    #[must_use]
    pub fn label_number(&self, key: &str) -> f64 {
        self.spec
            .labels
            .get(key)
            .map_or(f64::NAN, |text| label_value(text))
    }
}

/// Returns the number that a label of this text has, as [`Worker::label_number`] gives it.
#[must_use]
pub fn label_value(text: &str) -> f64 {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.unwrap_or_else(|| text_number(text))
}

/// Returns FNV-1a of a text.
fn text_number(text: &str) -> f64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = text
        .bytes()
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash_number(hash)
}

/// Returns a hash as policies receive it: its first 53 bits, which a double holds exactly.
#[must_use]
pub fn hash_number(hash: u64) -> f64 {
    (hash >> 11) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(labels: &[(&str, &str)], models: &[&str]) -> Worker {
        Worker::new(
            WorkerId(1),
            WorkerSpec {
                models: models.iter().map(|&model| model.into()).collect(),
                labels: labels
                    .iter()
                    .map(|&(key, value)| (key.into(), value.into()))
                    .collect(),
                ..WorkerSpec::mixed("a", "http://a:1")
            },
        )
    }

    #[test]
    fn a_label_is_a_number_a_stable_hash_or_unknown() {
        let worker = worker(
            &[("rank", "2.5"), ("zone", "a"), ("zone2", "a"), ("odd", "inf")],
            &[],
        );
        assert_eq!(worker.label_number("rank"), 2.5);
        assert_eq!(worker.label_number("zone"), worker.label_number("zone2"));
        assert!(worker.label_number("odd").is_finite());
        assert!(worker.label_number("missing").is_nan());
    }

    #[test]
    fn the_hash_of_a_name_is_the_same_in_every_version() {
        // FNV-1a of `a`, the upper 53 bits of 64.
        let expected = (0xaf63_dc4c_8601_ec8c_u64 >> 11) as f64;
        assert_eq!(worker(&[], &[]).name_hash(), expected);
    }

    #[test]
    fn a_worker_without_models_serves_any() {
        assert!(worker(&[], &[]).serves("x"));
        assert!(worker(&[], &["x"]).serves("x"));
        assert!(!worker(&[], &["x"]).serves("y"));
    }
}
