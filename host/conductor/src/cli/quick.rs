//! Flags that stand for a configuration file, as typed. What they mean is in `quick_flags`.

use std::net::SocketAddr;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgGroup, Args};

/// The flags that name workers: the others mean nothing without one of them.
pub(super) const FLEET: &str = "fleet";

/// What prefill and decode workers may hand over with.
const DIALECTS: [&str; 5] = ["auto", "nixl", "mooncake", "store", "sglang"];

/// A fleet without a file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Instead of a file", group = ArgGroup::new(FLEET).multiple(true))]
pub struct QuickArgs {
    /// A worker that does whole requests; repeat for more. `URL[,kv-events=tcp://HOST:PORT][,kv-replay=tcp://HOST:PORT]`; asked for them where they are absent.
    #[arg(long, value_name = "URL", group = FLEET)]
    pub worker: Vec<String>,

    /// Workers that do whole requests, beside prefill and decode workers or without them.
    #[arg(long, value_name = "URL", num_args = 1.., group = FLEET)]
    pub mixed: Vec<String>,

    /// Prefill workers, each followed by the port of its bootstrap server or `none` where that is not 8998.
    #[arg(long, value_names = ["URL", "BOOTSTRAP_PORT"], num_args = 1.., group = FLEET)]
    pub prefill: Vec<String>,

    /// Decode workers.
    #[arg(long, value_name = "URL", num_args = 1.., group = FLEET)]
    pub decode: Vec<String>,

    /// How prefill and decode workers hand over. Detected unless given; a store shows nothing, and must be.
    #[arg(long, value_parser = PossibleValuesParser::new(DIALECTS), requires = FLEET)]
    pub dialect: Option<String>,

    /// The policy of the one route these flags make: a built-in's name.
    #[arg(long, value_name = "NAME", requires = FLEET)]
    pub policy: Option<String>,

    /// The policy for prefill workers, instead.
    #[arg(long, value_name = "NAME", alias = "prefill_policy", requires = FLEET)]
    pub prefill_policy: Option<String>,

    /// The policy for decode workers, instead.
    #[arg(long, value_name = "NAME", alias = "decode_policy", requires = FLEET)]
    pub decode_policy: Option<String>,

    /// Where to listen. The admin pages are on the next free port of 127.0.0.1.
    #[arg(long, value_name = "ADDR", requires = FLEET)]
    pub listen: Option<SocketAddr>,

    /// The flags of Mooncake's proxies.
    #[command(flatten)]
    pub proxy: ProxyArgs,
}

/// The flags of Mooncake's C++ proxy, and those that the Python ones have in common with it.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "As Mooncake's proxies take them")]
pub struct ProxyArgs {
    /// Hosts of prefill workers, separated by commas.
    #[arg(long = "prefiller_hosts", value_name = "HOSTS", group = FLEET, requires = "prefiller_ports")]
    #[arg(aliases = ["prefiller-hosts", "prefiller_host", "prefiller-host"], conflicts_with_all = ["prefill", "decode"])]
    pub prefiller_hosts: Option<String>,

    /// Their ports, one for each.
    #[arg(long = "prefiller_ports", value_name = "PORTS", requires = "prefiller_hosts")]
    #[arg(aliases = ["prefiller-ports", "prefiller_port", "prefiller-port"])]
    pub prefiller_ports: Option<String>,

    /// Hosts of decode workers.
    #[arg(long = "decoder_hosts", value_name = "HOSTS", group = FLEET, requires = "decoder_ports")]
    #[arg(aliases = ["decoder-hosts", "decoder_host", "decoder-host"], conflicts_with_all = ["prefill", "decode"])]
    pub decoder_hosts: Option<String>,

    /// Their ports.
    #[arg(long = "decoder_ports", value_name = "PORTS", requires = "decoder_hosts")]
    #[arg(aliases = ["decoder-ports", "decoder_port", "decoder-port"])]
    pub decoder_ports: Option<String>,

    /// Hosts of workers that do whole requests.
    #[arg(long = "mixed_hosts", value_name = "HOSTS", group = FLEET, requires = "mixed_ports")]
    #[arg(aliases = ["mixed-hosts", "both_hosts", "both-hosts"])]
    pub mixed_hosts: Option<String>,

    /// Their ports.
    #[arg(long = "mixed_ports", value_name = "PORTS", requires = "mixed_hosts")]
    #[arg(aliases = ["mixed-ports", "both_ports", "both-ports"])]
    pub mixed_ports: Option<String>,

    /// Whether requests are split; all workers do whole requests if not.
    #[arg(long = "pd_enable", alias = "pd-enable", value_name = "BOOL", requires = FLEET)]
    #[arg(num_args = 0..=1, default_missing_value = "true", value_parser = yes_or_no())]
    pub pd_enable: Option<String>,

    /// The port to listen on: 8000 unless told, as those proxies have it; 8080 with nothing but `--worker`.
    #[arg(long, requires = FLEET, conflicts_with = "listen")]
    pub port: Option<u16>,

    /// The address to listen on; `localhost` is 127.0.0.1.
    #[arg(long, value_name = "ADDR", requires = FLEET, conflicts_with = "listen")]
    pub host: Option<String>,

    /// How often a request is tried again.
    #[arg(long = "max_retries", alias = "max-retries", value_name = "N", requires = FLEET)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=15))]
    pub max_retries: Option<u32>,

    /// Not used.
    #[arg(long = "retry_delay", alias = "retry-delay", value_name = "SECONDS", requires = FLEET)]
    pub retry_delay: Option<f64>,

    /// Not used.
    #[arg(long = "mooncake_store_host", alias = "mooncake-store-host", value_name = "HOST", requires = FLEET)]
    pub mooncake_store_host: Option<String>,

    /// Not used.
    #[arg(long = "mooncake_store_port", alias = "mooncake-store-port", value_name = "PORT", requires = FLEET)]
    pub mooncake_store_port: Option<u16>,
}

/// As gflags have it: the empty text is as good as nothing.
fn yes_or_no() -> PossibleValuesParser {
    let empty = PossibleValue::new("").hide(true);
    PossibleValuesParser::new(["true".into(), "false".into(), empty])
}

impl QuickArgs {
    /// Whether they name a worker.
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

    /// Whether they are those of another proxy, rather than Conductor's own.
    pub(crate) fn is_of_a_proxy(&self) -> bool {
        !(self.mixed.is_empty() && self.prefill.is_empty() && self.decode.is_empty()) || {
            let proxy = &self.proxy;
            proxy.prefiller_hosts.is_some() || proxy.decoder_hosts.is_some() || proxy.mixed_hosts.is_some()
        }
    }
}
