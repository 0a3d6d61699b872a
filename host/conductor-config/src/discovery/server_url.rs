//! Address of the server of a source.

use crate::document::report::Report;
use crate::document::value::Text;
use crate::pools::endpoint::worker_url;

/// Help for a file without a name.
pub(super) const FILE: &str = "name a file";

/// Reads a URL without a path.
pub(super) fn base_url(base: &str, text: &Text<'_>, report: &Report) -> Option<String> {
    let span = text.span.clone();
    worker_url(&Text { text: base, span }, report)
}
