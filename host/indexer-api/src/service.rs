//! Registered publisher of KV events, and its form in requests.

use std::fmt;

use routing::DpRank;

use crate::document::{Document, Field};
use crate::field::{as_name, as_text, block_size, int, optional_text, or_default, required_text};
use crate::profile::HashProfile;
use crate::refusal::{Reason, Refusal};

/// A registered publisher. Registrations with equal values are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The ZMQ endpoint to subscribe to.
    pub endpoint: Box<str>,
    /// The ZMQ endpoint that replays missed batches; empty for none.
    pub replay: Box<str>,
    /// Type of the publisher.
    pub kind: ServiceKind,
    /// The model, as queries name it.
    pub model: Box<str>,
    /// The adapter, as queries name it; empty for the base model.
    pub lora: Box<str>,
    /// Tenant that the engine belongs to.
    pub tenant: Box<str>,
    /// The engine, as answers name it.
    pub instance: Box<str>,
    /// Tokens per block, above 0.
    pub block_size: u32,
    /// The data-parallel rank.
    pub rank: DpRank,
    /// The engine's block names, if the registration has a profile.
    pub profile: Option<HashProfile>,
}

/// Type of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    /// A vLLM engine.
    Vllm,
    /// An SGLang engine.
    Sglang,
    /// A Mooncake store, which several engines share.
    Mooncake,
}

impl ServiceKind {
    const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::Mooncake];

    /// Returns the name used in registrations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Mooncake => "Mooncake",
        }
    }
}

/// Key of a registration; it is unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceKey {
    pub(crate) instance: Box<str>,
    pub(crate) tenant: Box<str>,
    pub(crate) rank: DpRank,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.instance, self.tenant, self.rank.0)
    }
}

/// Properties by which a query selects engines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueryContext {
    pub(crate) tenant: Box<str>,
    pub(crate) model: Box<str>,
    pub(crate) lora: Box<str>,
    pub(crate) block_size: u32,
}

const FIELDS: [&str; 12] = [
    "endpoint",
    "replay_endpoint",
    "type",
    "modelname",
    "lora_name",
    "tenant_id",
    "instance_id",
    "block_size",
    "dp_rank",
    "cache_group",
    "hash_profile",
    // A field of the second generation. It has no effect: events contain the salts.
    "additionalsalt",
];

impl Service {
    pub(crate) fn key(&self) -> ServiceKey {
        ServiceKey {
            instance: self.instance.clone(),
            tenant: self.tenant.clone(),
            rank: self.rank,
        }
    }

    pub(crate) fn context(&self) -> QueryContext {
        QueryContext {
            tenant: self.tenant.clone(),
            model: self.model.clone(),
            lora: self.lora.clone(),
            block_size: self.block_size,
        }
    }

    /// Reads the body of `POST /register`, in the order upstream checks it.
    pub(crate) fn read(body: &Document<'_>) -> Result<Self, Refusal> {
        let known = |key: &str| FIELDS.contains(&key);
        if let Some((key, _)) = body.fields.iter().find(|(key, _)| !known(key)) {
            return Err(Refusal::unknown_field(key));
        }
        let endpoint = read_endpoint("endpoint", required_text(body, "endpoint")?)?;
        let kind = required_text(body, "type")?;
        let model = as_text("modelname", required_text(body, "modelname")?)?;
        let instance = as_name("instance_id", required_text(body, "instance_id")?)?;
        let size = required(body, "block_size")?;
        let block_size = block_size(size, "block_size must be greater than zero")?;
        let replay = read_endpoint("replay_endpoint", optional_text(body, "replay_endpoint")?)?;
        let lora = as_text("lora_name", optional_text(body, "lora_name")?)?;
        let tenant = as_name("tenant_id", optional_text(body, "tenant_id")?)?;
        optional_text(body, "additionalsalt")?;
        check_cache_group(body)?;
        let profile = body.get("hash_profile").map_or(Ok(None), HashProfile::read)?;
        let known = ServiceKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let kind = known.ok_or_else(|| {
            Refusal::bad(
                Reason::InvalidValue,
                "type",
                "type must be vLLM, SGLang or Mooncake",
            )
        })?;
        let rank = read_rank(required(body, "dp_rank")?)?;
        Ok(Self {
            endpoint: endpoint.into(),
            replay: replay.into(),
            kind,
            model: model.into(),
            lora: lora.into(),
            tenant: or_default(tenant).into(),
            instance: instance.into(),
            block_size,
            rank,
            profile,
        })
    }
}

