//! The command line of the bench: see `tests/load/README.md`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use load::backends::Backends;
use load::backends::kv::Publishers;
use load::generate::{self, Plan, PromptForm, StreamOf, WindowMinimum};
use load::interrupt::Interrupt;
use load::loopback::Loopback;
use load::readiness::Waiting;
use load::soak::{self, chaos, churn};
use load::{affinity, bare_proxy};
use load::{figures, proxy_cpu};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Mock backends, a load generator, and the bench of a proxy's CPU per request. Loopback only.
#[derive(Debug, Parser)]
#[command(name = "load")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve mock OpenAI backends made for speed; prints one URL per line.
    Backends(BackendsArgs),
    /// Serve as the least proxy of hyper, to compare routers with.
    BareProxy {
        /// Address to listen on.
        listen: SocketAddr,
        /// Addresses of the backends.
        #[arg(required = true)]
        backends: Vec<SocketAddr>,
    },
    /// Send load to one loopback address and report rates and latencies.
    Generate(GenerateArgs),
    /// Compare the CPU per request of no proxy, nginx and Conductor in one run.
    ProxyCpu(proxy_cpu::Options),
    /// Measure Conductor and its peers in one run, and print one table.
    Figures(figures::Options),
    /// Inject random faults, and report the clients' view.
    Chaos(soak::Options),
    /// Change workers, policies and clients continuously, and check memory.
    Churn(soak::Options),
    /// Run every known attack beside ordinary requests, and check memory, latency, failures and `/health`.
    Hostile(soak::hostile::HostileOptions),
    /// Write the bench's tokenizer to a folder.
    Tokenizer {
        /// Output folder.
        into: PathBuf,
    },
}

#[derive(Debug, Args)]
struct BackendsArgs {
    /// Number of ports.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    count: u16,
    /// The first port; 0 takes any that are free.
    #[arg(long, default_value_t = 0)]
    base_port: u16,
    /// Microseconds between two tokens of a stream.
    #[arg(long, value_name = "US", default_value_t = 0)]
    spacing_us: u64,
    /// Poll instead of sleeping: a writer pays for no wake-up.
    #[arg(long)]
    poll: bool,
    /// Publish KV events too; the addresses follow the URLs, in their order.
    #[arg(long)]
    kv_events: bool,
    /// Pin to this core.
    #[arg(long)]
    core: Option<usize>,
    /// Be killed when the thread that started this process ends.
    #[arg(long)]
    with_parent: bool,
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// Target: `http://127.0.0.1:PORT`. Other machines are refused.
    #[arg(long)]
    target: Loopback,
    /// Form of the prompt.
    #[arg(long, value_enum, default_value_t = PromptForm::Chat)]
    prompt: PromptForm,
    /// The length of each request's body.
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// Request streams of this many tokens.
    #[arg(long, value_name = "TOKENS")]
    stream_tokens: Option<u32>,
    /// Number of keep-alive connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Open loop: requests per second, with latencies from the time each was due. Without: closed loop.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Seconds of load before the measured window.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warm_up_s: f64,
    /// Seconds of the measured window.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    window_s: f64,
    /// Seconds after which a request counts as failed.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    patience_s: f64,
    /// Poll instead of sleeping: the target pays for no wake-up.
    #[arg(long)]
    poll: bool,
    /// Pin to this core.
    #[arg(long)]
    core: Option<usize>,
    /// Also write the report to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Backends(args) => serve_backends(&args),
        Command::BareProxy { listen, backends } => {
            bare_proxy::serve(listen, &backends).map(|never| match never {})
        }
        Command::Generate(args) => send_load(&args),
        Command::ProxyCpu(options) => {
            Interrupt::listen().and_then(|interrupt| proxy_cpu::run(&options, &interrupt))
        }
        Command::Figures(options) => {
            Interrupt::listen().and_then(|interrupt| figures::run(&options, &interrupt))
        }
        Command::Chaos(options) => Interrupt::listen().and_then(|interrupt| chaos::run(&options, &interrupt)),
        Command::Churn(options) => Interrupt::listen().and_then(|interrupt| churn::run(&options, &interrupt)),
        Command::Hostile(options) => {
            Interrupt::listen().and_then(|interrupt| soak::hostile::run(&options, &interrupt))
        }
        Command::Tokenizer { into } => bench_vocabulary::write_tokenizer(&into)
            .with_context(|| format!("failed to write a tokenizer to `{}`", into.display())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve_backends(args: &BackendsArgs) -> Result<()> {
    if args.with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("failed to tie this process to its parent")?;
    }
    let interrupt = Interrupt::listen()?;
    args.core.map_or(Ok(()), affinity::pin_to)?;
    let mut backends = Backends::bind(
        args.count,
        args.base_port,
        Duration::from_micros(args.spacing_us),
        Waiting::poll_if(args.poll),
    )?;
    for address in backends.addresses() {
        println!("http://{address}");
    }
    if args.kv_events {
        let publishers = Publishers::start(args.count)?;
        for endpoint in publishers.endpoints() {
            println!("{endpoint}");
        }
    }
    std::io::stdout()
        .flush()
        .context("failed to print the addresses")?;
    backends.serve(|| interrupt.is_set())
}

fn send_load(args: &GenerateArgs) -> Result<()> {
    let seconds =
        |value| Duration::try_from_secs_f64(value).with_context(|| format!("`{value}` is no duration"));
    let plan = Plan {
        target: args.target,
        prompt: args.prompt,
        body_bytes: args.body_bytes,
        stream: args.stream_tokens.map(|tokens| StreamOf {
            tokens,
            spacing: None,
        }),
        connections: args.connections,
        rate: args.rate,
        bursts: false,
        warm_up: seconds(args.warm_up_s)?,
        window: seconds(args.window_s)?,
        minimum: WindowMinimum::default(),
        patience: seconds(args.patience_s)?,
        waiting: Waiting::poll_if(args.poll),
    };
    args.core.map_or(Ok(()), affinity::pin_to)?;
    let interrupt = Interrupt::listen()?;
    let report = generate::run(&plan, |_| Ok(()), || interrupt.is_set())?;
    print!("{}", report.to_text());
    if let Some(file) = &args.json {
        let json = format!("{:#}\n", report.to_json());
        std::fs::write(file, json).with_context(|| format!("failed to write `{}`", file.display()))?;
    }
    Ok(())
}
