//! Hash profile: the way an engine names its blocks.
//!
//! It is read from a registration, shown in views, and used to distinguish the two kinds of hashes in queries. The
//! index needs no profile: it learns prefixes from the tokens of events.

use block_hash::{Algorithm, RFC_1527_SEED, VllmHasher};
use serde::Serialize;

use crate::document::{Document, Field};
use crate::field::{as_text, filled_text, text};
use crate::refusal::{Reason, Refusal};

const VLLM: &str = "vllm_v1";
const ROLLING: &str = "rfc1527";
const XXH3: &str = "xxh3_64";
const LOW_64: &str = "low64_be";

/// Hash profile of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashProfile {
    /// The engine's own hashes.
    Vllm {
        /// vLLM's `--prefix-caching-hash-algo`.
        algorithm: Algorithm,
        /// `PYTHONHASHSEED`; `None` if not set.
        seed: Option<Box<str>>,
    },
    /// The rolling XXH3 hashes of RFC 1527, with its seed.
    Rolling,
}

/// Hash profile in `/services` and `/global_view`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ProfileView {
    strategy: &'static str,
    algorithm: &'static str,
    python_hash_seed: Option<String>,
    /// Hexadecimal; `None` if there is no root or only the engine has it.
    root_digest: Option<String>,
    index_projection: &'static str,
}

impl HashProfile {
    /// Reads the `hash_profile` of a registration; nil is `None`.
    pub(crate) fn read(field: &Field<'_>) -> Result<Option<Self>, Refusal> {
        let name = "hash_profile";
        let profile = match field {
            Field::Nil => return Ok(None),
            Field::Map(profile) => profile,
            _ => {
                return Err(Refusal::bad(
                    Reason::InvalidType,
                    name,
                    format!("{name} must be a map"),
                ));
            }
        };
        let known = ["strategy", "algorithm", "python_hash_seed", "index_projection"];
        if let Some((key, _)) = profile.fields.iter().find(|(key, _)| !known.contains(&&**key)) {
            return Err(Refusal::unknown_field(key));
        }
        let strategy = required(profile, "strategy")?;
        if ![VLLM, ROLLING].contains(&strategy) {
            return Err(unsupported("strategy", "hash strategy", strategy));
        }
        let algorithm = required(profile, "algorithm")?;
        let seed = read_seed(profile)?;
        if strategy == ROLLING {
            return Self::rolling(algorithm, seed).map(Some);
        }
        let projection = required(profile, "index_projection")?;
        if projection != LOW_64 {
            return Err(unsupported("index_projection", "index projection", projection));
        }
        let algorithm = Algorithm::named(algorithm)
            .ok_or_else(|| unsupported("algorithm", "hash algorithm", algorithm))?;
        Ok(Some(Self::Vllm {
            algorithm,
            seed: seed.map(Into::into),
        }))
    }

    fn rolling(algorithm: &str, seed: Option<&str>) -> Result<Self, Refusal> {
        if algorithm != XXH3 {
            return Err(unsupported("algorithm", "hash algorithm", algorithm));
        }
        match seed {
            Some(seed) if seed != RFC_1527_SEED.to_string() => {
                Err(unsupported("python_hash_seed", "hash seed", seed))
            }
            _ => Ok(Self::Rolling),
        }
    }

    pub(crate) fn view(&self) -> ProfileView {
        match self {
            Self::Vllm { algorithm, seed } => {
                let hasher = VllmHasher::seeded(*algorithm, seed.as_deref());
                ProfileView {
                    strategy: VLLM,
                    algorithm: algorithm.as_str(),
                    python_hash_seed: seed.as_deref().map(str::to_owned),
                    root_digest: hasher.map(|hasher| hasher.root().to_string()),
                    index_projection: LOW_64,
                }
            }
            Self::Rolling => ProfileView {
                strategy: ROLLING,
                algorithm: XXH3,
                python_hash_seed: Some(RFC_1527_SEED.to_string()),
                root_digest: None,
                index_projection: "none",
            },
        }
    }
}

/// Reads the seed. Nil and absent mean an unset `PYTHONHASHSEED`.
fn read_seed<'f>(profile: &'f Document<'_>) -> Result<Option<&'f str>, Refusal> {
    let name = "python_hash_seed";
    match profile.get(name) {
        None | Some(Field::Nil) => Ok(None),
        Some(field) => as_text(name, filled_text(name, field)?).map(Some),
    }
}

fn required<'f>(profile: &'f Document<'_>, name: &str) -> Result<&'f str, Refusal> {
    text(name, profile.get(name).ok_or_else(|| Refusal::missing(name))?)
}

fn unsupported(field: &str, what: &str, value: &str) -> Refusal {
    Refusal::bad(
        Reason::InvalidValue,
        field,
        format!("unsupported {what}: {value}"),
    )
}
