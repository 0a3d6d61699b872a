//! Listeners that others than their operators can reach, and that change things without a key. The router starts all the same:
//! only its owner knows whether a network can be trusted.

use std::net::{IpAddr, SocketAddr};

use crate::code::Code;
use crate::report::Problem;
use crate::value::Item;

/// Warns of the admin listener at `address`, where other machines can reach it. `item` is the key that names the address.
pub(crate) fn report_open_admin(item: &Item<'_>, address: SocketAddr) {
    report_open(
        item,
        address,
        "the admin pages",
        "anyone there can add workers and change policies without a key",
        "set `admin-api-key` of [server], or listen on 127.0.0.1",
    );
}

/// Warns of the indexer's listener, likewise.
pub(crate) fn report_open_indexer(item: &Item<'_>, address: SocketAddr) {
    report_open(
        item,
        address,
        "the indexer",
        "anyone there can make Conductor connect to any endpoint without a key",
        "set `api-key-file` of [indexer], or listen on 127.0.0.1",
    );
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
        let message = format!("`{}` is not the name of a host", text.text);
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, message)
                .help("write it as clients send it in `Host`, without a port, for example \"ops.example\""),
        );
    }
    hosts
}

fn report_open(item: &Item<'_>, address: SocketAddr, what: &str, risk: &str, help: &str) {
    if address.ip().is_loopback() {
        return;
    }
    let message = format!("other machines can reach {what} on {address}: {risk}");
    item.report
        .push(Problem::new(Code::OpenListener, &item.span, message).help(help));
}
