//! The whole file: its sections and the rules between them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::clients::{self, ClientConfig};
use crate::discovery::{self, DiscoveryConfig};
use crate::document::code::Code;
use crate::document::diagnostic::Diagnostics;

use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Source;
use crate::document::syntax;
use crate::document::value::Item;
use crate::engines;
use crate::feeds::{self, KvEventsConfig};
use crate::folder::read_folder;
use crate::index::{self, IndexConfig};
use crate::indexer::{self, IndexerConfig};
use crate::known::{Known, PolicyFiles};
use crate::log::{self, LogConfig};
use crate::metrics::{self, MetricsConfig};
use crate::models::{self, ModelConfig, TokensConfig};
use crate::policies;
use crate::policies::compile::{self, PolicyCompileConfig};
use crate::policies::model::{PolicyConfig, UnreadPart};
use crate::policies::pipeline;
use crate::pools::store::{self, StoreConfig};
use crate::pools::{self, PoolConfig};
use crate::record::{self, RecordConfig};
use crate::replicas::{self, ReplicasConfig};
use crate::routes::names::Names;
use crate::routes::{self, RouteConfig};
use crate::server::{self, ServerConfig};
use crate::sha256::{self, Sha256};
use crate::traces::{self, TracesConfig};

/// Largest file; a fleet of several thousand workers fits.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// A valid configuration. Every pool and policy that a route names is in `pools` and `policies`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[clients.NAME]` in the order of the file; without any, no key is needed.
    pub clients: Vec<ClientConfig>,
    /// `[log]`.
    pub log: LogConfig,
    /// `[metrics]`.
    pub metrics: MetricsConfig,
    /// `[index]`.
    pub index: IndexConfig,
    /// `[kv-events]`.
    pub kv_events: KvEventsConfig,
    /// `[indexer]`.
    pub indexer: IndexerConfig,
    /// `[record]`.
    pub record: RecordConfig,
    /// `[traces]`; `None` for no traces.
    pub traces: Option<TracesConfig>,
    /// `[replicas]`; `None` for a router that serves alone.
    pub replicas: Option<ReplicasConfig>,
    /// Folder whose `.wasm` files are policies, as written; a relative path starts at the file's folder.
    pub policy_dir: Option<PathBuf>,
    /// Hashes of the only files of that folder that are loaded; `None` for any.
    pub policy_dir_allow: Option<Vec<Sha256>>,
    /// Location of compiled code.
    pub policy_cache: PolicyCache,
    /// `[policy-compile]`.
    pub policy_compile: PolicyCompileConfig,
    /// `[policies.NAME]` in the order of the file, then policies that routes name without such a table.
    pub policies: Vec<PolicyConfig>,
    /// `[pools.NAME]` in the order of the file; at least one, unless the indexer listens.
    pub pools: Vec<PoolConfig>,
    /// `[discovery.NAME]` in the order of the file.
    pub discovery: Vec<DiscoveryConfig>,
    /// `[tokens]`.
    pub tokens: TokensConfig,
    /// `[models.NAME]` in the order of the file.
    pub models: Vec<ModelConfig>,
    /// `[stores.NAME]` in the order of the file.
    pub stores: Vec<StoreConfig>,
    /// `[[routes]]` in the order of the file; at least one if there are pools.
    pub routes: Vec<RouteConfig>,
}

/// Location of compiled policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PolicyCache {
    /// The cache folder of the router's user, if there is one.
    #[default]
    OfUser,
    /// No cache.
    Off,
    /// This folder, as written; never that of the policies.
    Folder(PathBuf),
}

/// A valid configuration with its warnings.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The configuration.
    pub config: Config,
    /// Warnings only; often empty.
    pub warnings: Diagnostics,
}

/// A configuration with its mistakes and warnings.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The readable part; defaults replace the rest. A router must not use it if there is an error.
    pub config: Config,
    /// All errors and warnings.
    pub diagnostics: Diagnostics,
    /// Partly unreadable policies, by name.
    pub unread: BTreeMap<String, UnreadPart>,
}

