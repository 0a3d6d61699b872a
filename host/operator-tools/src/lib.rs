//! Commands that show and change running routers over their admin pages.
//!
//! [`admin`] is the client of one or several routers, [`commands`] are the commands, and [`args`] their arguments.
//! The crate also has what all commands of the binary share: exit codes, output, tables and colours.

pub mod admin;
pub mod args;
pub mod commands;
mod exit;
pub mod paint;
pub mod print;
pub mod table;
pub mod units;

pub use exit::{Exit, UsageError};
