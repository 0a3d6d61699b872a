//! Reference of all commands, as a page of the book.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::help::command;

/// Longest line of the page.
const WIDTH: usize = 118;

const HEAD: &str = "\
# Reference of commands

    UPDATE_COMMANDS=1 cargo nextest run -p conductor reference_of_commands

The command writes this page from the definitions of the command line.
[Commands, signals, exit codes](process.md) has the commands by purpose.
";

/// Returns the page.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut command = command();
    command.build();
    add(&mut page, &command, "");
    page
}

fn add(page: &mut String, command: &Command, above: &str) {
    let name = format!("{above}{}", command.get_name());
    if !above.is_empty() || !command.has_subcommands() {
        let _ = writeln!(page, "\n## {name}\n");
    } else {
        let _ = writeln!(page, "\n## {name} without a command\n");
    }
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    for paragraph in about.lines().filter(|line| !line.is_empty()) {
        let _ = writeln!(page, "{}", wrapped(paragraph, ""));
    }
    let shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !args.is_empty() {
        page.push('\n');
    }
    for arg in args {
        let line = format!("- {}", described(arg));
        let _ = writeln!(page, "{}", wrapped(&line, "  "));
    }
    let subcommands = command.get_subcommands();
    let subcommands = subcommands.filter(|command| command.get_name() != "help");
    for subcommand in subcommands.filter(|command| !command.is_hide_set() || command.get_name() == "mooncake")
    {
        add(page, subcommand, &format!("{name} "));
    }
}

/// Returns an argument with its values, help and default.
fn described(arg: &Arg) -> String {
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(|value| &**value).collect();
    let values = if takes_value {
        values.join(" ")
    } else {
        String::new()
    };
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let name = format!("{name} {values}");
    let mut text = format!("`{}`: ", name.trim());
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "{}.", help.trim_end_matches('.'));
    let possible = arg.get_possible_values();
    let possible = possible.iter().filter(|value| !value.is_hide_set());
    let possible: Vec<String> = possible.map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value && !possible.is_empty() {
        let _ = write!(text, " One of {}.", possible.join(", "));
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if takes_value && !defaults.is_empty() {
        let _ = write!(text, " Default: {}.", defaults.join(" "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Environment variable: `{}`.", variable.to_string_lossy());
    }
    text
}

/// Returns text in lines of limited length. Further lines begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut page = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let size = word.chars().count();
        if length > 0 && length + 1 + size > WIDTH {
            page.push('\n');
            page.push_str(indent);
            length = indent.len();
        } else if length > 0 {
            page.push(' ');
            length += 1;
        }
        page.push_str(word);
        length += size;
    }
    page
}
