//! `conductor simulate` as typed. It is acted on in `simulate`.

use std::path::PathBuf;

use clap::Args;
use simulator::Mix;

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The policies: files, or names of built-in ones; none stands for all built-in ones that place requests. Parameters may follow, as
    /// JSON: `cache-aware={"backlog-price":0.5}`.
    #[arg(value_name = "POLICY")]
    pub policies: Vec<String>,

    /// Requests to place: a file in the format of Mooncake's traces, one JSON object a line. None: `--mix`.
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    pub trace: Option<PathBuf>,

    /// Requests to make up instead, of this kind.
    #[arg(long, value_name = "KIND", default_value = "conversation")]
    pub mix: Mix,

    /// How many requests: the first of a trace, or those to make up.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: Option<u32>,

    /// Play arrivals so many times as fast, one run for each.
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1")]
    pub speeds: Vec<f64>,

    /// Spread arrivals that a trace gives the same time over the time to the next.
    #[arg(long)]
    pub spread: bool,

    /// How many workers. With --decode these compute prompts only; else they do all.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub workers: u32,

    /// Workers that write the answers to prompts which others computed.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub decode: u32,

    /// Only compute prompts, one after the other, and write no answers: the model of published replays.
    #[arg(long, conflicts_with = "decode")]
    pub prefill_only: bool,

    /// What a worker's cache holds, in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 3_000_000)]
    pub cache_tokens: u64,

    /// When a cached prefix is brought from another worker: `off`, `cheapest`, or where it is more than so many times as long as the
    /// worker's own.
    #[arg(long, value_name = "RULE", default_value = "off")]
    pub fetch: String,

    /// How late a router learns what an engine has cached, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub event_lag_ms: u64,

    /// Seeds everything that is drawn by lot.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// A request is of use if its first token comes within so many seconds,
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub ttft_limit_s: f64,

    /// and the mean of the longest tenth of the times between its tokens is so many milliseconds at most.
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub tbt_limit_ms: f64,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}
