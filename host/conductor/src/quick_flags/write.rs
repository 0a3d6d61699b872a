//! Writing what the flags mean.

use std::fmt::Write as _;

use routing::Role;

use super::Meaning;
use super::places::Place;
use crate::import::quoted;

pub(super) fn toml(meaning: &Meaning<'_>) -> String {
    let mut out = String::from("# The configuration these flags mean.\n");
    ignored(&mut out, meaning);
    server(&mut out, meaning);
    pool(&mut out, meaning);
    for place in &meaning.places {
        worker(&mut out, place);
    }
    route(&mut out, meaning);
    out
}

/// Says what came to nothing, and why.
fn ignored(out: &mut String, meaning: &Meaning<'_>) {
    let proxy = &meaning.args.proxy;
    if proxy.retry_delay.is_some() {
        out.push_str(
            "# --retry_delay is not used: another worker is tried at once, and the one that failed rests.\n",
        );
    }
    if proxy.mooncake_store_host.is_some() || proxy.mooncake_store_port.is_some() {
        out.push_str(
            "# --mooncake_store_host and --mooncake_store_port are not used: the store's clients are the workers. Its master\n\
             # publishes what it holds elsewhere (--enable_kv_events): add a [stores.NAME] with that address to follow it.\n",
        );
    }
    let decide_nothing = meaning.dialect.is_none() && meaning.args.dialect.is_some();
    if decide_nothing {
        out.push_str("# --dialect is not used: nothing is split.\n");
    }
}

fn server(out: &mut String, meaning: &Meaning<'_>) {
    if meaning.listen.is_none() && meaning.attempts.is_none() {
        return;
    }
    out.push_str("[server]\n");
    if let Some(listen) = meaning.listen {
        let _ = writeln!(out, "listen = \"{listen}\"");
        let _ = writeln!(out, "admin-listen = \"127.0.0.1:{}\"", meaning.admin_port);
    }
    if let Some(attempts) = meaning.attempts {
        let _ = writeln!(
            out,
            "# The first try, and --max_retries more.\nattempts = {attempts}"
        );
    }
    out.push('\n');
}

fn pool(out: &mut String, meaning: &Meaning<'_>) {
    if !meaning.sends_key && meaning.dialect.is_none() {
        return;
    }
    out.push_str("[pools.default]\n");
    if meaning.sends_key {
        out.push_str("# It is set: sent to the workers in place of a client's own key.\n");
        out.push_str("authorization = { env = \"OPENAI_API_KEY\" }\n");
    }
    if let Some(dialect) = meaning.dialect {
        let _ = writeln!(out, "pd = {{ dialect = {} }}", quoted(dialect));
    }
    out.push('\n');
}

fn worker(out: &mut String, place: &Place) {
    let _ = writeln!(out, "[[pools.default.workers]]\nurl = {}", quoted(&place.url));
    if place.role != Role::Mixed {
        let _ = writeln!(out, "role = \"{}\"", place.role.as_str());
    }
    if let Some(url) = place.bootstrap_url() {
        let _ = writeln!(out, "bootstrap = {}", quoted(&url));
    }
    for (key, value) in &place.keys {
        let _ = writeln!(out, "{key} = {}", quoted(value));
    }
    out.push('\n');
}

fn route(out: &mut String, meaning: &Meaning<'_>) {
    let policies = [
        ("policy", Some(meaning.policy)),
        ("prefill-policy", meaning.args.prefill_policy.as_deref()),
        ("decode-policy", meaning.args.decode_policy.as_deref()),
    ];
    out.push_str("[[routes]]\npool = \"default\"\n");
    for (key, policy) in policies {
        if let Some(policy) = policy {
            let _ = writeln!(out, "{key} = {}", quoted(policy));
        }
    }
}
