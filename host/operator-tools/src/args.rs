//! Arguments of the commands that show and change running routers.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

/// Address of a router on this machine with the default ports.
pub(crate) const USUAL_ADMIN: &str = "http://127.0.0.1:8081";

/// Addresses of the routers, and the output format.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Router")]
pub struct RouterArgs {
    /// Admin listener of a router; several separated by commas, or the flag again [default: http://127.0.0.1:8081].
    #[arg(long, value_name = "URL", env = "CONDUCTOR_ADMIN", value_delimiter = ',')]
    pub admin: Vec<String>,

    /// File with the admin key [default: the environment variable ADMIN_API_KEY].
    #[arg(long, value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,

    /// PEM file with the authorities of https routers [default: those that the system trusts].
    #[arg(long, value_name = "FILE", env = "CONDUCTOR_ADMIN_CA")]
    pub admin_ca: Option<PathBuf>,

    /// PEM file with a client certificate and its key, for routers with `client-ca` in [server.admin-tls].
    #[arg(long, value_name = "FILE")]
    pub admin_cert: Option<PathBuf>,

    /// Output format.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: OutputFormat,

    /// Print JSON, like `--output json`.
    #[arg(long, conflicts_with = "output")]
    pub json: bool,

    /// Print each query of a router with its status and time on standard error.
    #[arg(long, short)]
    pub verbose: bool,
}

/// Output format of a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for people.
    #[default]
    Table,
    /// The router's JSON; with several routers, an array with one object each.
    Json,
}

impl RouterArgs {
    /// Returns true if the output is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json || self.output == OutputFormat::Json
    }

    /// Returns the addresses of the routers.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let named = self.admin.iter().map(|address| address.trim());
        let named: Vec<String> = named
            .filter(|address| !address.is_empty())
            .map(with_scheme)
            .collect();
        if named.is_empty() {
            return vec![USUAL_ADMIN.to_owned()];
        }
        named
    }
}

/// Returns an address as a URL without an ending slash.
fn with_scheme(address: &str) -> String {
    let address = address.trim_end_matches('/');
    match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    }
}

/// Repetition of a live command.
#[derive(Debug, Default, Clone, Args)]
pub struct WatchArgs {
    /// Show it again and again, until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,

    /// Pause between two times, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval, requires = "watch")]
    pub interval: f64,

    /// End after so many times.
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct FleetStatusArgs {
    /// Repetition.
    #[command(flatten)]
    pub watch: WatchArgs,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `workers`.
#[derive(Debug, Args)]
pub struct WorkersArgs {
    /// Show only this pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,

    /// Repetition.
    #[command(flatten)]
    pub watch: WatchArgs,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `feeds` and `trials`.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Repetition.
    #[command(flatten)]
    pub watch: WatchArgs,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Name of the policy in the configuration [default: all].
    pub name: Option<String>,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy rollback` and `policy resume`.
#[derive(Debug, Args)]
pub struct ChangePolicyArgs {
    /// Name of the policy in the configuration.
    pub name: String,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy promote` and `policy retract`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// Name of the policy in the configuration.
    pub name: String,

    /// Number of the route, from 1; needed only if it is ambiguous.
    #[arg(long, value_name = "N")]
    pub route: Option<usize>,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `drain` and `resume`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Worker: its name, or POOL/NAME.
    pub worker: String,

    /// Pool of the worker; needed only if several pools have a worker of that name.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,

    /// Reason, shown among the changes of the dashboard.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Wait for the end of a drain.
#[derive(Debug, Args)]
pub struct DrainWaitArgs {
    /// Worker and router.
    #[command(flatten)]
    pub drain: DrainArgs,

    /// Wait until the worker has finished its requests. Exit code 1 if it has not within --timeout.
    #[arg(long)]
    pub wait: bool,

    /// Longest wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = interval, requires = "wait")]
    pub timeout: f64,
}

/// Arguments of `requests`.
#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Print requests as they end, until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,

    /// Number of requests, newest first, at most 200; with --follow, end after so many.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub count: Option<u16>,

    /// Selection.
    #[command(flatten)]
    pub filter: RequestFilterArgs,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Outcomes of requests, as in `conductor_requests_total`, and `open`.
pub const OUTCOMES: [&str; 18] = [
    "complete",
    "client-left",
    "upstream-error",
    "shut-down",
    "idle-timeout",
    "first-byte-timeout",
    "unreachable",
    "rejected",
    "queue-full",
    "queue-timeout",
    "invalid",
    "unauthorized",
    "limited",
    "request-timeout",
    "shed",
    "rejected-early",
    "bodies-full",
    "open",
];

/// Selection of requests. An absent part selects every request.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Selection")]
pub struct RequestFilterArgs {
    /// Pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,

    /// Worker that answers or computes the prompt.
    #[arg(long, value_name = "WORKER")]
    pub worker: Option<String>,

    /// Policy that decided last.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,

    /// Model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Outcome, such as `complete` or `unreachable`; `open` for running requests.
    #[arg(long, value_name = "OUTCOME", value_parser = PossibleValuesParser::new(OUTCOMES), hide_possible_values = true)]
    pub outcome: Option<String>,

    /// Requests of at least this duration, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub slower: Option<f64>,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// End after so many updates.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_a_scheme_and_lose_slashes_and_an_empty_list_is_this_machine() {
        let addresses = |admin: &[&str]| {
            let admin = admin.iter().map(|address| (*address).to_owned()).collect();
            RouterArgs {
                admin,
                ..RouterArgs::default()
            }
            .addresses()
        };
        assert_eq!(addresses(&["", " "]), [USUAL_ADMIN]);
        assert_eq!(
            addresses(&["a:1", "https://b/base/"]),
            ["http://a:1", "https://b/base"]
        );
    }
}
