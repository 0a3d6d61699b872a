//! `[server]`: listeners, and limits of every request.

pub(crate) mod cors;
pub(crate) mod exposure;
pub(crate) mod forward;
pub(crate) mod fronts;
pub(crate) mod http2;
pub(crate) mod limits;
pub(crate) mod policy_headers;
pub(crate) mod totals;

use std::net::{Ipv4Addr, SocketAddr};

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use self::cors::CorsConfig;
use self::exposure::Protection;
use self::http2::Http2Config;
use self::limits::LimitsConfig;
use self::totals::TotalsConfig;
use crate::address::{collide, listen_address};
use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::source::Mark;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;
use crate::folder::read_folder;
use crate::key::{self, KeySource};
use crate::known::{Known, PolicyFiles};
use crate::pools::retries;
use crate::tls::{self, ServerTlsConfig};

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Listen address for clients.
    pub listen: SocketAddr,
    /// Listen address of `/admin` and `/metrics`; `None` for off.
    pub admin_listen: Option<SocketAddr>,
    /// Position of `listen`, if set.
    pub listen_at: Option<Mark>,
    /// Position of `admin-listen`, if set.
    pub admin_listen_at: Option<Mark>,
    /// Key for adding and removing workers at run time. `None` for `ADMIN_API_KEY` of the environment; without that
    /// only the admin listener accepts such changes.
    pub admin_api_key: Option<KeySource>,
    /// The admin listener requires that key for everything except `/health` and `/readyz`.
    pub admin_key_for_reads: bool,
    /// Further host names of the admin listener and the indexer on the loopback without a key.
    pub admin_hosts: Vec<String>,
    /// Serves `/metrics` to clients too; `None` for only if no client needs a key.
    pub metrics_on_listen: Option<bool>,
    /// Largest request body, in bytes.
    pub request_body_limit: u64,
    /// Limits of a client's requests.
    pub limits: LimitsConfig,
    /// Totals over all clients.
    pub totals: TotalsConfig,
    /// Proxies whose statement of a client's address is trusted.
    pub trusted_fronts: Vec<IpNet>,
    /// TLS for clients; `None` for plain connections.
    pub tls: Option<ServerTlsConfig>,
    /// TLS of the admin listener.
    pub admin_tls: Option<ServerTlsConfig>,
    /// HTTP/2 on all listeners.
    pub http2: Http2Config,
    /// Cross-origin requests; `None` for none.
    pub cors: Option<CorsConfig>,
    /// Delay from SIGTERM to closing the listeners.
    pub drain_delay: Duration,
    /// Time for running requests to finish after that.
    pub drain_timeout: Duration,
    /// Timeout of connecting to a worker.
    pub connect_timeout: Duration,
    /// Timeout of a worker's response headers.
    pub first_byte_timeout: Duration,
    /// Timeout between two chunks of a worker's response.
    pub idle_timeout: Duration,
    /// Timeout of a whole request; `None` for no limit.
    pub request_timeout: Option<Duration>,
    /// Most workers tried for one request before its first byte.
    pub attempts: u32,
    /// Most client connections.
    pub max_connections: u32,
    /// Adds headers about the decision to answers; `None` for only if no client needs a key.
    pub decision_headers: Option<bool>,
    /// Headers of requests that policies may read, in lower case.
    pub policy_headers: Vec<String>,
    /// Additional paths that workers serve, each once.
    pub forward: Vec<String>,
    /// Folder for the state of policies, as written; `None` for no persistence.
    pub policy_state: Option<PathBuf>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8081))),
            listen_at: None,
            admin_listen_at: None,
            admin_api_key: None,
            admin_key_for_reads: false,
            admin_hosts: Vec::new(),
            metrics_on_listen: None,
            request_body_limit: 32 << 20,
            limits: LimitsConfig::default(),
            totals: TotalsConfig::default(),
            trusted_fronts: Vec::new(),
            tls: None,
            admin_tls: None,
            http2: Http2Config::default(),
            cors: None,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(1),
            first_byte_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(120),
            request_timeout: None,
            attempts: 3,
            max_connections: 10_000,
            decision_headers: None,
            policy_headers: policy_headers::shown(),
            forward: Vec::new(),
            policy_state: None,
        }
    }
}

