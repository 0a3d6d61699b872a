//! The whole file: its sections, and what must hold between them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::clients::{self, ClientConfig};
use crate::code::Code;
use crate::diagnostic::Diagnostics;
use crate::examine::{Doubt, Doubts, Examined};
use crate::feeds::{self, KvEventsConfig};
use crate::index::{self, IndexConfig};
use crate::indexer::{self, IndexerConfig};
use crate::log::{self, LogConfig};
use crate::models::{self, ModelConfig, TokensConfig};
use crate::policy::{self, PolicyConfig};
use crate::policy_compile::{self, PolicyCompileConfig};
use crate::pool::{self, PoolConfig};
use crate::record::{self, RecordConfig};
use crate::report::{Problem, Report};
use crate::route::{self, Names, RouteConfig};
use crate::section::Section;
use crate::server::{self, ServerConfig};
use crate::sha256::{self, Sha256};
use crate::source::Source;
use crate::store::{self, StoreConfig};
use crate::syntax;
use crate::value::Item;

/// Most bytes of a file; a fleet of several thousand workers fits.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// A valid configuration. Every route's pool is one of `pools`, and its policies are of `policies`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[clients.NAME]` in the order of the file; none: nobody needs a key.
    pub clients: Vec<ClientConfig>,
    /// `[log]`.
    pub log: LogConfig,
    /// `[index]`.
    pub index: IndexConfig,
    /// `[kv-events]`.
    pub kv_events: KvEventsConfig,
    /// `[indexer]`.
    pub indexer: IndexerConfig,
    /// `[record]`.
    pub record: RecordConfig,
    /// The folder whose `.wasm` files are policies, as written; a relative path starts at the file's folder.
    pub policy_dir: Option<PathBuf>,
    /// The only files of that folder that are loaded, by their bytes; none: any.
    pub policy_dir_allow: Option<Vec<Sha256>>,
    /// Where compiled code is kept.
    pub policy_cache: PolicyCache,
    /// `[policy-compile]`.
    pub policy_compile: PolicyCompileConfig,
    /// `[policies.NAME]` in the order of the file, then those that routes name without such a table.
    pub policies: Vec<PolicyConfig>,
    /// `[pools.NAME]` in the order of the file; at least one, unless the indexer listens.
    pub pools: Vec<PoolConfig>,
    /// `[tokens]`.
    pub tokens: TokensConfig,
    /// `[models.NAME]` in the order of the file.
    pub models: Vec<ModelConfig>,
    /// `[stores.NAME]` in the order of the file.
    pub stores: Vec<StoreConfig>,
    /// `[[routes]]` in the order of the file; at least one where there are pools.
    pub routes: Vec<RouteConfig>,
}

/// Where compiled policies are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PolicyCache {
    /// Among what the router's user keeps to save work, where there is such a folder.
    #[default]
    OfUser,
    /// Nowhere.
    Off,
    /// In this folder, as written; never that of the policies.
    Folder(PathBuf),
}

/// What the caller knows and the file may name.
#[derive(Debug, Clone, Copy)]
pub struct Known<'n> {
    /// The policies that are part of Conductor.
    pub builtins: &'n [&'n str],
    /// The policy of routes that name none: one of `builtins`.
    pub default_policy: &'n str,
    /// What lies in the policy folder.
    pub files: &'n dyn PolicyFiles,
    /// Whether the environment has an admin key, for a file that names none.
    pub has_admin_key: bool,
}

/// Looks into policy folders, so that this crate needs no file system.
pub trait PolicyFiles: fmt::Debug {
    /// Names (file stems) of the components in `folder`, which is as the file has it: maybe relative to the file.
    fn names_in(&self, folder: &Path) -> Vec<String>;

    /// Whether there is no such folder.
    fn is_missing(&self, folder: &Path) -> bool {
        let _ = folder;
        false
    }

    /// Why the folder is there and cannot be read; none where it can, or is missing.
    fn unreadable(&self, folder: &Path) -> Option<String> {
        let _ = folder;
        None
    }

    /// Whether something lies at `path` that is no folder.
    fn is_no_folder(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
}

/// The same files in every folder.
impl<const N: usize> PolicyFiles for [&str; N] {
    fn names_in(&self, _: &Path) -> Vec<String> {
        self.map(str::to_owned).to_vec()
    }

    /// As the names tell.
    fn is_missing(&self, folder: &Path) -> bool {
        folder.ends_with("missing")
    }

    /// As the names tell.
    fn unreadable(&self, folder: &Path) -> Option<String> {
        folder.ends_with("closed").then(|| "permission denied".to_owned())
    }

    /// As the names tell.
    fn is_no_folder(&self, path: &Path) -> bool {
        path.extension().is_some()
    }
}

/// A valid configuration and what is odd about it.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The configuration.
    pub config: Config,
    /// Warnings only; often empty.
    pub warnings: Diagnostics,
}