fn required<'f, 'b>(body: &'f Document<'b>, name: &str) -> Result<&'f Field<'b>, Refusal> {
    body.get(name).ok_or_else(|| Refusal::missing(name))
}

/// Reads an endpoint. Only the configuration may name local paths: an HTTP client may run on another machine.
fn read_endpoint<'t>(name: &str, endpoint: &'t str) -> Result<&'t str, Refusal> {
    let endpoint = as_text(name, endpoint)?;
    let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| !scheme.trim().eq_ignore_ascii_case("tcp")) {
        let error = format!(
            "{name} must begin with tcp://: other transports are followed only where [[indexer.services]] names them"
        );
        return Err(Refusal::bad(Reason::InvalidValue, name, error));
    }
    Ok(endpoint)
}

fn check_cache_group(body: &Document<'_>) -> Result<(), Refusal> {
    let name = "cache_group";
    match body.get(name) {
        None | Some(Field::Nil | Field::Int(0)) => Ok(()),
        Some(Field::Int(_) | Field::Large(_)) => Err(Refusal::bad(
            Reason::Unsupported,
            name,
            "only cache group zero is supported",
        )),
        Some(_) => Err(Refusal::bad(
            Reason::InvalidType,
            name,
            "cache_group must be an integer or null",
        )),
    }
}

/// Reads a rank. Upstream allows 31 bits; no engine has more ranks than fit into 16 bits.
fn read_rank(field: &Field<'_>) -> Result<DpRank, Refusal> {
    let name = "dp_rank";
    let rank = int(name, field)?;
    if rank < 0 {
        return Err(Refusal::bad(
            Reason::OutOfRange,
            name,
            "dp_rank must be a non-negative int",
        ));
    }
    let rank = u16::try_from(rank)
        .map_err(|_| Refusal::bad(Reason::OutOfRange, name, "dp_rank must be below 65536"))?;
    Ok(DpRank(rank))
}

/// Fields of `POST /unregister`. The public documentation has those after the third; the key needs none of them.
const UNREGISTER_FIELDS: [&str; 7] = [
    "instance_id",
    "tenant_id",
    "dp_rank",
    "type",
    "modelname",
    "lora_name",
    "block_size",
];

impl ServiceKey {
    /// Reads the body of `POST /unregister`.
    pub(crate) fn read(body: &Document<'_>) -> Result<Self, Refusal> {
        let known = |key: &str| UNREGISTER_FIELDS.contains(&key);
        if let Some((key, _)) = body.fields.iter().find(|(key, _)| !known(key)) {
            return Err(Refusal::unknown_field(key));
        }
        let instance = as_name("instance_id", required_text(body, "instance_id")?)?;
        let tenant = as_name("tenant_id", optional_text(body, "tenant_id")?)?;
        let tenant = or_default(tenant);
        let rank = match required(body, "dp_rank")? {
            // No service has a higher rank than fits.
            Field::Int(rank) if *rank >= 0 => u16::try_from(*rank)
                .map_err(|_| Refusal::unknown_service(format_args!("{instance}|{tenant}|{rank}")))?,
            _ => {
                return Err(Refusal::bad(
                    Reason::InvalidValue,
                    "dp_rank",
                    "dp_rank must be a non-negative int",
                ));
            }
        };
        Ok(Self {
            instance: instance.into(),
            tenant: tenant.into(),
            rank: DpRank(rank),
        })
    }
}
