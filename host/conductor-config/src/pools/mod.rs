//! `[pools.NAME]`: interchangeable workers and their request queue.

pub(crate) mod admission;
pub(crate) mod connections;
pub(crate) mod data_parallel;
pub(crate) mod endpoint;
pub(crate) mod health;
pub(crate) mod instance;
pub(crate) mod kv_events;
pub(crate) mod pd;
pub(crate) mod retries;
pub(crate) mod store;
pub(crate) mod worker;

use std::collections::HashSet;
use std::time::Duration;

use self::admission::AdmissionConfig;
use self::connections::ConnectionsConfig;
use self::health::{HealthConfig, ModelListConfig, ScrapeConfig};
use self::pd::{DeclaredPd, PdConfig};
use self::retries::{RetriesConfig, TimeoutsConfig};
use self::worker::{ClaimedValues, WorkerConfig};
use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;
use crate::feeds::{self, PoolEventsConfig};
use crate::index::{self, AssumeCacheConfig};
use crate::key::{self, AuthorizationConfig};
use crate::models::{TOKENIZE, Tokenize};
use crate::name;
use crate::tls::{self, PoolTlsConfig};

/// `[pools.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Unique name.
    pub name: String,
    /// Tokenization of prompts, for the prefix index.
    pub tokenize: Tokenize,
    /// Timeout of tokenization; later a request is placed without tokens.
    pub tokenize_timeout: Duration,
    /// Most queued requests; further ones are refused.
    pub queue_limit: u32,
    /// Longest time in the queue.
    pub queue_timeout: Duration,
    /// Admission control; `None` admits everything in order.
    pub admission: Option<AdmissionConfig>,
    /// Interval of keep-alive comments in silent streams; `None` for none.
    pub sse_keep_alive: Option<Duration>,
    /// Assumed cache of workers without live events; `None` for unknown caches.
    pub assume_cache: Option<AssumeCacheConfig>,
    /// Handling of a client's `Authorization`.
    pub authorization: AuthorizationConfig,
    /// Settings of its workers' event publishers.
    pub events: PoolEventsConfig,
    /// Connection pool of each worker.
    pub connections: ConnectionsConfig,
    /// TLS of `https://` workers; `None` for the defaults.
    pub tls: Option<PoolTlsConfig>,
    /// Clients may set the fields of a hand-over, because an earlier router splits the requests.
    pub accept_handover: bool,
    /// Each tenant's prompts get a `cache_salt` of their own.
    pub isolate_prefixes: bool,
    /// Splitting between prefill and decode workers; `None` for none.
    pub pd: Option<PdConfig>,
    /// Health checks and ejection.
    pub health: HealthConfig,
    /// Load scraping; `None` for none.
    pub scrape: Option<ScrapeConfig>,
    /// Model list requests; `None` for none.
    pub model_list: Option<ModelListConfig>,
    /// Retry policy.
    pub retries: RetriesConfig,
    /// Timeouts that differ from `[server]`.
    pub timeouts: TimeoutsConfig,
    /// Workers in the order of the file; may be empty.
    pub workers: Vec<WorkerConfig>,
}

/// A `[pools.NAME]` that was read; its name is valid even if its contents are not.
pub(crate) struct DeclaredPool {
    pub(crate) config: PoolConfig,
    pub(crate) name_span: Span,
    pd: Option<DeclaredPd>,
    /// Set if its value is a table.
    is_table: bool,
    /// Set if the table lists a worker, valid or not.
    has_workers: bool,
}

/// Rules for the list of pools.
#[derive(Debug)]
pub(crate) struct PoolRules {
    /// An empty list is an error.
    pub(crate) needs_one: bool,
    /// Pools whose workers come from elsewhere too.
    pub(crate) discovered: HashSet<String>,
}

