//! `[discovery.NAME]`: a source of workers outside the file.

mod kubernetes;
mod place;
mod server_url;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use routing::Role;

pub use self::kubernetes::{KubernetesConfig, KubernetesObjects};
pub use self::place::DiscoveryPlace;
use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::suggest;
use crate::document::value::Item;
use crate::name;
use crate::pools::DeclaredPool;

/// `[discovery.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryConfig {
    /// Unique name.
    pub name: String,
    /// Pool of its workers.
    pub pool: String,
    /// Place of its answers.
    pub place: DiscoveryPlace,
    /// Pause between two queries.
    pub every: Duration,
    /// Time limit of a query.
    pub timeout: Duration,
    /// Answers in a row that must miss a worker while half or more are missing.
    pub confirm: u32,
    /// Most bytes of an answer.
    pub max_bytes: u64,
    /// Most workers of an answer.
    pub max_workers: u32,
    /// Properties of its workers.
    pub workers: DiscoveredDefaults,
}

/// Properties of a source's workers that an entry may replace.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredDefaults {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Role in split requests.
    pub role: Role,
    /// Label whose value is the role; `None` for `conductor_role` alone.
    pub role_label: Option<String>,
    /// Names of the models; empty for any.
    pub models: Vec<String>,
    /// Relative speed, above 0.
    pub weight: f64,
    /// Number of data-parallel ranks; `None` for one worker.
    pub ranks: Option<u16>,
}

/// Most sources.
const MOST_SOURCES: usize = 64;
/// Range of pauses.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
/// Range of time limits.
const LIMITS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
/// Range of sizes of an answer.
const SIZES: RangeInclusive<u64> = (1 << 10)..=(64 << 20);
/// Default of both times.
const TIME: Duration = Duration::from_secs(5);
/// Largest weight; more is a typing error.
const MOST_WEIGHT: f64 = 1e6;
/// Most ranks of a worker.
const MOST_RANKS: u64 = 256;

/// Returns the pools that sources name, so that such a pool may have no workers in the file.
pub(crate) fn pools_of(item: Option<&Item<'_>>) -> HashSet<String> {
    let tables = item.and_then(|item| item.value.as_table()).into_iter();
    let sources = tables.flat_map(|table| table.values());
    let pools = sources.filter_map(|source| source.get_ref().as_table()?.get("pool")?.get_ref().as_str());
    pools.map(str::to_owned).collect()
}

/// Reads the sources.
pub(crate) fn read(item: Option<&Item<'_>>, pools: &[DeclaredPool], report: &Report) -> Vec<DiscoveryConfig> {
    let section = item.and_then(|item| Section::of(item, "`[discovery.NAME]`".to_owned()));
    let entries = section.map(|sources| sources.entries()).unwrap_or_default();
    if let Some(excess) = entries.get(MOST_SOURCES) {
        let message = format!("more than {MOST_SOURCES} sources of workers");
        let problem = Problem::new(Code::OutOfRange, &excess.key_span, message);
        report.push(problem.help("join some of them into one"));
    }
    let entries = entries.iter().take(MOST_SOURCES);
    entries.filter_map(|entry| read_one(entry, pools)).collect()
}

fn read_one(entry: &Item<'_>, pools: &[DeclaredPool]) -> Option<DiscoveryConfig> {
    let report = entry.report;
    name::check(&entry.key, name::IN_NAMES, "a source", &entry.key_span, report);
    let mut source = Section::of(entry, format!("`[discovery.{}]`", entry.key))?;
    let pool_item = source.required("pool", "\"main\", the pool of its workers");
    let pool = pool_item.and_then(|item| find_pool(&item, pools));
    let place = place::read(&mut source, &entry.key);
    let workers = read_defaults(&mut source, pool);
    let small = |count: u64| u32::try_from(count).expect("within a range that ends at a u32");
    let config = DiscoveryConfig {
        name: entry.key.clone(),
        pool: pool.map(|pool| pool.config.name.clone()).unwrap_or_default(),
        place: place.clone().unwrap_or(DiscoveryPlace::FileSd(PathBuf::new())),
        every: source.duration("every", TIME, PAUSES),
        timeout: source.duration("timeout", TIME, LIMITS),
        confirm: small(source.count("confirm", 3, 1..=100)),
        max_bytes: source.size("max-bytes", 4 << 20, SIZES),
        max_workers: small(source.count("max-workers", 1_000, 1..=10_000)),
        workers,
    };
    source.finish();
    place.and(pool).map(|_| config)
}

fn find_pool<'p>(item: &Item<'_>, pools: &'p [DeclaredPool]) -> Option<&'p DeclaredPool> {
    let text = item.text()?;
    let found = pools.iter().find(|pool| pool.config.name == text.text);
    if found.is_none() {
        let all = pools.iter().map(|pool| pool.config.name.as_str());
        let message = format!("there is no pool `{}`", text.text);
        let problem = Problem::new(Code::NoSuchPool, &text.span, message);
        let help = suggest::help(text.text, all);
        let help =
            help.unwrap_or_else(|| format!("add [pools.{}]; it may have no workers of its own", text.text));
        item.report.push(problem.help(help));
    }
    found
}

fn read_defaults(source: &mut Section<'_>, pool: Option<&DeclaredPool>) -> DiscoveredDefaults {
    let schemes = [("http", "http"), ("https", "https")];
    let role_label = source.text("role-label").map(|text| text.text.to_owned());
    let role = read_role(source, pool);
    let models = source.texts("models");
    let ranks = source
        .item("ranks")
        .and_then(|item| item.count(&(1..=MOST_RANKS)));
    DiscoveredDefaults {
        scheme: source.choice("scheme", "http", &schemes),
        role,
        role_label,
        models: models.into_iter().map(|model| model.text.to_owned()).collect(),
        weight: source
            .item("weight")
            .and_then(|item| item.positive(MOST_WEIGHT))
            .unwrap_or(1.0),
        ranks: ranks.map(|ranks| u16::try_from(ranks).expect("within a range that ends at a u16")),
    }
}

fn read_role(source: &mut Section<'_>, pool: Option<&DeclaredPool>) -> Role {
    let Some(item) = source.item("role") else {
        return Role::Mixed;
    };
    let roles = [Role::Mixed, Role::Prefill, Role::Decode].map(|role| (role.as_str(), role));
    let role = item.choice(&roles).unwrap_or(Role::Mixed);
    let splits = pool.is_none_or(|pool| pool.config.pd.is_some());
    if role != Role::Mixed && !splits {
        let message = format!("a {} worker needs a pool with `pd`", role.as_str());
        let problem = Problem::new(Code::NeedsKey, &item.span, message);
        item.report
            .push(problem.help("add pd = { dialect = \"auto\" } to the pool, or leave `role` out"));
        return Role::Mixed;
    }
    role
}
