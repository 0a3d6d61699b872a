//! Columns of text that line up, on terminals with colours.

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Row};

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Tone of a cell, which is a colour on terminals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Without a colour.
    #[default]
    Plain,
    /// Healthy.
    Good,
    /// Worth a look.
    Doubtful,
    /// Failed.
    Bad,
}

/// Text of a cell with its tone.
#[derive(Debug, Clone)]
pub struct TableCell {
    text: String,
    tone: Tone,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        let tone = Tone::Plain;
        Self { text, tone }
    }
}

impl TableCell {
    /// Returns a cell with a tone.
    #[must_use]
    pub fn toned(text: String, tone: Tone) -> Self {
        Self { text, tone }
    }

    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Rows of cells under a header.
#[derive(Debug)]
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<TableCell>>,
    is_coloured: bool,
    width: Option<u16>,
}

impl Table {
    /// Returns an empty table.
    #[must_use]
    pub fn new(columns: &[(&str, Side)]) -> Self {
        let header = columns.iter().map(|(name, _)| (*name).to_owned().into());
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![header.collect()],
            is_coloured: false,
            width: None,
        }
    }

    /// Sets whether cells are coloured by their tones.
    #[must_use]
    pub fn coloured(mut self, is_coloured: bool) -> Self {
        self.is_coloured = is_coloured;
        self
    }

    /// Limits the width of a line. Longer cells are cut.
    #[must_use]
    pub fn within(mut self, width: Option<u16>) -> Self {
        self.width = width;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.cells(cells.into_iter().map(TableCell::from));
    }

    /// Adds a row of cells with tones.
    pub fn cells(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns whether there is no row below the header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    fn drawn(&self, cell: &TableCell, side: Side, is_header: bool) -> Cell {
        let alignment = match side {
            Side::Left => CellAlignment::Left,
            Side::Right => CellAlignment::Right,
        };
        let drawn = Cell::new(&cell.text).set_alignment(alignment);
        match cell.tone {
            _ if !self.is_coloured => drawn,
            _ if is_header => drawn.add_attribute(Attribute::Bold),
            Tone::Plain => drawn,
            Tone::Good => drawn.fg(Color::Green),
            Tone::Doubtful => drawn.fg(Color::Yellow),
            Tone::Bad => drawn.fg(Color::Red),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        if self.is_coloured {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        match self.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        for (number, cells) in self.rows.iter().enumerate() {
            let drawn = cells.iter().zip(&self.sides);
            let mut row = Row::from(
                drawn
                    .map(|(cell, side)| self.drawn(cell, *side, number == 0))
                    .collect::<Vec<_>>(),
            );
            if self.width.is_some() {
                row.max_height(1);
            }
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table
            .lines()
            .try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
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
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(&[("name", Side::Left), ("n", Side::Right)]);
        table.row(["你好".into(), "1".into()]);
        table.row(["abcd".into(), "2".into()]);
        assert_eq!(table.to_string(), "name  n\n你好  1\nabcd  2\n");
    }

    #[test]
    fn tones_are_colours_only_where_they_are_wanted() {
        let table = |is_coloured| {
            let mut table = Table::new(&[("state", Side::Left)]).coloured(is_coloured);
            table.cells([TableCell::toned("ejected".to_owned(), Tone::Bad)]);
            table.to_string()
        };
        assert_eq!(table(false), "state\nejected\n");
        assert!(table(true).contains("\u{1b}["), "{:?}", table(true));
    }

    #[test]
    fn a_limited_table_has_one_line_a_row() {
        let mut table = Table::new(&[("reason", Side::Left)]).within(Some(20));
        table.row(["a long reason ".repeat(10)]);
        let drawn = table.to_string();
        assert_eq!(drawn.lines().count(), 2, "{drawn}");
        assert!(drawn.lines().all(|line| line.chars().count() <= 20), "{drawn}");
    }
}