/// Reads the pools.
pub(crate) fn read(item: Option<&Item<'_>>, rules: &PoolRules, report: &Report) -> Vec<DeclaredPool> {
    let section = item.map(|item| Section::of(item, "`[pools.NAME]`".to_owned()));
    if matches!(section, Some(None)) {
        return Vec::new();
    }
    let entries = section.flatten().map(|pools| pools.entries()).unwrap_or_default();
    if entries.is_empty() && rules.needs_one {
        let span = item.map_or(0..0, |item| item.span.clone());
        report.push(
            Problem::new(Code::NoPools, &span, "there is no worker to send requests to").help(
                "add a pool with a worker, for example\n\
                 [[pools.main.workers]]\n\
                 url = \"http://127.0.0.1:8000\"",
            ),
        );
    }
    let mut taken = ClaimedValues::default();
    let read_one = |entry: &Item<'_>| {
        let declared = read_one(entry, &mut taken);
        let is_discovered = rules.discovered.contains(&declared.config.name);
        declared.check_workers(entry, is_discovered);
        declared
    };
    entries.iter().map(read_one).collect()
}

fn read_one(entry: &Item<'_>, taken: &mut ClaimedValues) -> DeclaredPool {
    name::check(
        &entry.key,
        name::IN_NAMES,
        "a pool",
        &entry.key_span,
        entry.report,
    );
    let mut config = PoolConfig {
        name: entry.key.clone(),
        tokenize: Tokenize::Worker,
        tokenize_timeout: Duration::from_millis(500),
        queue_limit: 1_000,
        queue_timeout: Duration::from_secs(30),
        admission: None,
        sse_keep_alive: None,
        assume_cache: None,
        authorization: AuthorizationConfig::Pass,
        events: PoolEventsConfig::default(),
        connections: ConnectionsConfig::default(),
        tls: None,
        accept_handover: false,
        isolate_prefixes: false,
        pd: None,
        health: HealthConfig::default(),
        scrape: Some(ScrapeConfig::default()),
        model_list: Some(ModelListConfig::default()),
        retries: RetriesConfig::default(),
        timeouts: TimeoutsConfig::default(),
        workers: Vec::new(),
    };
    let section = Section::of(entry, format!("`[pools.{}]`", entry.key));
    let is_table = section.is_some();
    let listed = section.map(|pool| read_settings(pool, entry, &mut config, taken));
    let (pd, has_workers) = listed.map_or((None, false), |listed| (listed.pd, listed.has_workers));
    DeclaredPool {
        config,
        name_span: entry.key_span.clone(),
        pd,
        is_table,
        has_workers,
    }
}

/// Parts of a pool's table that the checks of its workers need.
struct ListedWorkers {
    pd: Option<DeclaredPd>,
    has_workers: bool,
}

