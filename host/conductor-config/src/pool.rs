//! `[pools.NAME]`: workers that can stand in for one another, and how requests wait for them.

use std::time::Duration;

use crate::admission::{self, AdmissionConfig};
use crate::code::Code;
use crate::connections::{self, ConnectionsConfig};
use crate::feeds::{self, PoolEventsConfig};
use crate::health::{self, HealthConfig, ModelListConfig, ScrapeConfig};
use crate::index::{self, AssumeCacheConfig};
use crate::key::{self, AuthorizationConfig};
use crate::models::{TOKENIZE, Tokenize};
use crate::name;
use crate::pd::{self, PdConfig};
use crate::report::{Problem, Report};
use crate::retries::{self, RetriesConfig, TimeoutsConfig};
use crate::section::Section;
use crate::server::TIMEOUTS;
use crate::source::Span;
use crate::tls::{self, PoolTlsConfig};
use crate::value::Item;
use crate::worker::{self, Taken, WorkerConfig};

/// `[pools.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Unique.
    pub name: String,
    /// How prompts become tokens, for the prefix index.
    pub tokenize: Tokenize,
    /// How long that may take; a request that has no tokens by then is placed without them.
    pub tokenize_timeout: Duration,
    /// Most requests held in the queue at a time; beyond it they are refused.
    pub queue_limit: u32,
    /// How long a request may be held.
    pub queue_timeout: Duration,
    /// What is let in, and whom first; none: everything, as it comes.
    pub admission: Option<AdmissionConfig>,
    /// Streams that say nothing for so long get a comment; none: never.
    pub sse_keep_alive: Option<Duration>,
    /// What workers without live events are taken to have cached; none: nothing is known of those.
    pub assume_cache: Option<AssumeCacheConfig>,
    /// What becomes of a client's `Authorization`.
    pub authorization: AuthorizationConfig,
    /// What holds for its workers' event publishers.
    pub events: PoolEventsConfig,
    /// How many connections each worker gets, and for how long.
    pub connections: ConnectionsConfig,
    /// How connections to `https://` workers begin; none: as those of any web server.
    pub tls: Option<PoolTlsConfig>,
    /// Whether clients may set the members of a hand-over, because a router before this one splits the requests.
    pub accept_handover: bool,
    /// Whether each tenant's prompts have a `cache_salt` of its own.
    pub isolate_prefixes: bool,
    /// How requests are split between prefill and decode workers; none: they are not.
    pub pd: Option<PdConfig>,
    /// When its workers are kept away from.
    pub health: HealthConfig,
    /// How they are asked for their load; none: they are not.
    pub scrape: Option<ScrapeConfig>,
    /// How they are asked for their models; none: they are not.
    pub model_list: Option<ModelListConfig>,
    /// How requests are tried again.
    pub retries: RetriesConfig,
    /// How long everything may take, where it is other than `[server]` says.
    pub timeouts: TimeoutsConfig,
    /// In the order of the file; may be empty.
    pub workers: Vec<WorkerConfig>,
}

/// A `[pools.NAME]` that was read; its name exists even when something in it is wrong.
pub(crate) struct DeclaredPool {
    pub(crate) config: PoolConfig,
    pub(crate) name_span: Span,
}

/// `needed`: whether there is nothing to do without any.
pub(crate) fn read(item: Option<&Item<'_>>, needed: bool, report: &Report) -> Vec<DeclaredPool> {
    let section = item.map(|item| Section::of(item, "`[pools.NAME]`".to_owned()));
    if matches!(section, Some(None)) {
        return Vec::new();
    }
    let entries = section.flatten().map(|pools| pools.entries()).unwrap_or_default();
    if entries.is_empty() && needed {
        let span = item.map_or(0..0, |item| item.span.clone());
        report.push(
            Problem::new(Code::NoPools, &span, "there is no worker to send requests to").help(
                "add a pool with a worker, for example\n\
                 [[pools.main.workers]]\n\
                 url = \"http://127.0.0.1:8000\"",
            ),
        );
    }
    let mut taken = Taken::default();
    entries.iter().map(|entry| read_one(entry, &mut taken)).collect()
}

fn read_one(entry: &Item<'_>, taken: &mut Taken) -> DeclaredPool {
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
    if let Some(pool) = Section::of(entry, format!("`[pools.{}]`", entry.key)) {
        read_settings(pool, entry, &mut config, taken);
    }
    DeclaredPool {
        config,
        name_span: entry.key_span.clone(),
    }
}

fn read_settings(mut pool: Section<'_>, entry: &Item<'_>, config: &mut PoolConfig, taken: &mut Taken) {
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
        let problem = Problem::new(
            Code::TextWithoutCache,
            &item.span,
            "`tokenize = \"text\"` matches nothing without `assume-cache`: engines tell of tokens, not of text",
        );
        entry.report.push(problem.help(format!("add {title}")));
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
        config.accept_handover = item.flag().unwrap_or(false);
        if config.accept_handover && pd.is_some() {
            let message = "`accept-handover` and `pd` exclude each other: this router writes the hand-over of a pool that it splits";
            let problem = Problem::new(Code::ConflictingKeys, &item.span, message);
            entry.report.push(problem.help("keep one of them"));
        }
    }
    let isolate = pool.item("isolate-prefixes").and_then(|item| item.flag());
    config.isolate_prefixes = isolate.unwrap_or(false);
    let title = format!("`[[pools.{}.workers]]`", entry.key);
    let workers = pool.item("workers").map(|item| Section::each(&item, &title));
    if workers.as_ref().is_none_or(Vec::is_empty) {
        entry.report.push(
            Problem::new(
                Code::EmptyPool,
                &entry.key_span,
                format!("the pool `{}` has no workers", entry.key),
            )
            .help(format!("its requests are refused until there is a {title}")),
        );
    }
    config.workers = workers
        .into_iter()
        .flatten()
        .filter_map(|section| worker::read(section, pd.as_ref(), taken))
        .collect();
    if let Some(pd) = pd.filter(|_| !config.workers.is_empty()) {
        pd.check_sides(config, entry.report);
    }
    pool.finish();
}
