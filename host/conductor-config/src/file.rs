//! Keys whose value is a file.

use std::path::PathBuf;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::source::Mark;
use crate::document::value::Item;

/// File that a key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Path, as written; a relative one starts at the configuration's folder.
    pub path: PathBuf,
    /// Position in the configuration.
    pub at: Mark,
}

/// Reads the path of a file. An empty one is reported with `help`.
pub(crate) fn read_file(item: &Item<'_>, help: &'static str) -> Option<NamedFile> {
    let text = item.text()?;
    if text.text.is_empty() {
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key)).help(help),
        );
        return None;
    }
    Some(NamedFile {
        path: PathBuf::from(text.text),
        at: item.report.mark(&text.span),
    })
}
