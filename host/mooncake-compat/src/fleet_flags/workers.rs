//! Workers that the flags name, in any of their forms.

use routing::Role;

use super::{FleetArgs, FleetFlagError};

/// A worker named by a flag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FlagWorker {
    /// URL as given, with `http://` in front if it has no scheme.
    pub(super) url: String,
    pub(super) role: Role,
    /// Port of its bootstrap server, if given.
    pub(super) bootstrap: Option<u16>,
    /// Other keys of the worker, with their values.
    pub(super) keys: Vec<(String, String)>,
}

impl FlagWorker {
    fn new(url: &str, role: Role) -> Self {
        let scheme = if url.contains("://") { "" } else { "http://" };
        Self {
            url: format!("{scheme}{}", url.trim_end_matches('/')),
            role,
            bootstrap: None,
            keys: Vec::new(),
        }
    }

    /// Returns the URL of its bootstrap server, if the port is given. Engines serve it without TLS.
    pub(super) fn bootstrap_url(&self) -> Option<String> {
        let port = self.bootstrap?;
        let (_, rest) = self.url.split_once("://")?;
        // An IPv6 address has colons of its own, within brackets.
        let start = rest.rfind(']').unwrap_or(0);
        let host = rest[start..]
            .find(':')
            .map_or(rest, |colon| &rest[..start + colon]);
        Some(format!("http://{host}:{port}"))
    }

    /// Returns true if one of its servers has this port, on any host.
    pub(super) fn has_port(&self, port: u16) -> bool {
        let own = self.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        own == Some(port) || self.bootstrap == Some(port)
    }
}

/// Returns all workers: mixed ones first, then prefill, then decode.
pub(super) fn all(args: &FleetArgs) -> Result<Vec<FlagWorker>, FleetFlagError> {
    let proxy = &args.proxy;
    let mut workers = Vec::new();
    for flag in &args.worker {
        workers.push(worker(flag)?);
    }
    workers.extend(args.mixed.iter().map(|url| FlagWorker::new(url, Role::Mixed)));
    workers.extend(listed(
        "mixed",
        &proxy.mixed_hosts,
        &proxy.mixed_ports,
        Role::Mixed,
    )?);
    workers.extend(prefill(&args.prefill)?);
    workers.extend(listed(
        "prefiller",
        &proxy.prefiller_hosts,
        &proxy.prefiller_ports,
        Role::Prefill,
    )?);
    workers.extend(args.decode.iter().map(|url| FlagWorker::new(url, Role::Decode)));
    workers.extend(listed(
        "decoder",
        &proxy.decoder_hosts,
        &proxy.decoder_ports,
        Role::Decode,
    )?);
    Ok(workers)
}

/// Parses `URL[,KEY=VALUE]...`.
fn worker(flag: &str) -> Result<FlagWorker, FleetFlagError> {
    let mut parts = flag.split(',');
    let mut worker = FlagWorker::new(parts.next().unwrap_or_default(), Role::Mixed);
    for option in parts {
        match option.split_once('=') {
            Some((key @ ("kv-events" | "kv-replay"), endpoint)) => {
                worker.keys.push((key.to_owned(), endpoint.to_owned()));
            }
            _ => {
                return Err(FleetFlagError::UnknownOption {
                    option: option.to_owned(),
                    flag: flag.to_owned(),
                });
            }
        }
    }
    Ok(worker)
}

/// Parses URLs, each followed by the port of its bootstrap server, `none`, or neither.
fn prefill(values: &[String]) -> Result<Vec<FlagWorker>, FleetFlagError> {
    let mut workers: Vec<FlagWorker> = Vec::new();
    let mut is_open = false;
    for value in values {
        let is_none = value.eq_ignore_ascii_case("none");
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        if !is_none && !is_number {
            // A host alone is more likely a mistyped port.
            if !value.contains(':') {
                return Err(FleetFlagError::NeitherUrlNorPort(value.clone()));
            }
            workers.push(FlagWorker::new(value, Role::Prefill));
            is_open = true;
            continue;
        }
        let Some(worker) = workers.last_mut().filter(|_| is_open) else {
            return Err(FleetFlagError::StrayBootstrap(value.clone()));
        };
        is_open = false;
        if is_number {
            let port = value.parse().ok().filter(|&port: &u16| port > 0);
            let port = port.ok_or_else(|| FleetFlagError::BootstrapPort(value.clone()))?;
            worker.bootstrap = Some(port);
        }
    }
    Ok(workers)
}

/// Parses lists of hosts and ports, separated by commas.
fn listed(
    kind: &'static str,
    hosts: &Option<String>,
    ports: &Option<String>,
    role: Role,
) -> Result<Vec<FlagWorker>, FleetFlagError> {
    let (hosts, ports) = (items(hosts), items(ports));
    if hosts.len() != ports.len() {
        return Err(FleetFlagError::Lengths {
            kind,
            hosts: hosts.len(),
            ports: ports.len(),
        });
    }
    let workers = hosts
        .iter()
        .zip(&ports)
        .map(|(host, &port)| match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok(FlagWorker::new(&format!("{host}:{number}"), role)),
            _ => Err(FleetFlagError::Port {
                kind,
                port: port.to_owned(),
            }),
        });
    workers.collect()
}

fn items(list: &Option<String>) -> Vec<&str> {
    let items = list.iter().flat_map(|list| list.split(','));
    items.map(str::trim).filter(|item| !item.is_empty()).collect()
}
