//! The index as a service: joins `indexer-api` to the event feeds and to the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use admin_pages::host_names;
use conductor_config::{Config, ServerConfig, ServiceConfig, ServiceKind as ConfiguredKind};
use indexer_api::{Algorithm, HashProfile, Indexer, IndexerAccess, IndexerParts, Service, ServiceKind};
use kv_index::SharedPrefixIndex;
use kv_plane::RegisteredFeeds;
use proxy::{PagesListener, PagesSpec, Proxy, RebindableListener};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::listeners::{ListenError, listen};
use external_resources::Keys;

/// Connections of callers at a time.
const CONNECTIONS: usize = 1_024;

/// Indexer with a bound socket that does not serve yet.
pub(crate) struct Indexing {
    listener: TcpListener,
    address: SocketAddr,
    handle: IndexerHandle,
    configured: Vec<Service>,
}

/// Handle that changes the access to the served indexer.
#[derive(Clone)]
pub(crate) struct IndexerHandle {
    indexer: Arc<Indexer>,
    /// Address, as configured at the start.
    listen: SocketAddr,
}

impl IndexerHandle {
    /// Makes the keys of another configuration hold for requests that come from now on.
    pub(crate) fn set(&self, keys: &Keys, server: &ServerConfig) {
        self.indexer.set_access(access(keys, self.listen, server));
    }
}

fn access(keys: &Keys, listen: SocketAddr, server: &ServerConfig) -> IndexerAccess {
    IndexerAccess {
        api_key: keys.indexer.as_ref().map(|key| key.to_sent()),
        hosts: host_names(Some(listen), server),
    }
}

impl Indexing {
    /// Binds the indexer, if the configuration enables it.
    ///
    /// # Errors
    /// [`ListenError`] if its address cannot be bound.
    pub(crate) async fn bind(
        Config {
            indexer: config,
            server,
            ..
        }: &Config,
        keys: &Keys,
        index: SharedPrefixIndex,
        follow: RegisteredFeeds,
    ) -> Result<Option<Self>, ListenError> {
        let Some(address) = config.listen else {
            if !config.services.is_empty() {
                warn!("[[indexer.services]] are not followed: `listen` of [indexer] is off");
            }
            return Ok(None);
        };
        let indexer = Indexer::new(IndexerParts {
            index,
            follow: Arc::new(follow),
            access: access(keys, address, server),
            body_limit: usize::try_from(config.body_limit).unwrap_or(usize::MAX),
        });
        let listener = listen(address, "indexer.listen", config.listen_at.as_ref()).await?;
        Ok(Some(Self {
            address: listener.local_addr().unwrap_or(address),
            listener,
            handle: IndexerHandle {
                indexer,
                listen: address,
            },
            configured: config.services.iter().map(service).collect(),
        }))
    }

    /// Returns the address for clients of the index.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the handle that changes its access.
    pub(crate) fn handle(&self) -> IndexerHandle {
        self.handle.clone()
    }

    /// Follows what the configuration names, and serves until `stop` is cancelled.
    pub(crate) async fn run(self, proxy: Arc<Proxy>, stop: CancellationToken) {
        let indexer = self.handle.indexer;
        indexer.register_all(self.configured);
        info!(listen = %self.address, "the indexer is ready");
        let spec = PagesSpec {
            listener: PagesListener::Indexer,
            key: "indexer.listen",
            connections: CONNECTIONS,
        };
        let (listener, _never_moved) = RebindableListener::new(self.listener);
        proxy::serve_pages(listener, indexer.routes(), spec, &proxy, stop).await;
    }
}

/// Returns a service of the configuration, as it would be registered.
fn service(config: &ServiceConfig) -> Service {
    let profile = config.hash.as_ref().and_then(|hash| {
        Some(HashProfile::Vllm {
            algorithm: Algorithm::named(&hash.algorithm)?,
            seed: hash.seed.as_deref().map(Into::into),
        })
    });
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Service {
        endpoint: config.endpoint.as_str().into(),
        replay: text(&config.replay),
        kind: match config.kind {
            ConfiguredKind::Vllm => ServiceKind::Vllm,
            ConfiguredKind::Sglang => ServiceKind::Sglang,
            ConfiguredKind::Mooncake => ServiceKind::Mooncake,
        },
        model: config.model.as_str().into(),
        lora: text(&config.lora),
        tenant: config.tenant.as_str().into(),
        instance: config.instance.as_str().into(),
        block_size: config.block_size,
        rank: config.rank,
        profile,
    }
}
