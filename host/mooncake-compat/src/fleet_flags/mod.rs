//! Flags that name a fleet instead of a configuration file, translated to the text of one.
//!
//! They are Conductor's own short form (`--worker`, `--prefill`, `--decode`) and the flags of Mooncake's older proxies.

mod args;
mod workers;
mod write;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use routing::Role;
use thiserror::Error;

pub use self::args::{FLEET_GROUP, FleetArgs, MooncakeProxyArgs};
use self::workers::FlagWorker;

/// Port of Mooncake's proxies if none is given.
const PROXY_PORT: u16 = 8000;

/// Error in the flags.
#[derive(Debug, PartialEq, Error)]
pub enum FleetFlagError {
    /// Unknown key of `--worker`.
    #[error(
        "failed to understand `{option}` in `--worker {flag}`: known are kv-events=ENDPOINT and kv-replay=ENDPOINT"
    )]
    UnknownOption {
        /// Part after a comma.
        option: String,
        /// Value of the flag.
        flag: String,
    },
    /// Bootstrap port without a URL before it.
    #[error(
        "failed to understand `--prefill {0}`: a bootstrap port goes after its worker's URL, one to each"
    )]
    StrayBootstrap(String),
    /// Value that is no URL and no bootstrap port.
    #[error(
        "failed to understand `--prefill {0}`: it is neither a URL nor a port; write http://HOST:PORT, and after it the bootstrap port or none"
    )]
    NeitherUrlNorPort(String),
    /// Bootstrap port that is not a port number.
    #[error(
        "failed to understand the bootstrap port `{0}` of `--prefill`: give a number from 1 to 65535, or none"
    )]
    BootstrapPort(String),
    /// Lists of hosts and ports of different lengths.
    #[error(
        "failed to pair `--{kind}_hosts` with `--{kind}_ports`: the number of hosts is {hosts}, that of ports {ports}"
    )]
    Lengths {
        /// Kind of the workers.
        kind: &'static str,
        /// Number of hosts.
        hosts: usize,
        /// Number of ports.
        ports: usize,
    },
    /// Port that is not a port number.
    #[error("failed to understand `{port}` in `--{kind}_ports`: give numbers from 1 to 65535")]
    Port {
        /// Kind of the workers.
        kind: &'static str,
        /// Text of the port.
        port: String,
    },
    /// Host to listen on that is not an IP address.
    #[error("failed to listen on the host `{0}`: give an IP address, such as 0.0.0.0 for every interface")]
    Host(String),
    /// Flags without a worker: their lists are empty.
    #[error("failed to find a worker in the flags: their lists are empty")]
    NoWorkers,
}

/// Values for the configuration that differ from flag to flag.
#[derive(Debug)]
struct FleetConfig<'a> {
    /// Address for clients; `None` for the configuration's default.
    listen: Option<SocketAddr>,
    /// Port of the admin pages on the loopback interface, used if `listen` is given.
    admin_port: u16,
    attempts: Option<u32>,
    /// Prefill/decode dialect; `None` if requests are not split.
    dialect: Option<&'a str>,
    /// True if the workers get `OPENAI_API_KEY`, as the older proxies send it.
    sends_key: bool,
    workers: Vec<FlagWorker>,
    policy: &'a str,
    args: &'a FleetArgs,
}

/// Values that do not come from the flags.
#[derive(Debug, Clone, Copy)]
pub struct FlagDefaults<'a> {
    /// Policy if none is given.
    pub policy: &'a str,
    /// True if the environment has `OPENAI_API_KEY`.
    pub has_engine_key: bool,
}

/// Returns the text of the configuration that the flags stand for.
///
/// # Errors
/// [`FleetFlagError`] for the first invalid flag. The configuration's own check validates the addresses.
pub fn configuration(args: &FleetArgs, defaults: FlagDefaults<'_>) -> Result<String, FleetFlagError> {
    let mut workers = workers::all(args)?;
    if workers.is_empty() {
        return Err(FleetFlagError::NoWorkers);
    }
    let splits = match args.proxy.pd_enable.as_deref() {
        Some("false") => false,
        Some("true") => true,
        _ => workers.iter().any(|worker| worker.role != Role::Mixed),
    };
    if !splits {
        for worker in &mut workers {
            worker.role = Role::Mixed;
            worker.bootstrap = None;
        }
    }
    let listen = listen(args)?;
    let fleet = FleetConfig {
        listen,
        admin_port: listen.map_or(0, |listen| admin_port(listen, &workers)),
        attempts: args.proxy.max_retries.map(|retries| retries + 1),
        dialect: splits.then(|| dialect(args)),
        sends_key: defaults.has_engine_key && args.is_of_a_proxy(),
        policy: args.policy.as_deref().unwrap_or(defaults.policy),
        workers,
        args,
    };
    Ok(write::toml(&fleet))
}

fn dialect(args: &FleetArgs) -> &str {
    args.dialect.as_deref().unwrap_or("auto")
}

/// Returns the address for clients, if it is not the configuration's default.
fn listen(args: &FleetArgs) -> Result<Option<SocketAddr>, FleetFlagError> {
    let MooncakeProxyArgs { host, port, .. } = &args.proxy;
    if args.listen.is_some() || (host.is_none() && port.is_none() && !args.is_of_a_proxy()) {
        return Ok(args.listen);
    }
    let ip = match host.as_deref() {
        None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(host) => host.parse().map_err(|_| FleetFlagError::Host(host.to_owned()))?,
    };
    Ok(Some(SocketAddr::new(ip, port.unwrap_or(PROXY_PORT))))
}

/// Returns the first port after the clients' that no worker has, or 0 for any port.
fn admin_port(listen: SocketAddr, workers: &[FlagWorker]) -> u16 {
    let mut port = port_after(listen);
    while port != 0 && workers.iter().any(|worker| worker.has_port(port)) {
        port = port.checked_add(1).unwrap_or(0);
    }
    port
}

/// Returns the default port of the admin pages: the one after the clients', or 0 for any port if there is none.
#[must_use]
pub fn port_after(listen: SocketAddr) -> u16 {
    match listen.port() {
        0 => 0,
        port => port.checked_add(1).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
