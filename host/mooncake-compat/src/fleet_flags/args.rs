//! Definitions of the flags for the command line's parser.

use std::net::SocketAddr;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgGroup, Args};

/// Group of the flags that name workers; the other flags require one of them.
pub const FLEET_GROUP: &str = "fleet";

/// Dialects between prefill and decode workers.
const DIALECTS: [&str; 5] = ["auto", "nixl", "mooncake-connector", "store", "sglang"];
/// Former name of a dialect. It is accepted and not listed in the help.
const FORMER_DIALECT: &str = "mooncake";

/// A fleet without a file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Instead of a file", group = ArgGroup::new(FLEET_GROUP).multiple(true))]
pub struct FleetArgs {
    /// Worker for prefill and decode; may be given several times.
    /// `URL[,kv-events=tcp://HOST:PORT][,kv-replay=tcp://HOST:PORT]`; Conductor queries the worker for absent
    /// endpoints.
    #[arg(long, value_name = "URL", num_args = 1.., group = FLEET_GROUP)]
    pub worker: Vec<String>,

    /// Workers for prefill and decode, with or without separate prefill and decode workers. Port and key as with
    /// `--prefill`.
    #[arg(long, value_name = "URL", num_args = 1.., group = FLEET_GROUP)]
    pub mixed: Vec<String>,

    /// Prefill workers. Each may be followed by the port of its bootstrap server or `none` [default: 8998]. With
    /// them, the router listens on port 8000 by default, and sends `OPENAI_API_KEY` of the environment to the
    /// workers.
    #[arg(long, value_names = ["URL", "BOOTSTRAP_PORT"], num_args = 1.., group = FLEET_GROUP)]
    pub prefill: Vec<String>,

    /// Decode workers. Port and key as with `--prefill`.
    #[arg(long, value_name = "URL", num_args = 1.., group = FLEET_GROUP)]
    pub decode: Vec<String>,

    /// Handover dialect between prefill and decode workers [default: detected]. `store` cannot be detected.
    #[arg(long, value_parser = dialects(), requires = FLEET_GROUP)]
    pub dialect: Option<String>,

    /// The policy of the one route these flags make: a built-in's name.
    #[arg(long, value_name = "NAME", requires = FLEET_GROUP)]
    pub policy: Option<String>,

    /// Policy for prefill workers.
    #[arg(long, value_name = "NAME", alias = "prefill_policy", requires = FLEET_GROUP)]
    pub prefill_policy: Option<String>,

    /// Policy for decode workers.
    #[arg(long, value_name = "NAME", alias = "decode_policy", requires = FLEET_GROUP)]
    pub decode_policy: Option<String>,

    /// Address to listen on [default: 127.0.0.1:8080; with prefill, decode or mixed workers 127.0.0.1:8000]. The
    /// admin listener has the next port of 127.0.0.1 that no worker of the flags has.
    #[arg(long, value_name = "ADDR", requires = FLEET_GROUP)]
    pub listen: Option<SocketAddr>,

    /// The flags of Mooncake's proxies.
    #[command(flatten)]
    pub proxy: MooncakeProxyArgs,
}

/// The flags of Mooncake's C++ proxy, and those that the Python ones have in common with it.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "As Mooncake's proxies take them")]
pub struct MooncakeProxyArgs {
    /// Hosts of prefill workers, separated by commas.
    #[arg(long = "prefiller_hosts", value_name = "HOSTS", group = FLEET_GROUP, requires = "prefiller_ports")]
    #[arg(aliases = ["prefiller-hosts", "prefiller_host", "prefiller-host"], conflicts_with_all = ["prefill", "decode"])]
    pub prefiller_hosts: Option<String>,

    /// Their ports, one for each.
    #[arg(long = "prefiller_ports", value_name = "PORTS", requires = "prefiller_hosts")]
    #[arg(aliases = ["prefiller-ports", "prefiller_port", "prefiller-port"])]
    pub prefiller_ports: Option<String>,

