//! `[[indexer.services]]`: a publisher of KV events in addition to the pools' workers.

use std::collections::HashMap;

use routing::DpRank;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::{Item, Text};
use crate::name;
use crate::pools::endpoint::zmq_endpoint;

/// `[[indexer.services]]`: a publisher of KV events, in the form of registrations at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// The ZMQ endpoint to subscribe to.
    pub endpoint: String,
    /// The ZMQ endpoint that replays missed batches.
    pub replay: Option<String>,
    /// Type of the publisher.
    pub kind: ServiceKind,
    /// The model, as queries name it.
    pub model: String,
    /// The engine, as answers name it.
    pub instance: String,
    /// Tenant that the engine belongs to.
    pub tenant: String,
    /// Tokens per block.
    pub block_size: u32,
    /// The data-parallel rank.
    pub rank: DpRank,
    /// The adapter, none for the base model.
    pub lora: Option<String>,
    /// The engine's block hashing, if known.
    pub hash: Option<ServiceHash>,
}

/// Type of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    /// A vLLM engine.
    Vllm,
    /// An SGLang engine.
    Sglang,
    /// A Mooncake store.
    Mooncake,
}

/// vLLM's `--prefix-caching-hash-algo` and `PYTHONHASHSEED`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHash {
    /// `sha256`, `sha256_cbor`, `xxhash` or `xxhash_cbor`.
    pub algorithm: String,
    /// `None` if `PYTHONHASHSEED` is not set.
    pub seed: Option<String>,
}

/// Tenant of registrations and queries that name none.
pub const DEFAULT_TENANT: &str = "default";
/// Longest name of a model, in bytes: it may be a path. Registrations at run time have the same limit.
pub const MOST_MODEL_BYTES: usize = 512;

const ALGORITHMS: [(&str, &str); 4] = [
    ("sha256", "sha256"),
    ("sha256_cbor", "sha256_cbor"),
    ("xxhash", "xxhash"),
    ("xxhash_cbor", "xxhash_cbor"),
];

/// Values that only one service may have, with their first positions.
#[derive(Default)]
pub(super) struct ClaimedServices {
    pub(super) endpoints: HashMap<String, Span>,
    keys: HashMap<(String, String, DpRank), Span>,
}

pub(super) fn read_services(indexer: &mut Section<'_>, taken: &mut ClaimedServices) -> Vec<ServiceConfig> {
    let Some(item) = indexer.item("services") else {
        return Vec::new();
    };
    Section::each(&item, "`[[indexer.services]]`")
        .into_iter()
        .filter_map(|service| read_service(service, taken))
        .collect()
}

fn read_service(mut service: Section<'_>, taken: &mut ClaimedServices) -> Option<ServiceConfig> {
    let report = service.report();
    let span = service.span().clone();
    let endpoint_item = service.required("endpoint", "\"tcp://127.0.0.1:5557\"");
    let endpoint_text = endpoint_item.and_then(|item| item.text());
    let endpoint = endpoint_text.as_ref().and_then(|text| zmq_endpoint(text, report));
    if let (Some(endpoint), Some(text)) = (&endpoint, &endpoint_text) {
        claim_endpoint(endpoint, &text.span, taken, report);
    }
    let model = needed(&mut service, "model", "\"llama-3-8b\"", MOST_MODEL_BYTES);
    let instance = needed(&mut service, "instance", "\"gpu-1\"", name::MOST_BYTES);
    let block_size = service
        .required("block-size", "16")
        .and_then(|item| item.count(&(1..=1 << 20)))
        .and_then(|size| u32::try_from(size).ok());
    let replay = service
        .text("replay")
        .and_then(|text| read_replay(&text, endpoint.as_deref(), report));
    let kind = service.choice(
        "type",
        ServiceKind::Vllm,
        &[
            ("vllm", ServiceKind::Vllm),
            ("sglang", ServiceKind::Sglang),
            ("mooncake", ServiceKind::Mooncake),
        ],
    );
    let tenant = service
        .text("tenant")
        .map_or_else(|| DEFAULT_TENANT.to_owned(), |tenant| tenant.text.to_owned());
    let rank = service.item("rank").and_then(|item| read_rank(&item));
    let lora = service.text("lora").map(|lora| lora.text.to_owned());
    let hash = read_hash(&mut service);
    service.finish();
    let (Some(model), Some(instance), Some(block_size)) = (model, instance, block_size) else {
        return None;
    };
    let config = ServiceConfig {
        endpoint: endpoint.unwrap_or_default(),
        replay,
        kind,
        model,
        instance,
        tenant,
        block_size,
        rank: rank.unwrap_or_default(),
        lora,
        hash,
    };
    claim_instance(&config, span, taken, report);
    Some(config)
}

