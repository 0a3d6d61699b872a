//! `[indexer]`: the prefix index as a service, and engines followed in addition to the pools' workers.

mod service;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use self::service::{ClaimedServices, read_services};
pub use self::service::{DEFAULT_TENANT, MOST_MODEL_BYTES, ServiceConfig, ServiceHash, ServiceKind};
use crate::address::{collide, listen_address};
use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::{Mark, Source, Span};
use crate::document::value::{Item, Text};
use crate::key::{self, KeyPlace, KeySource};
use crate::pools::DeclaredPool;
use crate::pools::endpoint::zmq_endpoint;
use crate::pools::store::StoreConfig;
use crate::server::ServerConfig;
use crate::server::exposure::{self, Protection};
use crate::tls::{self, ServerTlsConfig};

/// `[indexer]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexerConfig {
    /// Listen address; `None` for off.
    pub listen: Option<SocketAddr>,
    /// Position of `listen`, if the file has it.
    pub listen_at: Option<Mark>,
    /// Key required of callers; `None` for no key.
    pub api_key: Option<ApiKey>,
    /// TLS of the listener; `None` for plain connections.
    pub tls: Option<ServerTlsConfig>,
    /// Largest request body, in bytes.
    pub body_limit: u64,
    /// `[[indexer.services]]` in the order of the file.
    pub services: Vec<ServiceConfig>,
}

impl Default for IndexerConfig {
    fn default() -> Self {
        Self {
            listen: None,
            listen_at: None,
            api_key: None,
            tls: None,
            body_limit: 32 << 20,
            services: Vec::new(),
        }
    }
}

/// Location of the key.
#[derive(Clone, PartialEq, Eq)]
pub enum ApiKey {
    /// In the configuration itself.
    Text(String),
    /// Elsewhere.
    Place(KeySource),
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Place(place) => f.debug_tuple("Place").field(place).finish(),
        }
    }
}

/// Checks the syntax of an endpoint.
///
/// # Errors
/// The fault.
pub fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let report = Report::new(Source::new("endpoint", endpoint));
    let text = Text {
        text: endpoint,
        span: 0..endpoint.len(),
    };
    if zmq_endpoint(&text, &report).is_some() {
        return Ok(());
    }
    let found = report.into_diagnostics();
    Err(found
        .items()
        .first()
        .map_or_else(String::new, |problem| problem.message.clone()))
}

/// The `[indexer]` section, and the positions of its endpoints.
#[derive(Default)]
pub(crate) struct DeclaredIndexer {
    pub(crate) config: IndexerConfig,
    endpoints: HashMap<String, Span>,
}

pub(crate) fn read(section: Option<Section<'_>>, server: &ServerConfig) -> DeclaredIndexer {
    let Some(mut indexer) = section else {
        return DeclaredIndexer::default();
    };
    let default = IndexerConfig::default();
    let mut taken = ClaimedServices::default();
    let listen_item = indexer.item("listen");
    let listen = listen_item.as_ref().and_then(|item| read_listen(item, server));
    let config = IndexerConfig {
        listen,
        listen_at: listen_item.as_ref().map(|item| item.report.mark(&item.span)),
        api_key: read_key(&mut indexer),
        tls: indexer
            .section("tls", "`[indexer.tls]`")
            .and_then(tls::read_server),
        body_limit: indexer.size("body-limit", default.body_limit, 1 << 10..=1 << 30),
        services: read_services(&mut indexer, &mut taken),
    };
    if let (Some(item), Some(listen)) = (&listen_item, listen) {
        let protection = Protection::of(config.api_key.is_some(), config.tls.as_ref());
        exposure::report_indexer(item, listen, protection);
    }
    indexer.finish();
    DeclaredIndexer {
        config,
        endpoints: taken.endpoints,
    }
}

impl DeclaredIndexer {
    /// Reports endpoints that belong to workers or stores.
    pub(crate) fn check_against(&self, pools: &[DeclaredPool], stores: &[StoreConfig], report: &Report) {
        let workers = pools.iter().flat_map(|pool| &pool.config.workers);
        let feeds =
            workers.flat_map(|worker| worker.kv_events.feeds().iter().map(move |feed| (worker, feed)));
        for (worker, feed) in feeds {
            let Some((endpoint, span)) = self.endpoints.get_key_value(&feed.endpoint) else {
                continue;
            };
            report.push(
                Problem::new(
                    Code::SameAddress,
                    span,
                    format!(
                        "the endpoint `{endpoint}` is that of the worker `{}`",
                        worker.name
                    ),
                )
                .help("leave the service out: workers are instances of the indexer already"),
            );
        }
        for store in stores {
            let Some((endpoint, span)) = self.endpoints.get_key_value(&store.endpoint) else {
                continue;
            };
            report.push(
                Problem::new(
                    Code::SameAddress,
                    span,
                    format!("the endpoint `{endpoint}` is that of the store `{}`", store.name),
                )
                .help("leave one of them out: each event would count twice"),
            );
        }
    }
}

fn read_listen(item: &Item<'_>, server: &ServerConfig) -> Option<SocketAddr> {
    if item.value.as_str() == Some("off") {
        return None;
    }
    let listen = listen_address(item)?;
    let others = [
        ("listen", Some(server.listen)),
        ("admin-listen", server.admin_listen),
    ];
    for (key, other) in others {
        if other.is_some_and(|other| collide(listen, other)) {
            item.report.push(
                Problem::new(
                    Code::SameAddress,
                    &item.span,
                    format!("`listen` of `[indexer]` is the same address as `{key}` of `[server]`"),
                )
                .help("give it a port of its own, or \"off\""),
            );
        }
    }
    Some(listen)
}

/// Reads `api-key`, which is the key itself or its location, or `api-key-file`, the short form of a file.
fn read_key(indexer: &mut Section<'_>) -> Option<ApiKey> {
    let report = indexer.report();
    let own = indexer.item("api-key");
    let file = indexer.text("api-key-file");
    if let (Some(own), Some(file)) = (&own, &file) {
        report.push(
            Problem::new(
                Code::ConflictingKeys,
                &file.span,
                "`api-key` and `api-key-file` exclude each other",
            )
            .also(&own.span, "the key itself")
            .help("keep one of them"),
        );
    }
    let check = |text: &Text<'_>| {
        if text.text.trim().is_empty() {
            report.push(
                Problem::new(Code::InvalidValue, &text.span, "the API key is empty")
                    .help("remove the key to accept every client"),
            );
        }
    };
    match (own, file) {
        (Some(own), _) if own.value.as_str().is_some() => {
            let text = own.text()?;
            check(&text);
            Some(ApiKey::Text(text.text.to_owned()))
        }
        (Some(own), _) => key::read(&own).map(ApiKey::Place),
        (None, Some(file)) => {
            check(&file);
            Some(ApiKey::Place(KeySource {
                place: KeyPlace::File(PathBuf::from(file.text)),
                at: report.mark(&file.span),
            }))
        }
        (None, None) => None,
    }
}
