//! `server.forward`: additional paths whose requests are placed on workers.

use inference_api::{Reserved, reserved};

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::value::{Item, Text};

/// Most paths.
const MOST: usize = 64;

/// Reads the valid paths; faults of the others are reported.
pub(crate) fn read(item: &Item<'_>) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let texts = item.texts().unwrap_or_default();
    for path in &texts {
        if let Some((message, help)) = fault(path, &paths) {
            item.report
                .push(Problem::new(Code::InvalidValue, &path.span, message).help(help));
        } else {
            paths.push(path.text.to_owned());
        }
    }
    if texts.len() > MOST {
        let message = format!("`forward` has {} paths, and {MOST} at most", texts.len());
        item.report
            .push(Problem::new(Code::InvalidValue, &item.span, message).help("leave out unused ones"));
    }
    paths
}

/// Returns the fault of a path and its fix.
fn fault(path: &Text<'_>, before: &[String]) -> Option<(String, &'static str)> {
    let text = path.text;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,;=:@".contains(&byte);
    let mut segments = text.split('/').skip(1);
    let is_path = text.starts_with('/')
        && text.bytes().all(is_plain)
        && (text == "/" || segments.all(|segment| !matches!(segment, "" | "." | "..")));
    if !is_path {
        return Some((
            format!("`{text}` is not a path that can be forwarded"),
            "write the whole path, without a query and without a slash at its end: \"/v1/custom\"",
        ));
    }
    let why = match reserved(text) {
        Some(Reserved::Served(_)) => "is an endpoint that is served anyway",
        Some(Reserved::Own) => "is a page of the router's own",
        Some(Reserved::Administration) => "is administration of an engine, which is never forwarded",
        None if before.iter().any(|path| path == text) => "is listed twice",
        None => return None,
    };
    Some((format!("`{text}` {why}"), "remove it from `forward`"))
}
