//! Warnings of exposed listeners: reachable from other machines, and without a key or TLS. The router starts all the
//! same: only its owner can judge if a network is trusted.

use std::net::{IpAddr, SocketAddr};

use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::Problem;
use crate::document::value::Item;
use crate::tls::ServerTlsConfig;

/// Protection of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// None: every caller may do everything.
    None,
    /// A key, sent over a plain connection.
    PlainKey,
    /// A key over TLS, or client certificates.
    Tls,
}

impl Protection {
    pub(crate) fn of(has_key: bool, tls: Option<&ServerTlsConfig>) -> Self {
        match (has_key, tls) {
            (true, Some(_)) => Self::Tls,
            (true, None) => Self::PlainKey,
            (false, Some(tls)) if tls.client_ca.is_some() => Self::Tls,
            (false, _) => Self::None,
        }
    }
}

/// Texts of a warning about an exposed listener.
struct Exposed {
    what: &'static str,
    risk: &'static str,
    key: &'static str,
    tls: &'static str,
}

const ADMIN: Exposed = Exposed {
    what: "the admin pages",
    risk: "anyone there can add workers and change policies without a key",
    key: "set `admin-api-key` of [server], or listen on 127.0.0.1",
    tls: "set [server.admin-tls], or listen on 127.0.0.1",
};

const INDEXER: Exposed = Exposed {
    what: "the indexer",
    risk: "anyone there can make Conductor connect to any endpoint without a key",
    key: "set `api-key-file` of [indexer], or listen on 127.0.0.1",
    tls: "set [indexer.tls], or listen on 127.0.0.1",
};

/// Warns of the admin listener at `address` if other machines can reach it. `item` is the key with the address.
pub(crate) fn report_admin(item: &Item<'_>, address: SocketAddr, protection: Protection) {
    report(item, address, protection, &ADMIN);
}

/// Warns of the indexer's listener in the same way.
pub(crate) fn report_indexer(item: &Item<'_>, address: SocketAddr, protection: Protection) {
    report(item, address, protection, &INDEXER);
}

/// Reads `admin-hosts`: names or literals without ports.
pub(crate) fn read_hosts(item: &Item<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for text in item.text_or_texts().unwrap_or_default() {
        let is_literal = text.text.parse::<IpAddr>().is_ok();
        let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !text.text.is_empty() && text.text.bytes().all(is_named);
        if is_name || is_literal {
            hosts.push(text.text.to_owned());
            continue;
        }
        let message = format!("`{}` is not the name of a host", without_user(text.text));
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, message)
                .help("write it as clients send it in `Host`, without a port, for example \"ops.example\""),
        );
    }
    hosts
}

fn report(item: &Item<'_>, address: SocketAddr, protection: Protection, exposed: &Exposed) {
    if address.ip().is_loopback() {
        return;
    }
    let (code, risk, help) = match protection {
        Protection::None => (Code::OpenListener, exposed.risk, exposed.key),
        Protection::PlainKey => (
            Code::PlainListener,
            "without TLS the network there can read the key",
            exposed.tls,
        ),
        Protection::Tls => return,
    };
    let message = format!("other machines can reach {} on {address}: {risk}", exposed.what);
    item.report
        .push(Problem::new(code, &item.span, message).help(help));
}
