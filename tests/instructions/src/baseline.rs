//! Baseline counts: one line `NAME COUNT` each, in `baseline.txt` beside the manifest.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Larger differences are reported.
const TOLERANCE: f64 = 0.02;

pub(crate) struct Baseline(Vec<(String, u64)>);

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("baseline.txt")
}

/// Makes these counts the baseline.
pub(crate) fn write(counted: &[(&str, u64)]) -> io::Result<()> {
    let lines = counted.iter().fold(String::new(), |mut lines, (name, count)| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{name} {count}");
        lines
    });
    fs::write(file(), lines)
}

impl Baseline {
    /// Reads the counts. There are none if there is no file.
    pub(crate) fn read() -> io::Result<Self> {
        match fs::read_to_string(file()) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(Vec::new())),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Returns a table, and whether no count is above its baseline.
    pub(crate) fn compare(&self, counted: &[(&str, u64)]) -> (String, bool) {
        let mut text =
            String::from("| case | instructions | baseline | change |\n| --- | ---: | ---: | ---: |\n");
        let mut good = true;
        for (name, count) in counted {
            let before = self
                .0
                .iter()
                .find(|(own, _)| own == name)
                .map(|(_, before)| *before);
            let change = before.map(|before| *count as f64 / before as f64 - 1.0);
            let mark = match change {
                Some(change) if change > TOLERANCE => {
                    good = false;
                    " MORE"
                }
                Some(change) if change < -TOLERANCE => " less",
                _ => "",
            };
            let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
            let change =
                change.map_or_else(|| "new".to_owned(), |change| format!("{:+.1} %", 100.0 * change));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {name} | {count} | {before} | {change}{mark} |");
        }
        (text, good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(count: u64, row: &str, good: bool) {
        let baseline = Baseline::parse("a 1000\nb 5\n");
        let (text, found) = baseline.compare(&[("a", count)]);
        assert_eq!((text.lines().last(), found), (Some(row), good));
    }

    #[test]
    fn only_what_takes_more_than_the_tolerance_is_no_good() {
        check(1_000, "| a | 1000 | 1000 | +0.0 % |", true);
        check(1_019, "| a | 1019 | 1000 | +1.9 % |", true);
        check(1_030, "| a | 1030 | 1000 | +3.0 % MORE |", false);
        check(900, "| a | 900 | 1000 | -10.0 % less |", true);
    }

    #[test]
    fn a_new_case_has_nothing_to_be_compared_with() {
        let (text, good) = Baseline::parse("").compare(&[("a", 7)]);
        assert!(good && text.ends_with("| a | 7 | - | new |\n"));
    }
}