impl Config {
    /// Reads `text`; `name` is its name in diagnostics.
    ///
    /// # Errors
    /// All errors of the file, together with its warnings.
    pub fn parse(name: &str, text: &str, known: &Known<'_>) -> Result<Parsed, Diagnostics> {
        let examined = Self::examine(name, text, known)?;
        if examined.diagnostics.error_count() > 0 {
            return Err(examined.diagnostics);
        }
        Ok(Parsed {
            config: examined.config,
            warnings: examined.diagnostics,
        })
    }

    /// Reads as much of `text` as possible, for tools that inspect files with errors.
    ///
    /// # Errors
    /// A file that is too large.
    pub fn examine(name: &str, text: &str, known: &Known<'_>) -> Result<Examined, Diagnostics> {
        if text.len() > MAX_FILE_BYTES {
            return Err(too_large(name, text.len()));
        }
        let mut report = Report::new(Source::new(name, text));
        let tree = syntax::parse(text, &report);
        let (config, mut unread) = read(Section::root(&tree, &report), known);
        if report.has(Code::Syntax) {
            for policy in &config.policies {
                unread.entry(policy.name.clone()).or_insert(UnreadPart::Settings);
            }
        }
        report.forget_consequences();
        Ok(Examined {
            config,
            diagnostics: report.into_diagnostics(),
            unread,
        })
    }
}

fn too_large(name: &str, bytes: usize) -> Diagnostics {
    let report = Report::new(Source::new(name, ""));
    report.push(Problem::new(
        Code::FileTooLarge,
        &(0..0),
        format!("the file has {bytes} bytes; at most {MAX_FILE_BYTES} are read"),
    ));
    report.into_diagnostics()
}

/// Reads all sections. Unreadable parts are reported and get their defaults.
fn read(mut root: Section<'_>, known: &Known<'_>) -> (Config, BTreeMap<String, UnreadPart>) {
    let report = root.report();
    let policy_dir = root
        .item("policy-dir")
        .map(|item| read_policy_dir(&item, known.files));
    let policy_dir_allow = root
        .item("policy-dir-allow")
        .and_then(|item| read_policy_dir_allow(&item, policy_dir.is_some()));
    let policy_cache = root
        .item("policy-cache")
        .and_then(|item| read_cache(&item, policy_dir.as_ref()))
        .unwrap_or_default();
    let in_folder = policy_dir.as_ref().map(|folder| {
        let folder = folder.as_deref();
        folder.map_or_else(Vec::new, |folder| known.files.names_in(folder))
    });
    let in_folder = in_folder.as_deref();
    let server = server::read(root.section("server", "`[server]`"), known);
    let clients = clients::read(root.item("clients").as_ref(), report);
    let log = log::read(root.section("log", "`[log]`"), known.files);
    let metrics = metrics::read(root.section("metrics", "`[metrics]`"));
    let index = index::read(root.section("index", "`[index]`"));
    let kv_events = feeds::read(root.section("kv-events", "`[kv-events]`"));
    let indexer = indexer::read(root.section("indexer", "`[indexer]`"), &server);
    let record = root.section("record", "`[record]`");
    let record = record::read(record, log.access_file(), known.files);
    let traces = traces::read(root.section("traces", "`[traces]`"));
    let replicas = replicas::read(root.section("replicas", "`[replicas]`"));
    let policy_compile = compile::read(root.section("policy-compile", "`[policy-compile]`"));
    let policies = policies::read(root.section("policies", "`[policies.NAME]`"), known, in_folder);
    if let Some(folder) = root.item("policy-dir") {
        policies::report_ignored(&folder, &policies, known, in_folder.unwrap_or_default());
    }
    let sources = root.item("discovery");
    let rules = pools::PoolRules {
        needs_one: indexer.config.listen.is_none(),
        discovered: discovery::pools_of(sources.as_ref()),
    };
    let pools = pools::read(root.item("pools").as_ref(), &rules, report);
    let discovery = discovery::read(sources.as_ref(), &pools, report);
    let tokens = models::read_tokens(root.section("tokens", "`[tokens]`"));
    let models = models::read(root.item("models").as_ref(), report);
    let stores = store::read(root.item("stores").as_ref(), &pools, report);
    indexer.check_against(&pools, &stores, report);
    let names = Names {
        known,
        pools: &pools,
        policies: &policies,
        in_folder,
        discovered: &rules.discovered,
    };
    let routes = routes::read(root.item("routes").as_ref(), &names, report);
    root.finish();
    let unread = policies
        .iter()
        .filter_map(|policy| Some((policy.config.name.clone(), policy.unread?)));
    let unread = unread.collect();
    let declared = policies.into_iter().map(|policy| {
        let mut config = policy.config;
        pipeline::rename(&mut config, &routes.renamed);
        config
    });
    let config = Config {
        server,
        clients,
        log,
        metrics,
        index,
        kv_events,
        indexer: indexer.config,
        record,
        traces,
        replicas,
        policy_dir: policy_dir.flatten(),
        policy_dir_allow,
        policy_cache,
        policy_compile,
        policies: declared.chain(routes.implied).collect(),
        pools: pools.into_iter().map(|pool| pool.config).collect(),
        discovery,
        tokens,
        models,
        stores,
        routes: routes.routes,
    };
    engines::check(&config.models, &config.pools, &config.routes, report);
    (config, unread)
}