fn read_settings(
    mut pool: Section<'_>,
    entry: &Item<'_>,
    config: &mut PoolConfig,
    taken: &mut ClaimedValues,
) -> ListedWorkers {
    let tokenize = pool.item("tokenize");
    let chosen = tokenize.as_ref().and_then(|item| item.choice(&TOKENIZE));
    config.tokenize = chosen.unwrap_or(config.tokenize);
    config.tokenize_timeout = pool.duration("tokenize-timeout", config.tokenize_timeout, TIMEOUTS);
    let queue_limit = pool.count("queue-limit", u64::from(config.queue_limit), 0..=1_000_000);
    config.queue_limit = u32::try_from(queue_limit).expect("within a range that ends at a u32");
    config.queue_timeout = pool.duration("queue-timeout", config.queue_timeout, TIMEOUTS);
    let title = format!("`[pools.{}.admission]`", entry.key);
    config.admission = pool.section("admission", &title).map(admission::read);
    let keep_alive = pool.duration("sse-keep-alive", Duration::ZERO, Duration::ZERO..=*TIMEOUTS.end());
    config.sse_keep_alive = (!keep_alive.is_zero()).then_some(keep_alive);
    let title = format!("`[pools.{}.assume-cache]`", entry.key);
    config.assume_cache = pool.section("assume-cache", &title).map(index::read_assumed);
    if let (Some(item), Tokenize::Text, None) = (&tokenize, config.tokenize, config.assume_cache) {
        report_text_without_cache(item, &title);
    }
    let authorization = pool.item("authorization");
    config.authorization = authorization
        .map(|item| key::read_authorization(&item))
        .unwrap_or_default();
    let title = |table: &str| format!("`[pools.{}.{table}]`", entry.key);
    config.events = feeds::read_pool(&mut pool, title("kv-curve"));
    config.health = health::read_health(pool.section("health", &title("health")));
    config.scrape = health::read_scrape(pool.section("scrape", &title("scrape")));
    config.model_list = health::read_model_list(pool.section("model-list", &title("model-list")));
    config.retries = retries::read_retries(pool.section("retries", &title("retries")));
    config.timeouts = retries::read_timeouts(pool.section("timeouts", &title("timeouts")));
    let title = format!("`[pools.{}.connections]`", entry.key);
    config.connections = connections::read(pool.section("connections", &title));
    let title = format!("`[pools.{}.tls]`", entry.key);
    config.tls = pool.section("tls", &title).map(tls::read_pool);
    let pd = pool.item("pd").map(|item| pd::read(&item, &entry.key));
    config.pd = pd.as_ref().map(|pd| pd.config);
    if let Some(item) = pool.item("accept-handover") {
        config.accept_handover = read_handover(&item, pd.is_some());
    }
    let isolate = pool.item("isolate-prefixes").and_then(|item| item.flag());
    config.isolate_prefixes = isolate.unwrap_or(false);
    let title = format!("`[[pools.{}.workers]]`", entry.key);
    let workers = pool.item("workers").map(|item| Section::each(&item, &title));
    let has_workers = workers.as_ref().is_some_and(|workers| !workers.is_empty());
    config.workers = workers
        .into_iter()
        .flatten()
        .filter_map(|section| worker::read(section, pd.as_ref(), taken))
        .collect();
    pool.finish();
    ListedWorkers { pd, has_workers }
}

fn report_text_without_cache(item: &Item<'_>, title: &str) {
    let problem = Problem::new(
        Code::TextWithoutCache,
        &item.span,
        "`tokenize = \"text\"` matches nothing without `assume-cache`: engines report tokens, not text",
    );
    item.report.push(problem.help(format!("add {title}")));
}

/// Reads whether clients may hand a request over to a decode worker, which a pool that splits requests does itself.
fn read_handover(item: &Item<'_>, is_split: bool) -> bool {
    let accepts = item.flag().unwrap_or(false);
    if accepts && is_split {
        let message = "`accept-handover` and `pd` exclude each other: this router writes the hand-over of a pool that it splits";
        let problem = Problem::new(Code::ConflictingKeys, &item.span, message);
        item.report.push(problem.help("keep one of them"));
    }
    accepts
}

impl DeclaredPool {
    /// Warns of a pool without workers, or without workers for one of its two sides, unless more workers come from
    /// elsewhere.
    fn check_workers(&self, entry: &Item<'_>, is_discovered: bool) {
        if is_discovered || !self.is_table {
            return;
        }
        let title = format!("`[[pools.{}.workers]]`", entry.key);
        if !self.has_workers {
            let message = format!("the pool `{}` has no workers", entry.key);
            let problem = Problem::new(Code::EmptyPool, &entry.key_span, message);
            entry
                .report
                .push(problem.help(format!("its requests are refused until there is a {title}")));
        }
        let workers = &self.config.workers;
        if let Some(pd) = self.pd.as_ref().filter(|_| !workers.is_empty()) {
            let roles: Vec<_> = workers.iter().map(|worker| worker.role).collect();
            pd.check_sides(&self.config.name, &roles, entry.report);
        }
    }
}