impl Config {
    /// Reads `text`; `name` is what diagnostics call it.
    ///
    /// # Errors
    /// Every mistake of the file, together with its warnings.
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

    /// Reads `text` as far as it can be read, for tools that look into what it names even where it has mistakes.
    ///
    /// # Errors
    /// A file that is too large to be read.
    pub fn examine(name: &str, text: &str, known: &Known<'_>) -> Result<Examined, Diagnostics> {
        if text.len() > MAX_FILE_BYTES {
            return Err(too_large(name, text.len()));
        }
        let mut report = Report::new(Source::new(name, text));
        let tree = syntax::parse(text, &report);
        let (config, mut doubts) = read(Section::root(&tree, &report), known);
        if report.has(Code::Syntax) {
            for policy in &config.policies {
                doubts.entry(policy.name.clone()).or_insert(Doubt::Settings);
            }
        }
        report.forget_consequences();
        Ok(Examined {
            config,
            diagnostics: report.into_diagnostics(),
            doubts,
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

/// Reads all sections. What cannot be read is reported and stands as its default.
fn read(mut root: Section<'_>, known: &Known<'_>) -> (Config, Doubts) {
    let report = root.report();
    let policy_dir = root
        .item("policy-dir")
        .map(|item| read_policy_dir(&item, known.files));
    let policy_dir_allow = root.item("policy-dir-allow").and_then(|item| {
        if policy_dir.is_none() {
            report.push(
                Problem::new(
                    Code::NeedsKey,
                    &item.key_span,
                    "`policy-dir-allow` means nothing without `policy-dir`",
                )
                .help("it lists which files of that folder are loaded; pin a single policy with `sha256` in its table"),
            );
        }
        read_hashes(&item)
    });
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
    let log = log::read(root.section("log", "`[log]`"));
    let index = index::read(root.section("index", "`[index]`"));
    let kv_events = feeds::read(root.section("kv-events", "`[kv-events]`"));
    let indexer = indexer::read(root.section("indexer", "`[indexer]`"), &server);
    let record = record::read(root.section("record", "`[record]`"));
    let policy_compile = policy_compile::read(root.section("policy-compile", "`[policy-compile]`"));
    let policies = policy::read(root.section("policies", "`[policies.NAME]`"), known, in_folder);
    if let Some(folder) = root.item("policy-dir") {
        policy::report_ignored(&folder, &policies, known, in_folder.unwrap_or_default());
    }
    let pools = pool::read(
        root.item("pools").as_ref(),
        indexer.config.listen.is_none(),
        report,
    );
    indexer.check_against(&pools, report);
    let tokens = models::read_tokens(root.section("tokens", "`[tokens]`"));
    let models = models::read(root.item("models").as_ref(), report);
    let stores = store::read(root.item("stores").as_ref(), &pools, report);
    let names = Names {
        known,
        pools: &pools,
        policies: &policies,
        in_folder,
    };
    let routes = route::read(root.item("routes").as_ref(), &names, report);
    root.finish();
    let doubts = policies
        .iter()
        .filter_map(|policy| Some((policy.config.name.clone(), policy.doubt?)));
    let doubts = doubts.collect();
    let declared = policies.into_iter().map(|policy| policy.config);
    let config = Config {
        server,
        clients,
        log,
        index,
        kv_events,
        indexer: indexer.config,
        record,
        policy_dir: policy_dir.flatten(),
        policy_dir_allow,
        policy_cache,
        policy_compile,
        policies: declared.chain(routes.implied).collect(),
        pools: pools.into_iter().map(|pool| pool.config).collect(),
        tokens,
        models,
        stores,
        routes: routes.routes,
    };
    (config, doubts)
}

fn read_policy_dir(item: &Item<'_>, files: &dyn PolicyFiles) -> Option<PathBuf> {
    let folder = read_folder(item)?;
    if files.is_missing(&folder) {
        let message = format!("the folder `{}` of `policy-dir` is not there", folder.display());
        let problem = Problem::new(Code::MissingFolder, &item.span, message);
        item.report
            .push(problem.help(
                "it is looked for again as long as the router runs; no policy of it can be had before",
            ));
    } else if let Some(why) = files.unreadable(&folder) {
        let message = format!(
            "failed to read the folder `{}` of `policy-dir`: {why}",
            folder.display()
        );
        let problem = Problem::new(Code::UnreadableFolder, &item.span, message);
        item.report.push(
            problem.help("name a folder, and let the user that runs the router list and read it; no policy of it can be had before"),
        );
    }
    Some(folder)
}

pub(crate) fn read_folder(item: &Item<'_>) -> Option<PathBuf> {
    let text = item.text()?;
    if text.text.is_empty() {
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key))
                .help("name a folder, for example \"policies.d\", or leave the key out"),
        );
        return None;
    }
    Some(PathBuf::from(text.text))
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
            .help("give compiled code a folder that nobody but the router writes to"),
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
