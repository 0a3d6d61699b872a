//! Writer of the configuration's text.

use std::fmt::Write as _;

use routing::Role;

use super::FleetConfig;
use super::workers::FlagWorker;
use crate::toml_string::quoted;

pub(super) fn toml(fleet: &FleetConfig<'_>) -> String {
    let mut out = String::from("# The configuration these flags mean.\n");
    write_ignored(&mut out, fleet);
    write_server(&mut out, fleet);
    write_pool(&mut out, fleet);
    for worker in &fleet.workers {
        write_worker(&mut out, worker);
    }
    write_route(&mut out, fleet);
    out
}

/// Writes a comment for each flag that is not used, with the reason.
fn write_ignored(out: &mut String, fleet: &FleetConfig<'_>) {
    let proxy = &fleet.args.proxy;
    if proxy.retry_delay.is_some() {
        out.push_str(
            "# --retry_delay is not used: another worker is tried at once, and the failed one is ejected.\n",
        );
    }
    if proxy.mooncake_store_host.is_some() || proxy.mooncake_store_port.is_some() {
        out.push_str(
            "# --mooncake_store_host and --mooncake_store_port are not used: the store's clients are the workers. Its master\n\
             # publishes what it holds elsewhere (--enable_kv_events): add a [stores.NAME] with that address to follow it.\n",
        );
    }
    let is_dialect_unused = fleet.dialect.is_none() && fleet.args.dialect.is_some();
    if is_dialect_unused {
        out.push_str("# --dialect is not used: nothing is split.\n");
    }
}

fn write_server(out: &mut String, fleet: &FleetConfig<'_>) {
    if fleet.listen.is_none() && fleet.attempts.is_none() {
        return;
    }
    out.push_str("[server]\n");
    if let Some(listen) = fleet.listen {
        let _ = writeln!(out, "listen = \"{listen}\"");
        let _ = writeln!(out, "admin-listen = \"127.0.0.1:{}\"", fleet.admin_port);
    }
    if let Some(attempts) = fleet.attempts {
        let _ = writeln!(
            out,
            "# The first try, and --max_retries more.\nattempts = {attempts}"
        );
    }
    out.push('\n');
}

fn write_pool(out: &mut String, fleet: &FleetConfig<'_>) {
    if !fleet.sends_key && fleet.dialect.is_none() {
        return;
    }
    out.push_str("[pools.default]\n");
    if fleet.sends_key {
        out.push_str("# OPENAI_API_KEY is set: the workers get it in place of the client's own key.\n");
        out.push_str("authorization = { env = \"OPENAI_API_KEY\" }\n");
    }
    if let Some(dialect) = fleet.dialect {
        let _ = writeln!(out, "pd = {{ dialect = {} }}", quoted(dialect));
    }
    out.push('\n');
}

fn write_worker(out: &mut String, worker: &FlagWorker) {
    let _ = writeln!(out, "[[pools.default.workers]]\nurl = {}", quoted(&worker.url));
    if worker.role != Role::Mixed {
        let _ = writeln!(out, "role = \"{}\"", worker.role.as_str());
    }
    if let Some(url) = worker.bootstrap_url() {
        let _ = writeln!(out, "bootstrap = {}", quoted(&url));
    }
    for (key, value) in &worker.keys {
        let _ = writeln!(out, "{key} = {}", quoted(value));
    }
    out.push('\n');
}

fn write_route(out: &mut String, fleet: &FleetConfig<'_>) {
    let policies = [
        ("policy", Some(fleet.policy)),
        ("prefill-policy", fleet.args.prefill_policy.as_deref()),
        ("decode-policy", fleet.args.decode_policy.as_deref()),
    ];
    out.push_str("[[routes]]\npool = \"default\"\n");
    for (key, policy) in policies {
        if let Some(policy) = policy {
            let _ = writeln!(out, "{key} = {}", quoted(policy));
        }
    }
}
