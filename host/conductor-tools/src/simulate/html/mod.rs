//! A report as one page that needs nothing else: no script, no font, no network.

mod axis;
mod breakdown_plots;
mod curves;
mod page;
mod plot;
mod plots;
mod text;

pub(super) use self::curves::Curves;
pub(super) use self::page::Page;
