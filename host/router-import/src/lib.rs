//! Command lines and files of other routers, translated into the text of a `conductor.toml`.
//!
//! [`routers`] has a table of flags for each router: what a flag sets, or what to do about one without an equivalent.
//! [`import_flags`] applies a table to a command line, and [`import_picker`] translates the YAML of llm-d's endpoint
//! picker. Nothing is left out silently: each flag is in the text, or has a note.

mod arguments;
mod draft;
mod picker;
pub mod routers;
mod rule;

pub use self::draft::ImportedText;
pub use self::picker::{PickerError, import_picker};
pub use self::routers::{ForeignRouter, import_flags};
