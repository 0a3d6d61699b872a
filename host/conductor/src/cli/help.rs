//! Help of the command line: commands in groups, and Mooncake's flags on a page of their own.

use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, CommandFactory as _, Error, FromArgMatches as _};

use super::Cli;

/// Heading of the flags that are left out of other pages.
const MOONCAKE: &str = "As Mooncake's proxies take them";

/// Groups of commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["serve", "demo", "init", "check", "import", "client-key"]),
    (
        "Look",
        &[
            "status", "top", "workers", "feeds", "trials", "requests", "explain",
        ],
    ),
    ("Change", &["reload", "drain", "resume"]),
    ("Policies", &["policy"]),
    ("Measure", &["simulate", "block-hashes"]),
    ("About", &["version", "completions", "man-pages"]),
];

/// Parses the command line of this process, and ends it after help or a mistake.
#[must_use]
pub fn parse() -> Cli {
    let matches = command().try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.and_then(|cli| cli.check().map(|()| cli))
        .unwrap_or_else(|error| with_file_hint(error).exit())
}

/// Adds the start with a configuration file to the error about a file that is given without an option.
fn with_file_hint(mut error: Error) -> Error {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let given = kinds.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(given)) if given.ends_with(".toml") => Some(given.clone()),
        _ => None,
    });
    if let Some(file) = given {
        let hint = format!("the router is started with a configuration file by `conductor --config {file}`");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    error
}

/// Returns the definition of the command line, with its help.
#[must_use]
pub fn command() -> Command {
    let command = Cli::command();
    let template = template(&command);
    let is_mooncakes = |arg: &Arg| arg.get_help_heading() == Some(MOONCAKE);
    let without = move |command: Command| {
        command
            .mut_args(|arg| {
                let is_hidden = is_mooncakes(&arg) || arg.is_hide_set();
                arg.hide(is_hidden)
            })
            .after_help("The flags of Mooncake's proxies: conductor help mooncake")
    };
    command
        .mut_args(|arg| {
            let is_hidden = arg.get_help_heading().is_some() || arg.is_hide_set();
            arg.hide(is_hidden)
        })
        .mut_subcommand("serve", without)
        .mut_subcommand("check", without)
        .mut_subcommand("mooncake", |command| {
            command.mut_args(|arg| {
                let is_hidden = !is_mooncakes(&arg);
                arg.hide(is_hidden)
            })
        })
        .help_template(template)
        .after_help("`conductor FLAGS` is `conductor serve FLAGS`. Mooncake's flags: conductor help mooncake")
}

fn template(command: &Command) -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        // The style of clap's own headings.
        let _ = writeln!(text, "\n\u{1b}[1m\u{1b}[4m{group}:\u{1b}[0m");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                text,
                "  \u{1b}[1m{name:<13}\u{1b}[0m {}",
                about.replace(['{', '}'], "")
            );
        }
    }
    text + "\n\u{1b}[1m\u{1b}[4mOptions:\u{1b}[0m\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_its_option_is_refused_with_the_option() {
        for args in [&["conductor", "serve", "a.toml"][..], &["conductor", "a.toml"]] {
            let refused = command().try_get_matches_from(args).unwrap_err();
            let text = with_file_hint(refused).to_string();
            assert!(text.contains("`conductor --config a.toml`"), "{text}");
        }
        let refused = command().try_get_matches_from(["conductor", "a"]).unwrap_err();
        assert!(!with_file_hint(refused).to_string().contains("--config a"));
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
    }

    #[test]
    fn mooncakes_flags_are_on_their_own_page() {
        let mut command = command();
        let root = command.render_long_help().to_string();
        assert!(
            root.contains("Look:") && !root.contains("prefiller_hosts"),
            "{root}"
        );
        let mut help = |name: &str| {
            let command = command.find_subcommand_mut(name).unwrap();
            command.render_long_help().to_string()
        };
        let serve = help("serve");
        assert!(
            serve.contains("--worker") && !serve.contains("prefiller_hosts"),
            "{serve}"
        );
        let mooncake = help("mooncake");
        assert!(
            mooncake.contains("prefiller_hosts") && !mooncake.contains("--print-config"),
            "{mooncake}"
        );
    }

    #[test]
    fn the_definitions_with_their_help_are_consistent() {
        command().debug_assert();
    }
}
