//! Live screen: on a terminal the alternate screen, on which each frame replaces the last; otherwise one frame after
//! the other.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use anyhow::Result;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, size};

use super::fleet_table::TableLook;
use crate::{paint, print};

/// Erases the rest of a line.
const REST_OF_LINE: &str = "\u{1b}[K";
/// Erases everything below.
const REST_OF_SCREEN: &str = "\u{1b}[J";

/// The screen; the terminal is as before when this is dropped.
#[derive(Debug)]
pub(super) struct LiveScreen {
    is_terminal: bool,
    frames: u64,
}

impl LiveScreen {
    /// Opens the screen.
    pub(super) fn open() -> Result<Self> {
        let is_terminal = io::stdout().is_terminal();
        if is_terminal {
            execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        }
        let frames = 0;
        Ok(Self { is_terminal, frames })
    }

    /// Returns the look of tables on it.
    pub(super) fn look(&self, is_several: bool) -> TableLook {
        let size = self.is_terminal.then(|| size().ok()).flatten();
        TableLook {
            is_coloured: paint::on_stdout(),
            width: size.map(|(width, _)| width),
            is_several,
        }
    }

    /// Shows a frame. Lines below the end of the terminal are cut. Returns false if the reader of the output is gone.
    pub(super) fn show(&mut self, frame: &str) -> Result<bool> {
        let text = if self.is_terminal {
            let height = size().map_or(usize::MAX, |(_, height)| height.into());
            execute!(io::stdout(), MoveTo(0, 0))?;
            on_screen(frame, height)
        } else {
            let gap = if self.frames > 0 { "\n" } else { "" };
            format!("{gap}{frame}")
        };
        self.frames += 1;
        print::write(text)
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        if self.is_terminal {
            // A failure means that the terminal is gone.
            let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        }
    }
}

/// Returns a frame as bytes for a terminal of that height.
fn on_screen(frame: &str, height: usize) -> String {
    let mut text = String::new();
    for (number, line) in frame.lines().take(height.saturating_sub(1)).enumerate() {
        let break_before = if number > 0 { "\r\n" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{break_before}{line}{REST_OF_LINE}");
    }
    text + REST_OF_SCREEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_erases_what_was_there_and_is_cut_at_the_end_of_the_terminal() {
        assert_eq!(on_screen("a\nb\nc\n", 3), "a\u{1b}[K\r\nb\u{1b}[K\u{1b}[J");
    }
}