/// Reads the endpoint of replays, which is another socket of the publisher.
fn read_replay(text: &Text<'_>, endpoint: Option<&str>, report: &Report) -> Option<String> {
    let replay = zmq_endpoint(text, report)?;
    if endpoint == Some(&*replay) {
        let message = format!("`replay` is the `endpoint` itself, `{replay}`");
        report.push(
            Problem::new(Code::SameAddress, &text.span, message).help(
                "name the publisher's socket for replays, which has a port of its own, or leave it out",
            ),
        );
    }
    Some(replay)
}

fn read_rank(item: &Item<'_>) -> Option<DpRank> {
    let rank = item.count(&(0..=u64::from(u16::MAX)))?;
    u16::try_from(rank).ok().map(DpRank)
}

/// Claims the instance with its tenant and rank, which another service may have.
fn claim_instance(config: &ServiceConfig, span: Span, taken: &mut ClaimedServices, report: &Report) {
    let key = (config.instance.clone(), config.tenant.clone(), config.rank);
    if let Some(first) = taken.keys.get(&key) {
        report.push(
            Problem::new(
                Code::DuplicateService,
                &span,
                format!(
                    "the instance `{}` is set twice with this tenant and rank",
                    config.instance
                ),
            )
            .also(first, "first here")
            .help("give each publisher of an instance a `rank` of its own"),
        );
    }
    taken.keys.entry(key).or_insert(span);
}

fn claim_endpoint(endpoint: &str, span: &Span, taken: &mut ClaimedServices, report: &Report) {
    if let Some(first) = taken.endpoints.get(endpoint) {
        report.push(
            Problem::new(
                Code::SameAddress,
                span,
                format!("the endpoint `{endpoint}` is used twice"),
            )
            .also(first, "first here")
            .help("each publisher is followed once"),
        );
    }
    taken
        .endpoints
        .entry(endpoint.to_owned())
        .or_insert_with(|| span.clone());
}

/// Reads a required name of at most `most` bytes.
fn needed(service: &mut Section<'_>, key: &'static str, example: &str, most: usize) -> Option<String> {
    let text = service.required(key, example)?.text()?;
    let bytes = text.text.len();
    if bytes == 0 || bytes > most {
        service.report().push(Problem::new(
            Code::InvalidName,
            &text.span,
            format!("`{key}` must have 1 to {most} bytes, not {bytes}"),
        ));
    }
    Some(text.text.to_owned())
}

fn read_hash(service: &mut Section<'_>) -> Option<ServiceHash> {
    let report = service.report();
    let algorithm = service.item("hash-algorithm");
    let seed = service.item("python-hash-seed");
    let Some(algorithm) = algorithm else {
        if let Some(seed) = seed {
            report.push(
                Problem::new(
                    Code::NeedsKey,
                    &seed.key_span,
                    "`python-hash-seed` has no effect without `hash-algorithm`",
                )
                .help("add hash-algorithm = \"sha256\", or leave both out"),
            );
        }
        return None;
    };
    let seed = seed.and_then(|seed| seed.text());
    Some(ServiceHash {
        algorithm: algorithm.choice(&ALGORITHMS)?.to_owned(),
        seed: seed.map(|seed| seed.text.to_owned()),
    })
}
