//! `[clients.NAME]`: API clients, their keys and rate limits.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Item;
use crate::key::{self, KeySource};
use crate::name;
use crate::sha256::{self, Sha256};

/// `[clients.NAME]`. If there is one, requests without a client's key are refused.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConfig {
    /// Unique name.
    pub name: String,
    /// The SHA-256 of each of its keys.
    pub key_hashes: Vec<Sha256>,
    /// Location of one more key.
    pub key: Option<KeySource>,
    /// Globs, one of which the model must match; empty for any model.
    pub models: Vec<String>,
    /// Tenant that its share of a pool counts for.
    pub tenant: String,
    /// Priority class of its requests; higher goes first.
    pub priority: i32,
    /// Weight of its tenant, above 0.
    pub weight: f64,
    /// Engine fields that it may set.
    pub may_set: EngineFields,
    /// Maximum requests per minute; `None` for no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Maximum tokens per minute, of prompts and answers; `None` for no limit.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Maximum concurrent requests; `None` for no limit.
    pub concurrent: Option<NonZeroU32>,
}

/// Request fields that can take engine capacity from other clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineFields {
    /// `priority` of the body.
    pub priority: bool,
    /// A data-parallel rank, in a header or the body.
    pub rank: bool,
}

/// Largest weight; more is a typing error.
const MOST_WEIGHT: f64 = 1e6;
/// Largest priority class; more is a typing error.
const MOST_PRIORITY: f64 = 1e6;
/// Largest rate per minute.
const MOST: u64 = 1_000_000_000;

pub(crate) fn read(item: Option<&Item<'_>>, report: &Report) -> Vec<ClientConfig> {
    let Some(clients) = item.and_then(|item| Section::of(item, "`[clients.NAME]`".to_owned())) else {
        return Vec::new();
    };
    let entries = clients.entries();
    if entries.is_empty() {
        // An empty table is ambiguous: everyone or no one.
        let problem = Problem::new(Code::MissingKey, clients.span(), "`clients` names no client");
        report
            .push(problem.help("add [clients.NAME] with a key, or remove the table to accept every client"));
    }
    let mut taken = HashMap::new();
    entries
        .iter()
        .filter_map(|entry| read_one(entry, &mut taken))
        .collect()
}

fn read_one(entry: &Item<'_>, taken: &mut HashMap<Sha256, Span>) -> Option<ClientConfig> {
    let (report, span) = (entry.report, &entry.key_span);
    name::check(&entry.key, name::IN_NAMES, "a client", span, report);
    let mut client = Section::of(entry, format!("`[clients.{}]`", entry.key))?;
    let hashes = client.item("key-sha256");
    let key = client.item("key");
    if hashes.is_none() && key.is_none() {
        let message = format!("the client `{}` has no key", entry.key);
        report.push(Problem::new(Code::MissingKey, span, message).help(
            "`conductor client-key` makes one and prints its hash: add key-sha256 = [\"HASH\"]; or name where the key \
             is: key = { env = \"NAME\" } or { file = \"PATH\" }",
        ));
    }
    let config = ClientConfig {
        key_hashes: hashes
            .as_ref()
            .map(|item| read_hashes(item, taken))
            .unwrap_or_default(),
        key: key.and_then(|item| key::read(&item)),
        models: read_models(client.item("models").as_ref()),
        tenant: read_tenant(&mut client).unwrap_or_else(|| entry.key.clone()),
        priority: read_priority(client.item("priority").as_ref()),
        weight: client
            .item("weight")
            .and_then(|item| item.positive(MOST_WEIGHT))
            .unwrap_or(1.0),
        may_set: client
            .item("may-set")
            .map(|item| read_may_set(&item))
            .unwrap_or_default(),
        requests_per_minute: limit(&mut client, "requests-per-minute"),
        tokens_per_minute: limit(&mut client, "tokens-per-minute"),
        concurrent: limit(&mut client, "concurrent"),
        name: entry.key.clone(),
    };
    client.finish();
    Some(config)
}

/// Reads hashes that no other client has. An invalid one may be a key, and is not repeated in the message.
fn read_hashes(item: &Item<'_>, taken: &mut HashMap<Sha256, Span>) -> Vec<Sha256> {
    let mut hashes = Vec::new();
    for text in item.text_or_texts().unwrap_or_default() {
        let Some(hash) = sha256::read_key_hash(&text, item.report) else {
            continue;
        };
        match taken.get(&hash) {
            Some(first) => item.report.push(
                Problem::new(
                    Code::DuplicateClientKey,
                    &text.span,
                    "the same key is listed twice",
                )
                .label("again here")
                .also(first, "first here")
                .help("a key identifies one client: give each client its own"),
            ),
            None => {
                taken.insert(hash, text.span);
                hashes.push(hash);
            }
        }
    }
    hashes
}

fn read_models(item: Option<&Item<'_>>) -> Vec<String> {
    let models = item.and_then(Item::text_or_texts).unwrap_or_default();
    if let Some(item) = item.filter(|_| models.is_empty()) {
        let problem = Problem::new(Code::InvalidValue, &item.span, "`models` allows no model");
        item.report
            .push(problem.help("name models or globs, or leave the key out to allow every model"));
    }
    models.into_iter().map(|model| model.text.to_owned()).collect()
}

fn read_may_set(item: &Item<'_>) -> EngineFields {
    let mut fields = EngineFields::default();
    for text in item.text_or_texts().unwrap_or_default() {
        match text.text {
            "priority" => fields.priority = true,
            "rank" => fields.rank = true,
            other => {
                let message = format!("`{other}` is no field that a client can be allowed to set");
                let problem = Problem::new(Code::InvalidValue, &text.span, message);
                item.report
                    .push(problem.help("there are \"priority\" and \"rank\""));
            }
        }
    }
    fields
}

fn read_tenant(client: &mut Section<'_>) -> Option<String> {
    let report = client.report();
    let tenant = client.text("tenant")?;
    name::check(tenant.text, name::IN_NAMES, "a tenant", &tenant.span, report);
    Some(tenant.text.to_owned())
}

fn read_priority(item: Option<&Item<'_>>) -> i32 {
    let priority = item.and_then(|item| Some((item, item.number(MOST_PRIORITY)?)));
    let Some((item, priority)) = priority else {
        return 0;
    };
    if priority.fract() != 0.0 {
        let problem = Problem::new(
            Code::InvalidValue,
            &item.span,
            "`priority` must be a whole number",
        );
        item.report
            .push(problem.help("higher goes first; the default is 0"));
    }
    priority as i32
}

fn limit(client: &mut Section<'_>, key: &'static str) -> Option<NonZeroU32> {
    let count = client.item(key)?.count(&(1..=MOST))?;
    u32::try_from(count).ok().and_then(NonZeroU32::new)
}
