//! The workers that the flags name, in whichever form.

use routing::Role;

use super::QuickFlagError;
use crate::cli::QuickArgs;

/// A worker named by a flag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// As given, with `http://` before it where nothing was.
    pub(super) url: String,
    pub(super) role: Role,
    /// The port of its bootstrap server, where it was given.
    pub(super) bootstrap: Option<u16>,
    /// Keys and their values besides these.
    pub(super) keys: Vec<(String, String)>,
}

impl Place {
    fn new(url: &str, role: Role) -> Self {
        let scheme = if url.contains("://") { "" } else { "http://" };
        Self {
            url: format!("{scheme}{}", url.trim_end_matches('/')),
            role,
            bootstrap: None,
            keys: Vec::new(),
        }
    }

    /// Where its bootstrap server is, if its port was given.
    pub(super) fn bootstrap_url(&self) -> Option<String> {
        let port = self.bootstrap?;
        let (scheme, rest) = self.url.split_once("://")?;
        // An address of IPv6 has colons of its own, within brackets.
        let start = rest.rfind(']').unwrap_or(0);
        let host = rest[start..]
            .find(':')
            .map_or(rest, |colon| &rest[..start + colon]);
        Some(format!("{scheme}://{host}:{port}"))
    }

    /// Whether one of its servers has this port, on whichever host.
    pub(super) fn has_port(&self, port: u16) -> bool {
        let own = self.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        own == Some(port) || self.bootstrap == Some(port)
    }
}

/// All of them: mixed ones first, then prefill, then decode.
pub(super) fn of(args: &QuickArgs) -> Result<Vec<Place>, QuickFlagError> {
    let proxy = &args.proxy;
    let mut places = Vec::new();
    for flag in &args.worker {
        places.push(worker(flag)?);
    }
    places.extend(args.mixed.iter().map(|url| Place::new(url, Role::Mixed)));
    places.extend(listed(
        "mixed",
        (&proxy.mixed_hosts, &proxy.mixed_ports),
        Role::Mixed,
    )?);
    places.extend(prefill(&args.prefill)?);
    let lists = (&proxy.prefiller_hosts, &proxy.prefiller_ports);
    places.extend(listed("prefiller", lists, Role::Prefill)?);
    places.extend(args.decode.iter().map(|url| Place::new(url, Role::Decode)));
    let lists = (&proxy.decoder_hosts, &proxy.decoder_ports);
    places.extend(listed("decoder", lists, Role::Decode)?);
    Ok(places)
}

/// `URL[,KEY=VALUE]...`
fn worker(flag: &str) -> Result<Place, QuickFlagError> {
    let mut parts = flag.split(',');
    let mut place = Place::new(parts.next().unwrap_or_default(), Role::Mixed);
    for option in parts {
        match option.split_once('=') {
            Some((key @ ("kv-events" | "kv-replay"), endpoint)) => {
                place.keys.push((key.to_owned(), endpoint.to_owned()));
            }
            _ => {
                return Err(QuickFlagError::UnknownOption {
                    option: option.to_owned(),
                    flag: flag.to_owned(),
                });
            }
        }
    }
    Ok(place)
}

/// URLs, each followed by the port of its bootstrap server or `none` or neither.
fn prefill(values: &[String]) -> Result<Vec<Place>, QuickFlagError> {
    let mut places: Vec<Place> = Vec::new();
    let mut is_open = false;
    for value in values {
        let is_none = value.eq_ignore_ascii_case("none");
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        if !is_none && !is_number {
            places.push(Place::new(value, Role::Prefill));
            is_open = true;
            continue;
        }
        let Some(place) = places.last_mut().filter(|_| is_open) else {
            return Err(QuickFlagError::StrayBootstrap(value.clone()));
        };
        is_open = false;
        if is_number {
            let port = value.parse().ok().filter(|&port: &u16| port > 0);
            let port = port.ok_or_else(|| QuickFlagError::BootstrapPort(value.clone()))?;
            place.bootstrap = Some(port);
        }
    }
    Ok(places)
}

/// Hosts and their ports, each separated by commas.
fn listed(
    kind: &'static str,
    (hosts, ports): (&Option<String>, &Option<String>),
    role: Role,
) -> Result<Vec<Place>, QuickFlagError> {
    let (hosts, ports) = (items(hosts), items(ports));
    if hosts.len() != ports.len() {
        return Err(QuickFlagError::Lengths {
            kind,
            hosts: hosts.len(),
            ports: ports.len(),
        });
    }
    let places = hosts
        .iter()
        .zip(&ports)
        .map(|(host, &port)| match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok(Place::new(&format!("{host}:{number}"), role)),
            _ => Err(QuickFlagError::Port {
                kind,
                port: port.to_owned(),
            }),
        });
    places.collect()
}

fn items(list: &Option<String>) -> Vec<&str> {
    let items = list.iter().flat_map(|list| list.split(','));
    items.map(str::trim).filter(|item| !item.is_empty()).collect()
}