pub(crate) fn read(section: Option<Section<'_>>, known: &Known<'_>) -> ServerConfig {
    let default = ServerConfig::default();
    let Some(mut server) = section else {
        return default;
    };
    let Addresses {
        listen,
        admin_listen,
        listen_item,
        admin_item,
    } = addresses(&mut server, &default);
    let mark = |item: &Option<Item<'_>>| item.as_ref().map(|item| item.report.mark(&item.span));
    let request_body_limit = server.size(
        "request-body-limit",
        default.request_body_limit,
        1 << 10..=1 << 30,
    );
    let config = ServerConfig {
        listen,
        admin_listen,
        listen_at: mark(&listen_item),
        admin_listen_at: mark(&admin_item),
        admin_api_key: server.item("admin-api-key").and_then(|item| key::read(&item)),
        admin_key_for_reads: flag(&mut server, "admin-key-for-reads", default.admin_key_for_reads),
        admin_hosts: server
            .item("admin-hosts")
            .map_or_else(Vec::new, |item| exposure::read_hosts(&item)),
        metrics_on_listen: server.item("metrics-on-listen").and_then(|item| item.flag()),
        request_body_limit,
        limits: limits::read(&mut server),
        totals: totals::read(&mut server, request_body_limit),
        trusted_fronts: server
            .item("trusted-fronts")
            .map_or_else(Vec::new, |item| fronts::read(&item)),
        tls: server.section("tls", "`[server.tls]`").and_then(tls::read_server),
        admin_tls: server
            .section("admin-tls", "`[server.admin-tls]`")
            .and_then(tls::read_server),
        http2: http2::read(server.section("http2", "`[server.http2]`")),
        cors: server.section("cors", "`[server.cors]`").and_then(cors::read),
        drain_delay: server.duration(
            "drain-delay",
            default.drain_delay,
            Duration::ZERO..=*TIMEOUTS.end(),
        ),
        drain_timeout: server.duration("drain-timeout", default.drain_timeout, TIMEOUTS),
        connect_timeout: server.duration("connect-timeout", default.connect_timeout, TIMEOUTS),
        first_byte_timeout: server.duration("first-byte-timeout", default.first_byte_timeout, TIMEOUTS),
        idle_timeout: server.duration("idle-timeout", default.idle_timeout, TIMEOUTS),
        request_timeout: server
            .item("request-timeout")
            .and_then(|item| retries::read_whole(&item))
            .unwrap_or(default.request_timeout),
        attempts: count(&mut server, "attempts", default.attempts, 16),
        max_connections: count(&mut server, "max-connections", default.max_connections, 1_000_000),
        decision_headers: server.item("decision-headers").and_then(|item| item.flag()),
        policy_headers: server
            .item("policy-headers")
            .map_or(default.policy_headers, |item| policy_headers::read(&item)),
        forward: server
            .item("forward")
            .map_or_else(Vec::new, |item| forward::read(&item)),
        policy_state: server
            .item("policy-state")
            .and_then(|item| state_folder(&item, known.files)),
    };
    let has_key = known.has_admin_key || config.admin_api_key.is_some();
    if let (Some(item), Some(admin)) = (&admin_item, admin_listen) {
        exposure::report_admin(item, admin, Protection::of(has_key, config.admin_tls.as_ref()));
    }
    server.finish();
    config
}

fn state_folder(item: &Item<'_>, files: &dyn PolicyFiles) -> Option<PathBuf> {
    let folder = read_folder(item)?;
    if files.is_no_folder(&folder) {
        item.report.push(
            Problem::new(Code::InvalidValue, &item.span, "`policy-state` is not a folder")
                .help("name a folder that the router may write to; it is created if it does not exist"),
        );
        return None;
    }
    Some(folder)
}

fn flag(server: &mut Section<'_>, key: &'static str, default: bool) -> bool {
    server.item(key).and_then(|item| item.flag()).unwrap_or(default)
}

fn count(server: &mut Section<'_>, key: &'static str, default: u32, most: u32) -> u32 {
    let count = server.count(key, u64::from(default), 1..=u64::from(most));
    u32::try_from(count).expect("within a range that ends at a u32")
}

/// Listen addresses.
struct Addresses<'t> {
    listen: SocketAddr,
    admin_listen: Option<SocketAddr>,
    /// The key of the address for clients, if set.
    listen_item: Option<Item<'t>>,
    /// The key of the admin listener's address, if set.
    admin_item: Option<Item<'t>>,
}

fn addresses<'t>(server: &mut Section<'t>, default: &ServerConfig) -> Addresses<'t> {
    let listen_item = server.item("listen");
    let admin_item = server.item("admin-listen");
    let listen = match &listen_item {
        Some(item) => listen_address(item),
        None => Some(default.listen),
    };
    let admin = match &admin_item {
        Some(item) if item.value.as_str() == Some("off") => None,
        Some(item) => listen_address(item),
        None => default.admin_listen,
    };
    if let (Some(listen), Some(admin)) = (listen, admin)
        && collide(listen, admin)
    {
        let listen = ListenAddress {
            address: listen,
            item: listen_item.clone(),
        };
        let admin = ListenAddress {
            address: admin,
            item: admin_item.clone(),
        };
        report_collision(&listen, &admin);
    }
    Addresses {
        listen: listen.unwrap_or(default.listen),
        admin_listen: admin,
        listen_item,
        admin_item,
    }
}

/// A listen address, and its key in the file, if set.
struct ListenAddress<'t> {
    address: SocketAddr,
    item: Option<Item<'t>>,
}

/// Reports two equal addresses. The defaults do not collide, so at least one of the two is set.
fn report_collision(listen: &ListenAddress<'_>, admin: &ListenAddress<'_>) {
    let problem = |item: &Item<'_>, label: String| {
        Problem::new(
            Code::SameAddress,
            &item.span,
            "`listen` and `admin-listen` are the same address",
        )
        .label(label)
        .help("give `admin-listen` a port of its own, or \"off\"")
    };
    match (&listen.item, &admin.item) {
        (Some(listen), Some(admin)) => admin
            .report
            .push(problem(admin, "for administrators".to_owned()).also(&listen.span, "for clients")),
        (Some(listen), None) => {
            let label = format!("`admin-listen` is \"{}\" unless it is set", admin.address);
            listen.report.push(problem(listen, label));
        }
        (None, Some(admin)) => {
            let label = format!("`listen` is \"{}\" unless it is set", listen.address);
            admin.report.push(problem(admin, label));
        }
        (None, None) => {}
    }
}
