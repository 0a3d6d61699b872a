//! `policy-headers` of `[server]`: headers of requests that policies may read.

use routing::is_secret_header;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::value::Item;

/// Default list: headers without secrets or private data.
const SHOWN: [&str; 9] = [
    "accept",
    "accept-language",
    "content-type",
    "traceparent",
    "user-agent",
    "x-request-id",
    "x-session-id",
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
];
/// Longest name of a header, in bytes.
const LONGEST: usize = 128;
/// Most headers that can be listed.
const MOST: usize = 64;

/// Returns the default list.
pub(crate) fn shown() -> Vec<String> {
    SHOWN.map(str::to_owned).into()
}

/// Reads the list that replaces the default one.
pub(crate) fn read(item: &Item<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for text in item.text_or_texts().unwrap_or_default() {
        let name = text.text.to_ascii_lowercase();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let (message, help) = if is_secret_header(&name) {
            (
                format!("`{name}` holds a secret: policies never read it"),
                "remove it from the list",
            )
        } else if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_token) {
            (
                format!("`{}` is not the name of a header", text.text),
                "write a name alone, for example \"x-tenant\"",
            )
        } else if names.len() == MOST {
            (
                format!("`policy-headers` lists more than {MOST} headers"),
                "list those that your policies read",
            )
        } else {
            names.push(name);
            continue;
        };
        let problem = Problem::new(Code::InvalidValue, &text.span, message);
        item.report.push(problem.help(help));
    }
    names
}
