//! Source of the requests: a recording, or a generator with a seed.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use simulator::{Mix, Trace};

use super::recorded::RecordedTrace;
use crate::args::SimulateArgs;

/// Maximum file size: some two million requests.
const MOST_BYTES: u64 = 1 << 30;

/// Source of a trace.
#[derive(Debug)]
pub(super) enum Source {
    /// A file, as it was read.
    RecordedTrace {
        /// Requests, at the times of the recording.
        trace: Arc<Trace>,
        /// True if rounded arrivals of the recording are drawn with each seed.
        spread: bool,
    },
    /// Mix that is generated with each seed.
    Made {
        mix: Mix,
        /// Number of requests; `None` for the mix's default.
        requests: Option<usize>,
        /// Set if arrivals are spread, as above.
        spread: bool,
        /// Tenants of the sessions, if they have any.
        tenants: Option<u32>,
    },
}

impl Source {
    pub(super) fn of(args: &SimulateArgs, recorded: Option<&RecordedTrace>) -> anyhow::Result<Self> {
        let read_trace = |mut trace: Trace, spread| {
            if let Some(tenants) = args.tenants {
                trace.assign_tenants(tenants, args.seed);
            }
            Self::RecordedTrace {
                trace: Arc::new(trace),
                spread,
            }
        };
        if let Some(recorded) = recorded {
            return Ok(read_trace(recorded.recording.trace.clone(), false));
        }
        let (requests, spread) = (args.requests.map(|requests| requests as usize), args.spread);
        let Some(path) = &args.trace else {
            return Ok(Self::Made {
                mix: args.mix,
                requests,
                spread,
                tenants: args.tenants,
            });
        };
        let trace = read(path)?;
        let trace = match requests {
            Some(requests) => trace.first(requests),
            None => trace,
        };
        Ok(read_trace(trace, spread))
    }

    /// Returns the requests of this seed.
    pub(super) fn trace(&self, seed: u64) -> Arc<Trace> {
        let (mut trace, spread) = match self {
            Self::RecordedTrace { trace, spread: false } => return Arc::clone(trace),
            Self::RecordedTrace { trace, spread: true } => (Trace::clone(trace), true),
            Self::Made {
                mix,
                requests,
                spread,
                tenants,
            } => {
                let mut options = mix.usual(seed);
                options.requests = requests.unwrap_or(options.requests);
                let mut trace = mix.generate(&options);
                if let Some(tenants) = tenants {
                    trace.assign_tenants(*tenants, seed);
                }
                (trace, *spread)
            }
        };
        if spread {
            trace.spread(seed);
        }
        Arc::new(trace)
    }

    /// Returns a sentence about the difference between seeds.
    pub(super) fn varies(&self) -> &'static str {
        match self {
            Self::Made { .. } => {
                "Each seed generates other requests of the mix, and makes other random choices."
            }
            Self::RecordedTrace { spread: true, .. } => {
                "Each seed spreads the arrivals differently; the requests are the same, so an interval does not cover other traffic."
            }
            Self::RecordedTrace { spread: false, .. } => {
                "Each seed makes other random choices; the requests are the same, so an interval does not cover other traffic."
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Trace> {
    let attempt = || format!("failed to read the trace `{}`", path.display());
    let file = fs::File::open(path).with_context(attempt)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(attempt)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!(
            "{}: it has more than {MOST_BYTES} bytes; cut it into parts",
            attempt()
        );
    }
    let text = String::from_utf8(bytes).with_context(attempt)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Trace::from_mooncake(&name, &text)
        .map_err(|error| anyhow!("failed to read the trace `{}`: {error}", path.display()))
}