    /// Hosts of decode workers.
    #[arg(long = "decoder_hosts", value_name = "HOSTS", group = FLEET_GROUP, requires = "decoder_ports")]
    #[arg(aliases = ["decoder-hosts", "decoder_host", "decoder-host"], conflicts_with_all = ["prefill", "decode"])]
    pub decoder_hosts: Option<String>,

    /// Their ports.
    #[arg(long = "decoder_ports", value_name = "PORTS", requires = "decoder_hosts")]
    #[arg(aliases = ["decoder-ports", "decoder_port", "decoder-port"])]
    pub decoder_ports: Option<String>,

    /// Hosts of workers for prefill and decode.
    #[arg(long = "mixed_hosts", value_name = "HOSTS", group = FLEET_GROUP, requires = "mixed_ports")]
    #[arg(aliases = ["mixed-hosts", "both_hosts", "both-hosts"])]
    pub mixed_hosts: Option<String>,

    /// Their ports.
    #[arg(long = "mixed_ports", value_name = "PORTS", requires = "mixed_hosts")]
    #[arg(aliases = ["mixed-ports", "both_ports", "both-ports"])]
    pub mixed_ports: Option<String>,

    /// Split requests between prefill and decode workers; with `false` every worker serves whole requests.
    #[arg(long = "pd_enable", alias = "pd-enable", value_name = "BOOL", requires = FLEET_GROUP)]
    #[arg(num_args = 0..=1, default_missing_value = "true", value_parser = yes_or_no())]
    pub pd_enable: Option<String>,

    /// The port to listen on: 8000 by default, as for those proxies; 8080 with `--worker` only.
    #[arg(long, requires = FLEET_GROUP, conflicts_with = "listen")]
    pub port: Option<u16>,

    /// The address to listen on; `localhost` is 127.0.0.1.
    #[arg(long, value_name = "ADDR", requires = FLEET_GROUP, conflicts_with = "listen")]
    pub host: Option<String>,

    /// Retries per request.
    #[arg(long = "max_retries", alias = "max-retries", value_name = "N", requires = FLEET_GROUP)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=15))]
    pub max_retries: Option<u32>,

    /// Not used.
    #[arg(long = "retry_delay", alias = "retry-delay", value_name = "SECONDS", requires = FLEET_GROUP)]
    pub retry_delay: Option<f64>,

    /// Not used.
    #[arg(long = "mooncake_store_host", alias = "mooncake-store-host", value_name = "HOST", requires = FLEET_GROUP)]
    pub mooncake_store_host: Option<String>,

    /// Not used.
    #[arg(long = "mooncake_store_port", alias = "mooncake-store-port", value_name = "PORT", requires = FLEET_GROUP)]
    pub mooncake_store_port: Option<u16>,
}

/// Parses a boolean as gflags does: an empty value counts as absent.
fn dialects() -> PossibleValuesParser {
    let former = PossibleValue::new(FORMER_DIALECT).hide(true);
    PossibleValuesParser::new(DIALECTS.map(PossibleValue::new).into_iter().chain([former]))
}

fn yes_or_no() -> PossibleValuesParser {
    let empty = PossibleValue::new("").hide(true);
    PossibleValuesParser::new(["true".into(), "false".into(), empty])
}

impl FleetArgs {
    /// Returns true if no worker is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self {
            worker,
            mixed,
            prefill,
            decode,
            proxy,
            ..
        } = self;
        let hosts = [&proxy.prefiller_hosts, &proxy.decoder_hosts, &proxy.mixed_hosts];
        [worker, mixed, prefill, decode]
            .iter()
            .all(|urls| urls.is_empty())
            && hosts.iter().all(|hosts| hosts.is_none())
    }

    /// Returns true if a flag of the older proxies names a worker.
    pub(super) fn is_of_a_proxy(&self) -> bool {
        !(self.mixed.is_empty() && self.prefill.is_empty() && self.decode.is_empty()) || {
            let proxy = &self.proxy;
            proxy.prefiller_hosts.is_some() || proxy.decoder_hosts.is_some() || proxy.mixed_hosts.is_some()
        }
    }
}
