//! Place of a source's answers: exactly one of five keys, with the keys that belong to it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::kubernetes::{self, KubernetesConfig};
use super::server_url::{FILE, base_url};
use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;
use crate::file::{NamedFile, read_file};
use crate::key::{self, KeySource};

/// Keys of which a source has exactly one.
const PLACES: [&str; 5] = ["dns", "srv", "http-sd", "file-sd", "kubernetes"];
/// Longest name in DNS.
const LONGEST_NAME: usize = 255;
/// Longest URL of a server, in bytes.
const LONGEST_URL: usize = 2_048;

/// Place of the answers of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum DiscoveryPlace {
    /// A and AAAA records.
    Dns {
        /// The name.
        name: String,
        /// Port of the workers.
        port: u16,
        /// Server to query; `None` for the system's.
        server: Option<SocketAddr>,
    },
    /// SRV records.
    Srv {
        /// The name.
        name: String,
        /// Server to query; `None` for the system's.
        server: Option<SocketAddr>,
    },
    /// Prometheus' `http_sd`.
    HttpSd {
        /// `http://host:port` or `https://host:port`.
        url: String,
        /// Path and query.
        path: String,
        /// Location of the bearer token.
        bearer: Option<KeySource>,
        /// File of the authorities; `None` for those the system trusts.
        ca: Option<NamedFile>,
    },
    /// A file in Prometheus' `file_sd` shape, as written.
    FileSd(PathBuf),
    /// Objects of Kubernetes.
    Kubernetes(KubernetesConfig),
}

/// Reads the place. `None` if something is missing or wrong, which is reported.
pub(super) fn read(source: &mut Section<'_>, name: &str) -> Option<DiscoveryPlace> {
    let report = source.report();
    let found: Vec<Item<'_>> = PLACES.into_iter().filter_map(|key| source.item(key)).collect();
    let [place] = &found[..] else {
        let (span, code, message) = match found.get(1) {
            Some(second) => (
                second.key_span.clone(),
                Code::ConflictingKeys,
                format!("`{}` and `{}` exclude each other", found[0].key, second.key),
            ),
            None => (
                source.span().clone(),
                Code::MissingKey,
                format!("`[discovery.{name}]` does not name the place of its workers"),
            ),
        };
        let help =
            "write one of `dns`, `srv`, `http-sd`, `file-sd` and `kubernetes`; add another source for more";
        report.push(Problem::new(code, &span, message).help(help));
        read_rest(source, None);
        return None;
    };
    let rest = read_rest(source, Some(&*place.key));
    match &*place.key {
        "dns" => {
            let name = dns_name(place)?;
            let port = match rest.port {
                Some(port) => port?,
                None => {
                    let message = "`dns` needs `port`: address records have none";
                    let problem = Problem::new(Code::MissingKey, &place.key_span, message);
                    report.push(problem.help("add port = 8000, or write `srv` for records with ports"));
                    return None;
                }
            };
            let server = rest.server;
            Some(DiscoveryPlace::Dns { name, port, server })
        }
        "srv" => Some(DiscoveryPlace::Srv {
            name: dns_name(place)?,
            server: rest.server,
        }),
        "http-sd" => {
            let (url, path) = server_url(place)?;
            Some(DiscoveryPlace::HttpSd {
                url,
                path,
                bearer: rest.bearer,
                ca: rest.ca,
            })
        }
        "file-sd" => read_file(place, FILE).map(|file| DiscoveryPlace::FileSd(file.path)),
        _ => kubernetes::read(place).map(DiscoveryPlace::Kubernetes),
    }
}

/// Keys that belong to some places.
#[derive(Debug, Default)]
struct PlaceKeys {
    /// `Some(None)` if it is invalid.
    port: Option<Option<u16>>,
    server: Option<SocketAddr>,
    bearer: Option<KeySource>,
    ca: Option<NamedFile>,
}

/// Reads the keys that belong to some places, and reports those that do not belong to this one.
fn read_rest(source: &mut Section<'_>, place: Option<&str>) -> PlaceKeys {
    let mut keys = PlaceKeys::default();
    let mut of = |key: &'static str, places: &[&str]| {
        let item = source.item(key)?;
        if place.is_some_and(|place| !places.contains(&place)) {
            let message = format!("`{key}` has no effect without `{}`", places.join("` or `"));
            let problem = Problem::new(Code::NeedsKey, &item.key_span, message);
            item.report.push(problem.help("leave it out"));
        }
        Some(item)
    };
    let (port, server) = (of("port", &["dns"]), of("dns-server", &["dns", "srv"]));
    let (bearer, ca) = (of("bearer", &["http-sd"]), of("ca", &["http-sd"]));
    let ports = 1..=u64::from(u16::MAX);
    keys.port = port.map(|item| item.count(&ports).and_then(|port| u16::try_from(port).ok()));
    keys.server = server.and_then(|item| dns_server(&item));
    keys.bearer = bearer.and_then(|item| key::read(&item));
    keys.ca = ca.and_then(|item| read_file(&item, FILE));
    keys
}

fn dns_name(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    let is_name = !text.text.is_empty()
        && text.text.len() <= LONGEST_NAME
        && text
            .text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        let message = format!("`{}` is not a name in DNS", without_user(text.text));
        let problem = Problem::new(Code::InvalidAddress, &text.span, message);
        item.report
            .push(problem.help("write a host name, for example \"engines.example.org\""));
        return None;
    }
    Some(text.text.to_owned())
}

fn dns_server(item: &Item<'_>) -> Option<SocketAddr> {
    let text = item.text()?;
    if let Ok(address) = text.text.parse::<SocketAddr>() {
        return Some(address);
    }
    if let Ok(address) = text.text.parse() {
        return Some(SocketAddr::new(address, 53));
    }
    let message = format!("`{}` is not the address of a DNS server", without_user(text.text));
    let problem = Problem::new(Code::InvalidAddress, &text.span, message);
    item.report
        .push(problem.help("write an IP address, with or without a port, for example \"10.0.0.2:53\""));
    None
}

/// Reads a URL into its base and its path with the query.
fn server_url(item: &Item<'_>) -> Option<(String, String)> {
    let text = item.text()?;
    let host = text.text.find("://").map_or(0, |at| at + 3);
    let path = text.text[host..]
        .find(['/', '?'])
        .map_or(text.text.len(), |at| host + at);
    let (base, path) = text.text.split_at(path);
    let is_path = |byte: u8| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(&byte);
    if !path.bytes().all(is_path) || text.text.len() > LONGEST_URL {
        let message = format!(
            "the path of `{}` is too long, or has a character that no path has",
            item.key
        );
        let problem = Problem::new(Code::InvalidAddress, &text.span, message);
        item.report.push(problem.help("write other characters as %XX"));
        return None;
    }
    let base = base_url(base, &text, item.report)?;
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    Some((base, path))
}
