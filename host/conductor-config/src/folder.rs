//! Keys whose value is a folder.

use std::path::PathBuf;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::value::Item;

/// Reads the path of a folder. An empty one is reported.
pub(crate) fn read_folder(item: &Item<'_>) -> Option<PathBuf> {
    let text = item.text()?;
    if text.text.is_empty() {
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key))
                .help("name a folder, for example \"policies.d\", or leave the key out"),
        );
        return None;
    }
    Some(PathBuf::from(text.text))
}
