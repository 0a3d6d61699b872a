//! `conductor simulate` as typed. It is acted on in `simulate`.

mod values;

use std::path::PathBuf;

use clap::Args;
use clap::builder::ArgPredicate;
use serde::Serialize;
use simulator::Mix;

use self::values::Fetch;
pub(crate) use self::values::{Costs, KnowledgeKind, OrderKind, Outage, ProfileName};

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The policies: files, or names of built-in ones; none stands for all built-in ones that place requests. Parameters may follow, as
    /// JSON: `cache-aware={"backlog-price":0.5}`. With --log the policy that decided comes before them, and none stands for it alone.
    #[arg(value_name = "POLICY")]
    pub policies: Vec<String>,

    /// Requests to place: a file in the format of Mooncake's traces, one JSON object a line. None: `--mix`.
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    pub trace: Option<PathBuf>,

    /// Requests that a router recorded, its workers, and what its requests cost: a decision log, several files in the order in which
    /// they were written. Needs `prompt-blocks` in `[record]`.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["trace", "mix"])]
    pub log: Vec<PathBuf>,

    /// Of a log of several pools, which.
    #[arg(long, value_name = "NAME", requires = "log")]
    pub pool: Option<String>,

    /// Requests to make up instead, of this kind.
    #[arg(long, value_name = "KIND", default_value = "conversation")]
    pub mix: Mix,

    /// How many requests: the first of a trace, or those to make up.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: Option<u32>,

    /// Play arrivals so many times as fast, one run for each.
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1")]
    pub speeds: Vec<f64>,

    /// Spread arrivals that a trace gives the same time over the time to the next. Those of a mix are spread already.
    #[arg(long, requires = "trace")]
    pub spread: bool,

    /// Seeds everything that is drawn by lot.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=0xFFFF_FFFF))]
    pub seed: u64,

    /// Make each run with so many seeds: --seed, the one after it, and so on. Each makes other requests of a mix and draws other lots; the
    /// requests of a trace are the same. Told are means with 95 % confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: u32,

    /// Compare each policy with the first, request by request.
    #[arg(long)]
    pub compare: bool,

    /// Write a page with plots too.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// A request is of use if its first token comes within so many seconds,
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub ttft_limit_s: f64,

    /// and the mean of the longest tenth of the times between its tokens is so many milliseconds at most.
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub tbt_limit_ms: f64,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,

    /// The engines.
    #[command(flatten)]
    pub cluster: SimulatedClusterArgs,

    /// What stands before them.
    #[command(flatten)]
    pub router: SimulatedRouterArgs,
}

/// The engines, and what work costs there.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Workers")]
pub struct SimulatedClusterArgs {
    /// How many workers. With --decode these compute prompts only; else they do all. None: 8, or those of the log.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub workers: Option<u32>,

    /// Workers that write the answers to prompts which others computed.
    #[arg(long, conflicts_with = "log", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub decode: u32,

    /// Only compute prompts, one after the other, and write no answers: the model of published replays.
    #[arg(long, conflicts_with = "log")]
    pub prefill_only: bool,

    /// What a worker's cache holds, in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 3_000_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub cache_tokens: u64,

    /// What it holds besides in host memory, of what no longer fits on the device.
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub host_cache_tokens: u64,

    /// What it holds besides on disk, of what no longer fits in memory.
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub disk_cache_tokens: u64,

    /// What work costs: `paper` (LLaMA3-70B on 8 A800, as Mooncake's paper has it), `mocker` (Dynamo's), `log` (fitted to
    /// that of --log, and then the default), or a file with a fitted profile.
    #[arg(
        long,
        value_name = "PROFILE",
        default_value = "paper",
        default_value_if("log", ArgPredicate::IsPresent, "log")
    )]
    pub profile: ProfileName,

    /// How many times as fast as the profile says each worker computes, the decode workers last. None: all as it says.
    #[arg(long, value_name = "FACTORS", value_delimiter = ',')]
    pub worker_speeds: Vec<f64>,

    /// The most tokens a worker's step takes, with parts of several prompts; 0: one whole prompt after the other, while answers wait. None:
    /// 8192 for workers that do all, else 0.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub chunk_tokens: Option<u32>,

    /// Which of the prompts that wait at a worker it computes next.
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = OrderKind::Fifo)]
    pub order: OrderKind,

    /// When a cached prefix is brought from another worker: `off`, `cheapest`, or where it is more than so many times as long as the
    /// worker's own.
    #[arg(long, value_name = "RULE", default_value = "off")]
    pub fetch: Fetch,

    /// Decode workers refuse a computed prompt with which their steps would take longer than --tbt-limit-ms. It was computed in vain.
    #[arg(long)]
    pub decode_refuses: bool,

    /// A worker, counted from 0 and the decode workers last, fails so many seconds after the first arrival, and is back after so many,
    /// or never: `3@600-900` or `3@600`. May be given several times.
    #[arg(long = "fail", value_name = "WORKER@S[-S]")]
    #[serde(rename = "fail")]
    pub failures: Vec<Outage>,
}

/// The router, and what it knows.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Router")]
pub struct SimulatedRouterArgs {
    /// So many routers, which requests go to in turn. Each knows of the others' only what the engines tell.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub replicas: u32,

    /// What requests are predicted to cost: `learnt` (by the server's models, from the requests of the run), `exact`, or `wrong:SIGMA`
    /// (exact, times e^N(0, SIGMA) for each request).
    #[arg(long, value_name = "COSTS", default_value = "learnt")]
    pub costs: Costs,

    /// What is known of caches: what engines publish, what was sent there lately, or nothing.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = KnowledgeKind::Events)]
    pub knowledge: KnowledgeKind,

    /// How late a router learns what an engine has cached, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub event_lag_ms: u64,

    /// The share of what engines publish that never comes, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub event_loss: f64,

    /// Most requests that a router holds at a time; with 0 none is.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub queue: u32,

    /// Longest that one is held, in seconds; with 0 none is.
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub queue_timeout_s: f64,
}
