//! Columns of text that line up, and the units in them.

use std::fmt;
use std::time::Duration;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under a header.
#[derive(Debug)]
pub(crate) struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(columns: &[(&str, Side)]) -> Self {
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                line += &match side {
                    Side::Left => format!("{cell:<width$}  "),
                    Side::Right => format!("{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Bytes, in KiB or MiB.
pub(super) fn size(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    if kib < 1024.0 {
        format!("{kib:.1} KiB")
    } else {
        format!("{:.1} MiB", kib / 1024.0)
    }
}

/// Formats a time, in the unit that keeps it short.
pub(super) fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        _ if us < 1_000.0 => format!("{us:.1} us"),
        _ if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// Returns a time in microseconds with one decimal, for JSON.
pub(super) fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let mut table = Table::new(&[("name", Side::Left), ("n", Side::Right), ("", Side::Left)]);
        table.row(["a".into(), "10".into(), String::new()]);
        assert_eq!(table.to_string(), "name   n\na     10\n");
    }

    #[test]
    fn units_keep_numbers_short() {
        assert_eq!(size(48_844), "47.7 KiB");
        assert_eq!(time(Duration::from_nanos(470)), "0.5 us");
        assert_eq!(time(Duration::from_micros(12_345)), "12.3 ms");
        assert!((micros(Duration::from_nanos(1_234)) - 1.2).abs() < 1e-9);
    }
}
