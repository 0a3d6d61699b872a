//! Draft of a configuration: keys by table, workers, policies and notes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use mooncake_compat::{comment, quoted};
use routing::{Dialect, Role};

use crate::rule::KeyPlace;

/// Port of the admin listener unless the configuration names one.
const USUAL_ADMIN: &str = "8081";
/// Port of the admin listener where clients have the usual one.
const OTHER_ADMIN: &str = "8082";
/// Table of split requests.
const PD: &str = "pools.main.pd";
/// Worker that stands for those that a command line does not name.
const PLACEHOLDER: &str = "http://127.0.0.1:8000";

/// Translated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedText {
    /// Text of a `conductor.toml`. Values that are invalid here are in it, too.
    pub toml: String,
    /// One sentence for each flag without an equivalent, with what to do.
    pub notes: Vec<String>,
}

/// Worker of a draft.
#[derive(Debug)]
pub(crate) struct DraftWorker {
    pub(crate) url: String,
    pub(crate) role: Role,
    pub(crate) bootstrap: Option<String>,
    pub(crate) models: Option<String>,
}

/// Pods of a draft.
#[derive(Debug, Default)]
pub(crate) struct DraftPods {
    /// Selectors by role.
    pub(crate) selectors: Vec<(Option<Role>, String)>,
    pub(crate) namespace: Option<String>,
    pub(crate) port: Option<String>,
}

impl DraftPods {
    /// Adds labels that the pods of a role have too.
    pub(crate) fn add_selector(&mut self, role: Option<Role>, labels: &str) {
        let mut known = self.selectors.iter_mut();
        match known.find(|(known, _)| *known == role) {
            Some((_, all)) => {
                all.push(',');
                all.push_str(labels);
            }
            None => self.selectors.push((role, labels.to_owned())),
        }
    }
}

/// Draft of a configuration.
#[derive(Debug, Default)]
pub(crate) struct ConfigDraft {
    tables: BTreeMap<&'static str, Vec<(&'static str, String)>>,
    pub(crate) workers: Vec<DraftWorker>,
    /// Data-parallel ranks of every worker.
    pub(crate) ranks: Option<u64>,
    pub(crate) pods: DraftPods,
    /// Policies of the route by key.
    pub(crate) policies: Vec<(&'static str, String)>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<String>,
    /// Port of the metrics, which the admin listener serves.
    pub(crate) admin_port: Option<String>,
    /// Tables of policies, as TOML.
    pub(crate) more: String,
    pub(crate) notes: Vec<String>,
}

impl ConfigDraft {
    /// Sets a key to a value, as TOML. The last value counts.
    pub(crate) fn set(&mut self, (table, key): KeyPlace, value: String) {
        let keys = self.tables.entry(table).or_default();
        keys.retain(|(known, _)| *known != key);
        keys.push((key, value));
    }

    /// Returns `true` if a key is set.
    pub(crate) fn has(&self, (table, key): KeyPlace) -> bool {
        let keys = self.tables.get(table);
        keys.is_some_and(|keys| keys.iter().any(|(known, _)| *known == key))
    }

    /// Adds the table of assumed caches: without it, those of workers without KV events are unknown.
    pub(crate) fn assume_caches(&mut self) {
        let Entry::Vacant(table) = self.tables.entry("pools.main.assume-cache") else {
            return;
        };
        table.insert(Vec::new());
        self.notes.push(
            "the caches of workers without KV events are assumed: set `tokens` of [pools.main.assume-cache] to \
             the capacity of an engine"
                .to_owned(),
        );
    }

    /// Adds a worker, perhaps with a port of a bootstrap server.
    pub(crate) fn add_worker(&mut self, url: &str, role: Role, bootstrap: Option<&str>) {
        let url = with_scheme(url);
        let port = bootstrap.map(|port| port.parse::<u16>().unwrap_or(Dialect::USUAL_BOOTSTRAP_PORT));
        let bootstrap = port.and_then(|port| {
            let (_, rest) = url.split_once("://")?;
            let authority = rest.split('/').next()?;
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            // Engines serve it without TLS.
            Some(format!("http://{host}:{port}"))
        });
        self.workers.push(DraftWorker {
            url,
            role,
            bootstrap,
            models: None,
        });
    }

