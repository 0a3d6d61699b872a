//! What the quick flags mean: the text of a configuration, which is then read like any other.

mod places;
mod write;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use routing::Role;
use thiserror::Error;

use self::places::Place;
use crate::builtin;
use crate::cli::{ProxyArgs, QuickArgs};

/// Where Mooncake's proxies listen unless told.
const PROXY_PORT: u16 = 8000;

/// Flags that make no sense.
#[derive(Debug, PartialEq, Error)]
pub(crate) enum QuickFlagError {
    /// A key of `--worker` that is not known.
    #[error(
        "failed to understand `{option}` in `--worker {flag}`: known are kv-events=ENDPOINT and kv-replay=ENDPOINT"
    )]
    UnknownOption {
        /// The part after a comma.
        option: String,
        /// The whole flag.
        flag: String,
    },
    /// A bootstrap port that follows no URL.
    #[error(
        "failed to understand `--prefill {0}`: a bootstrap port goes after its worker's URL, one to each"
    )]
    StrayBootstrap(String),
    /// A bootstrap port that is none.
    #[error(
        "failed to understand the bootstrap port `{0}` of `--prefill`: give a number from 1 to 65535, or none"
    )]
    BootstrapPort(String),
    /// Lists that do not belong together.
    #[error(
        "failed to pair `--{kind}_hosts` with `--{kind}_ports`: there are {hosts} hosts and {ports} ports"
    )]
    Lengths {
        /// Of which workers.
        kind: &'static str,
        /// How many hosts.
        hosts: usize,
        /// How many ports.
        ports: usize,
    },
    /// A port that is none.
    #[error("failed to understand `{port}` in `--{kind}_ports`: give numbers from 1 to 65535")]
    Port {
        /// Of which workers.
        kind: &'static str,
        /// As given.
        port: String,
    },
    /// A host to listen on that is no address.
    #[error("failed to listen on the host `{0}`: give an IP address, such as 0.0.0.0 for every interface")]
    Host(String),
    /// Lists with nothing in them.
    #[error("failed to find a worker in the flags: their lists are empty")]
    NoWorkers,
}

/// What was found in the flags.
#[derive(Debug)]
struct Meaning<'a> {
    /// None: where the configuration's defaults are.
    listen: Option<SocketAddr>,
    /// The port of the admin pages, on this machine, where `listen` is given.
    admin_port: u16,
    attempts: Option<u32>,
    /// What the workers hand over with; none: nothing is split.
    dialect: Option<&'a str>,
    /// Whether the workers get `OPENAI_API_KEY`, as those proxies send it.
    sends_key: bool,
    places: Vec<Place>,
    policy: &'a str,
    args: &'a QuickArgs,
}

/// The configuration that the quick flags mean. `has_key`: whether `OPENAI_API_KEY` is set.
///
/// # Errors
/// [`QuickFlagError`] for the first flag that makes no sense; addresses are judged by the configuration's own check.
pub(crate) fn from_flags(args: &QuickArgs, has_key: bool) -> Result<String, QuickFlagError> {
    let mut places = places::of(args)?;
    if places.is_empty() {
        return Err(QuickFlagError::NoWorkers);
    }
    let splits = match args.proxy.pd_enable.as_deref() {
        Some("false") => false,
        Some("true") => true,
        _ => places.iter().any(|place| place.role != Role::Mixed),
    };
    if !splits {
        for place in &mut places {
            place.role = Role::Mixed;
            place.bootstrap = None;
        }
    }
    let listen = listen(args)?;
    let meaning = Meaning {
        listen,
        admin_port: listen.map_or(0, |listen| admin_port(listen, &places)),
        attempts: args.proxy.max_retries.map(|retries| retries + 1),
        dialect: splits.then(|| dialect(args)),
        sends_key: has_key && args.is_of_a_proxy(),
        policy: policy(args),
        places,
        args,
    };
    Ok(write::toml(&meaning))
}

fn dialect(args: &QuickArgs) -> &str {
    args.dialect.as_deref().unwrap_or("auto")
}

fn policy(args: &QuickArgs) -> &str {
    args.policy.as_deref().unwrap_or(builtin::DEFAULT)
}

/// Where to listen, if that is not the configuration's default.
fn listen(args: &QuickArgs) -> Result<Option<SocketAddr>, QuickFlagError> {
    let ProxyArgs { host, port, .. } = &args.proxy;
    if args.listen.is_some() || (host.is_none() && port.is_none() && !args.is_of_a_proxy()) {
        return Ok(args.listen);
    }
    let ip = match host.as_deref() {
        None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(host) => host.parse().map_err(|_| QuickFlagError::Host(host.to_owned()))?,
    };
    Ok(Some(SocketAddr::new(ip, port.unwrap_or(PROXY_PORT))))
}

/// The first port after the clients' that no worker has; any port where there is none.
fn admin_port(listen: SocketAddr, places: &[Place]) -> u16 {
    let mut port = port_beside(listen);
    while port != 0 && places.iter().any(|place| place.has_port(port)) {
        port = port.checked_add(1).unwrap_or(0);
    }
    port
}

/// Where the admin pages are unless told: the port after the clients', as with the default addresses. Any port where
/// there is none after it, or the clients' is any.
pub(crate) fn port_beside(listen: SocketAddr) -> u16 {
    match listen.port() {
        0 => 0,
        port => port.checked_add(1).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
