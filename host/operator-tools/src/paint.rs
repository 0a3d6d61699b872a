//! Colours of the output: on terminals, unless the environment has `NO_COLOR` (<https://no-color.org>).

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;

use conductor_config::Paint;

/// Returns true if standard error is coloured.
#[must_use]
pub fn on_stderr() -> bool {
    is_coloured(std::io::stderr().is_terminal(), no_color().as_deref())
}

/// Returns true if standard output is coloured.
#[must_use]
pub fn on_stdout() -> bool {
    is_coloured(std::io::stdout().is_terminal(), no_color().as_deref())
}

/// Returns the style of standard error.
#[must_use]
pub fn of_stderr() -> Paint {
    paint(on_stderr())
}

/// Returns the style of standard output.
#[must_use]
pub fn of_stdout() -> Paint {
    paint(on_stdout())
}

fn no_color() -> Option<OsString> {
    std::env::var_os("NO_COLOR")
}

fn paint(is_coloured: bool) -> Paint {
    if is_coloured { Paint::Ansi } else { Paint::Plain }
}

/// Returns whether output is coloured. `NO_COLOR` counts where it is set and not empty, whatever its value.
fn is_coloured(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_coloured_unless_no_color_is_set_and_not_empty() {
        let check = |is_terminal, no_color: Option<&str>, expected| {
            let no_color = no_color.map(OsStr::new);
            assert_eq!(is_coloured(is_terminal, no_color), expected, "{no_color:?}");
        };
        check(true, None, true);
        check(true, Some(""), true);
        check(true, Some("1"), false);
        check(true, Some("0"), false);
        check(false, None, false);
        check(false, Some(""), false);
    }
}
