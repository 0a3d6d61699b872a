//! Conductor as a system under test: its binary with a configuration for each set-up. Knows its file format and its
//! command line, and nothing of its crates.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::system::Site;
use crate::generate::PromptForm;

/// Source of prompt tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokens {
    /// Nowhere: the policy sees loads and no matches.
    None,
    /// The prompts are token ids already.
    Given,
    /// A tokenizer of the router's own.
    Own,
    /// A worker's `/tokenize`: one more request for each.
    Worker,
}

/// Setup of Conductor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) policy: &'static str,
    pub(super) tokens: Tokens,
    /// Every request is split over nixl.
    pub(super) splits: bool,
    /// Logs at level warn instead of the default, info.
    pub(super) quiet: bool,
}

impl Setup {
    /// Returns the form of its load's prompts.
    pub(super) fn prompt(self) -> PromptForm {
        if self.tokens == Tokens::Given {
            PromptForm::Ids
        } else {
            PromptForm::Chat
        }
    }

    /// Returns `true` if the workers' KV events are followed: only tokens known to the bench can match.
    pub(super) fn has_index(self) -> bool {
        matches!(self.tokens, Tokens::Given | Tokens::Own)
    }

    fn tokenize(self) -> &'static str {
        match self.tokens {
            // A model of its own has its own tokenizer, whatever the pool's setting is.
            Tokens::None | Tokens::Given | Tokens::Own => "off",
            Tokens::Worker => "worker",
        }
    }
}

/// Returns the command that runs it with a configuration written to the site's folder.
pub(super) fn command(site: &Site<'_>, setup: Setup, listen: SocketAddr) -> Result<Command> {
    let file = site.folder.join("conductor.toml");
    let workers: Vec<_> = site.backends.iter().copied().zip(site.kv_events).collect();
    fs::write(&file, config(setup, listen, &workers, site.tokenizer))
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    let mut command = Command::new(site.conductor);
    command.arg("--config").arg(&file).current_dir(site.folder);
    Ok(command)
}

fn config(setup: Setup, listen: SocketAddr, workers: &[(SocketAddr, &String)], tokenizer: &Path) -> String {
    let tokenize = setup.tokenize();
    let mut text =
        format!("[server]\nlisten = \"{listen}\"\nadmin-listen = \"off\"\nmax-connections = 20_000\n");
    if setup.quiet {
        text += "\n[log]\nlevel = \"warn\"\n";
    }
    // Writing to a string cannot fail.
    if setup.tokens == Tokens::Own {
        let _ = write!(
            text,
            "\n[models.bench]\ntokenizer = \"{}\"\n",
            tokenizer.display()
        );
    }
    let _ = write!(text, "\n[pools.bench]\ntokenize = \"{tokenize}\"\n");
    if setup.splits {
        // No worker may do it alone: every request must be split.
        text += "pd = { dialect = \"nixl\", alone = false }\n";
    }
    for ((address, kv_events), role) in workers.iter().zip(["prefill", "decode"].iter().cycle()) {
        let _ = write!(text, "\n[[pools.bench.workers]]\nurl = \"http://{address}\"\n");
        if setup.splits {
            let _ = writeln!(text, "role = \"{role}\"");
        }
        let kv_events = if setup.has_index() { kv_events } else { "off" };
        let _ = writeln!(text, "kv-events = \"{kv_events}\"");
    }
    text + &format!("\n[[routes]]\npool = \"bench\"\npolicy = \"{}\"\n", setup.policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conductor_config::{Config, Known};

    fn text(setup: Setup) -> String {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let events = ["tcp://127.0.0.1:3".to_owned(), "tcp://127.0.0.1:4".to_owned()];
        let workers = [(address(1), &events[0]), (address(2), &events[1])];
        config(setup, address(80), &workers, Path::new("/tmp/tokenizer"))
    }

    #[test]
    fn the_config_has_a_worker_per_backend_and_a_route_with_the_policy() {
        let setup = Setup {
            policy: "cache-aware",
            tokens: Tokens::Given,
            splits: false,
            quiet: false,
        };
        let expected = "[server]
listen = \"127.0.0.1:80\"
admin-listen = \"off\"
max-connections = 20_000

[pools.bench]
tokenize = \"off\"

[[pools.bench.workers]]
url = \"http://127.0.0.1:1\"
kv-events = \"tcp://127.0.0.1:3\"

[[pools.bench.workers]]
url = \"http://127.0.0.1:2\"
kv-events = \"tcp://127.0.0.1:4\"

[[routes]]
pool = \"bench\"
policy = \"cache-aware\"
";
        assert_eq!(text(setup), expected);
    }

    #[test]
    fn conductor_accepts_the_config_of_every_set_up() {
        let builtins = ["cache-aware", "pd-pairing", "round-robin"];
        let known = Known {
            builtins: &builtins,
            former_builtins: &[],
            default_policy: builtins[0],
            files: &[],
            has_admin_key: false,
        };
        for (policy, tokens, splits, quiet) in [
            ("round-robin", Tokens::None, false, false),
            ("cache-aware", Tokens::Given, false, false),
            ("cache-aware", Tokens::Own, false, true),
            ("cache-aware", Tokens::Worker, false, false),
            ("pd-pairing", Tokens::None, true, false),
        ] {
            let text = text(Setup {
                policy,
                tokens,
                splits,
                quiet,
            });
            let parsed = Config::parse("conductor.toml", &text, &known);
            assert!(parsed.is_ok(), "{text}\n{parsed:?}");
        }
    }
}