/// Reads the hashes of the files that the policy folder may have.
fn read_policy_dir_allow(item: &Item<'_>, has_folder: bool) -> Option<Vec<Sha256>> {
    if !has_folder {
        item.report.push(
            Problem::new(
                Code::NeedsKey,
                &item.key_span,
                "`policy-dir-allow` has no effect without `policy-dir`",
            )
            .help("it lists which files of that folder are loaded; pin a single policy with `sha256` in its table"),
        );
    }
    read_hashes(item)
}

fn read_policy_dir(item: &Item<'_>, files: &dyn PolicyFiles) -> Option<PathBuf> {
    let folder = read_folder(item)?;
    if files.is_missing(&folder) {
        let message = format!("the folder `{}` of `policy-dir` does not exist", folder.display());
        let problem = Problem::new(Code::MissingFolder, &item.span, message);
        item.report
            .push(problem.help("the router keeps looking for it; its policies are unavailable until then"));
    } else if let Some(why) = files.unreadable(&folder) {
        let message = format!(
            "failed to read the folder `{}` of `policy-dir`: {why}",
            folder.display()
        );
        let problem = Problem::new(Code::UnreadableFolder, &item.span, message);
        item.report.push(
            problem.help("name a folder, and let the user that runs the router list and read it; its policies are unavailable until then"),
        );
    }
    Some(folder)
}

fn read_cache(item: &Item<'_>, policy_dir: Option<&Option<PathBuf>>) -> Option<PolicyCache> {
    if item.value.as_bool() == Some(false) {
        return Some(PolicyCache::Off);
    }
    let folder = read_folder(item)?;
    if policy_dir == Some(&Some(folder.clone())) {
        item.report.push(
            Problem::new(
                Code::ConflictingKeys,
                &item.span,
                "`policy-cache` is the folder of `policy-dir`",
            )
            .help("give compiled code a folder that only the router writes to"),
        );
        return None;
    }
    Some(PolicyCache::Folder(folder))
}

fn read_hashes(item: &Item<'_>) -> Option<Vec<Sha256>> {
    let hashes = item.texts()?;
    let hashes = hashes.iter();
    Some(
        hashes
            .filter_map(|hash| sha256::read(hash, "policy-dir-allow", item.report))
            .collect(),
    )
}