    /// Returns the text and the notes.
    pub(crate) fn finish(mut self, router: &str) -> ImportedText {
        self.set_listen();
        self.set_admin_listen();
        self.drop_needless_bootstraps();
        let has_pods = !self.pods.selectors.is_empty();
        if self.workers.is_empty() && !has_pods {
            self.notes.push(format!(
                "the command line names no workers: replace `{PLACEHOLDER}` by yours, or add a [discovery.NAME]"
            ));
            self.add_worker(PLACEHOLDER, Role::Mixed, None);
        }
        let is_split = self.workers.iter().any(|worker| worker.role != Role::Mixed)
            || self.pods.selectors.iter().any(|(role, _)| role.is_some());
        if is_split && !self.tables.contains_key(PD) {
            self.set((PD, "dialect"), quoted("auto"));
        }
        self.tables.entry("pools.main").or_default();
        let mut toml = format!("# Translation of the configuration of {router}.\n");
        for (table, keys) in &self.tables {
            let _ = writeln!(toml, "\n[{table}]");
            for (key, value) in keys {
                let _ = writeln!(toml, "{key} = {value}");
            }
        }
        for worker in &self.workers {
            write_worker(&mut toml, worker, self.ranks);
        }
        write_pods(&mut toml, &self.pods, self.ranks);
        toml += &self.more;
        toml += "\n[[routes]]\npool = \"main\"\n";
        for (key, policy) in &self.policies {
            let _ = writeln!(toml, "{key} = {}", quoted(policy));
        }
        ImportedText {
            toml,
            notes: self.notes.iter().map(|note| comment(note)).collect(),
        }
    }

    /// Joins host and port of the listener.
    fn set_listen(&mut self) {
        if self.host.is_none() && self.port.is_none() {
            return;
        }
        let host = match self.host.as_deref() {
            Some("localhost") | None => "127.0.0.1",
            Some(host) => host,
        };
        let host = match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        let port = self.port.as_deref().unwrap_or("8080");
        let listen = quoted(&format!("{host}:{port}"));
        self.set(("server", "listen"), listen);
    }

    /// Sets the address of the admin listener, which needs a port of its own.
    fn set_admin_listen(&mut self) {
        let clients = self.port.as_deref();
        let named = self.admin_port.as_deref();
        let mut port = named.unwrap_or(USUAL_ADMIN).to_owned();
        if clients == Some(&*port) {
            let free = if port == USUAL_ADMIN {
                OTHER_ADMIN
            } else {
                USUAL_ADMIN
            };
            self.notes.push(format!(
                "port {port} is that of clients: the admin listener, which has the metrics, gets port {free}"
            ));
            free.clone_into(&mut port);
        } else if named.is_none() {
            return;
        }
        let listen = quoted(&format!("127.0.0.1:{port}"));
        self.set(("server", "admin-listen"), listen);
    }

    /// Leaves out the bootstrap servers of workers whose dialect has none.
    fn drop_needless_bootstraps(&mut self) {
        let mut keys = self.tables.get(PD).into_iter().flatten();
        let dialect = keys.find(|(key, _)| *key == "dialect");
        let dialect = dialect.and_then(|(_, value)| {
            let mut all = Dialect::ALL.into_iter();
            all.find(|dialect| quoted(dialect.as_str()) == *value)
        });
        let Some(dialect) = dialect.filter(|dialect| !dialect.has_bootstrap()) else {
            return;
        };
        let mut is_dropped = false;
        for worker in &mut self.workers {
            is_dropped |= worker.bootstrap.take().is_some();
        }
        if is_dropped {
            self.notes.push(format!(
                "the bootstrap ports are left out: workers of the dialect `{}` have none",
                dialect.as_str()
            ));
        }
    }
}

fn with_scheme(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    }
}

fn write_worker(toml: &mut String, worker: &DraftWorker, ranks: Option<u64>) {
    let _ = writeln!(toml, "\n[[pools.main.workers]]\nurl = {}", quoted(&worker.url));
    if worker.role != Role::Mixed {
        let _ = writeln!(toml, "role = \"{}\"", worker.role.as_str());
    }
    if let Some(bootstrap) = &worker.bootstrap {
        let _ = writeln!(toml, "bootstrap = {}", quoted(bootstrap));
    }
    if let Some(model) = &worker.models {
        let _ = writeln!(toml, "models = [{}]", quoted(model));
    }
    if let Some(ranks) = ranks {
        let _ = writeln!(toml, "data-parallel = {{ ranks = {ranks} }}");
    }
}

fn write_pods(toml: &mut String, pods: &DraftPods, ranks: Option<u64>) {
    for (role, selector) in &pods.selectors {
        let name = role.map_or("workers", Role::as_str);
        let _ = writeln!(toml, "\n[discovery.{name}]\npool = \"main\"");
        if let Some(role) = role {
            let _ = writeln!(toml, "role = \"{}\"", role.as_str());
        }
        if let Some(ranks) = ranks {
            let _ = writeln!(toml, "ranks = {ranks}");
        }
        let namespace = pods.namespace.as_deref();
        let namespace = namespace.map(|namespace| format!(", namespace = {}", quoted(namespace)));
        let namespace = namespace.unwrap_or_default();
        let port = pods.port.as_deref().map(|port| format!(", port = {port}"));
        let port = port.unwrap_or_default();
        let _ = writeln!(
            toml,
            "kubernetes = {{ selector = {}{namespace}{port} }}",
            quoted(selector)
        );
    }
}
