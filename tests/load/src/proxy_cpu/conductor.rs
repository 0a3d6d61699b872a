//! Conductor as a system under test: its binary with a configuration for each set-up. Knows its file format and its
//! command line, and nothing of its crates.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::generate::PromptForm;

/// How Conductor is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    /// Round robin, no tokens.
    RoundRobin,
    /// Cache-aware on load alone: no tokens, so that it sees no matches.
    CacheAwareBlind,
    /// Cache-aware with prompts that are token ids already.
    CacheAwareIds,
    /// Cache-aware with tokens from a worker's `/tokenize`: one more request for each.
    CacheAwareTokenize,
    /// Every request split over nixl, both workers by round robin, no tokens.
    PairRoundRobin,
    /// The same, both by pd-pairing.
    PairPairing,
}

impl Setup {
    fn policy(self) -> &'static str {
        match self {
            Self::RoundRobin | Self::PairRoundRobin => "round-robin",
            Self::PairPairing => "pd-pairing",
            Self::CacheAwareBlind | Self::CacheAwareIds | Self::CacheAwareTokenize => "cache-aware",
        }
    }

    fn tokenize(self) -> &'static str {
        match self {
            Self::RoundRobin
            | Self::CacheAwareBlind
            | Self::CacheAwareIds
            | Self::PairRoundRobin
            | Self::PairPairing => "off",
            Self::CacheAwareTokenize => "worker",
        }
    }

    /// How the prompts of its load are given.
    pub(super) fn prompt(self) -> PromptForm {
        match self {
            Self::CacheAwareIds => PromptForm::Ids,
            Self::RoundRobin
            | Self::CacheAwareBlind
            | Self::CacheAwareTokenize
            | Self::PairRoundRobin
            | Self::PairPairing => PromptForm::Chat,
        }
    }

    fn splits(self) -> bool {
        matches!(self, Self::PairRoundRobin | Self::PairPairing)
    }
}

/// The command that runs it with a configuration written to `folder`.
pub(super) fn command(
    program: &Path,
    setup: Setup,
    folder: &Path,
    listen: SocketAddr,
    backends: &[SocketAddr],
) -> Result<Command> {
    let file = folder.join("conductor.toml");
    fs::write(&file, config(setup, listen, backends))
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&file).current_dir(folder);
    Ok(command)
}

fn config(setup: Setup, listen: SocketAddr, backends: &[SocketAddr]) -> String {
    let (policy, tokenize) = (setup.policy(), setup.tokenize());
    let mut text = format!(
        "[server]\nlisten = \"{listen}\"\nadmin-listen = \"off\"\n\n[pools.bench]\ntokenize = \"{tokenize}\"\n"
    );
    if setup.splits() {
        // Nobody may do it alone: every request is to be split.
        text += "pd = { dialect = \"nixl\", alone = false }\n";
    }
    for (address, role) in backends.iter().zip(["prefill", "decode"].iter().cycle()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[pools.bench.workers]]\nurl = \"http://{address}\"\n");
        if setup.splits() {
            let _ = writeln!(text, "role = \"{role}\"");
        }
    }
    text + &format!("\n[[routes]]\npool = \"bench\"\npolicy = \"{policy}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use conductor_config::{Config, Known};

    #[test]
    fn the_config_has_a_worker_per_backend_and_a_route_with_the_policy() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = config(Setup::CacheAwareTokenize, address(80), &[address(1), address(2)]);
        let expected = "[server]
listen = \"127.0.0.1:80\"
admin-listen = \"off\"

[pools.bench]
tokenize = \"worker\"

[[pools.bench.workers]]
url = \"http://127.0.0.1:1\"

[[pools.bench.workers]]
url = \"http://127.0.0.1:2\"

[[routes]]
pool = \"bench\"
policy = \"cache-aware\"
";
        assert_eq!(text, expected);
    }

    #[test]
    fn conductor_accepts_the_config_of_every_set_up() {
        let builtins = ["cache-aware", "pd-pairing", "round-robin"];
        let known = Known {
            builtins: &builtins,
            default_policy: builtins[0],
            files: &[],
        };
        for setup in [
            Setup::RoundRobin,
            Setup::CacheAwareBlind,
            Setup::CacheAwareIds,
            Setup::CacheAwareTokenize,
            Setup::PairRoundRobin,
            Setup::PairPairing,
        ] {
            let text = config(
                setup,
                SocketAddr::from(([127, 0, 0, 1], 80)),
                &[1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
            );
            let parsed = Config::parse("conductor.toml", &text, &known);
            assert!(parsed.is_ok(), "{text}\n{parsed:?}");
        }
    }
}
