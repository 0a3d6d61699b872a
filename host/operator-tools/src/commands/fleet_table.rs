//! Tables of several routers: a first column names the router if there is more than one.

use std::fmt;

use serde_json::Value;

use crate::admin::RouterAnswer;
use crate::table::{Side, Table, TableCell, Tone};
use crate::units::{number, text};

/// Look of the tables of a command.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableLook {
    /// Set if cells are coloured.
    pub(super) is_coloured: bool,
    /// Longest line, on a screen.
    pub(super) width: Option<u16>,
    /// Set if there are several routers.
    pub(super) is_several: bool,
}

/// Table with rows of several routers.
#[derive(Debug)]
pub(super) struct FleetTable {
    table: Table,
    is_several: bool,
}

impl FleetTable {
    /// Returns an empty table.
    pub(super) fn new(look: TableLook, columns: &[(&str, Side)]) -> Self {
        let router = look.is_several.then_some(("router", Side::Left));
        let columns: Vec<(&str, Side)> = router.into_iter().chain(columns.iter().copied()).collect();
        Self {
            table: Table::new(&columns).coloured(look.is_coloured).within(look.width),
            is_several: look.is_several,
        }
    }

    /// Adds a row of a router.
    pub(super) fn add(&mut self, router: &str, cells: Vec<TableCell>) {
        let first = self.is_several.then(|| short(router).into());
        self.table.cells(first.into_iter().chain(cells));
    }
}

impl fmt::Display for FleetTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.table.is_empty() {
            return f.write_str("none\n");
        }
        self.table.fmt(f)
    }
}

/// Returns the address of a router without its scheme.
pub(super) fn short(router: &str) -> String {
    router
        .split_once("://")
        .map_or(router, |(_, rest)| rest)
        .to_owned()
}

/// Returns the pages that there are, with their routers.
pub(super) fn pages(answers: &[RouterAnswer]) -> impl Iterator<Item = (&str, &Value)> {
    let pages = answers.iter();
    pages.filter_map(|answer| Some((&*answer.router, answer.page.as_ref().ok()?)))
}

/// Returns the items of a list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the cell of a pool's errors per second.
pub(super) fn errors_cell(rates: &Value) -> TableCell {
    let errors = &rates["errors_per_s"];
    let tone = match errors.as_f64() {
        Some(errors) if errors > 0.0 => Tone::Bad,
        _ => Tone::Plain,
    };
    TableCell::toned(number(errors), tone)
}

/// Returns the cell of a worker's state.
pub(super) fn state_cell(state: &Value, is_draining: bool) -> TableCell {
    let state = text(state);
    let tone = match &*state {
        _ if is_draining => Tone::Doubtful,
        "ok" => Tone::Good,
        "pending" | "returning" | "busy" | "draining" => Tone::Doubtful,
        _ => Tone::Bad,
    };
    TableCell::toned(state, tone)
}
