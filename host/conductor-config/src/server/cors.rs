//! `[server.cors]`: cross-origin requests from browsers.

use std::time::Duration;

use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Text;

/// `[server.cors]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsConfig {
    /// Allowed origins (`https://host:port`); `None` for any.
    pub origins: Option<Vec<String>>,
    /// Headers that pages may send, in lower case.
    pub headers: Vec<String>,
    /// Cache time of a preflight answer.
    pub max_age: Duration,
}

/// Headers sent by OpenAI's clients.
const HEADERS: [&str; 4] = ["authorization", "content-type", "x-request-id", "x-session-id"];
const MAX_AGE: Duration = Duration::from_secs(600);

/// Returns `None` if no origin is given, which is reported.
pub(crate) fn read(mut cors: Section<'_>) -> Option<CorsConfig> {
    let report = cors.report();
    let origins = cors
        .required("origins", "[\"https://chat.example.com\"]")
        .and_then(|item| item.text_or_texts());
    let headers = match cors.item("headers") {
        Some(item) => item.texts().unwrap_or_default(),
        None => Vec::new(),
    };
    let named = |header: &Text<'_>| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_good = !header.text.is_empty() && header.text.bytes().all(is_name);
        if !is_good {
            let message = format!("`{}` is not the name of a header", header.text);
            report.push(Problem::new(Code::InvalidValue, &header.span, message));
        }
        is_good.then(|| header.text.to_ascii_lowercase())
    };
    let max_age = cors.duration("max-age", MAX_AGE, Duration::ZERO..=Duration::from_secs(86_400));
    let names: Vec<String> = headers.iter().filter_map(named).collect();
    let names = if headers.is_empty() {
        HEADERS.map(str::to_owned).to_vec()
    } else {
        names
    };
    cors.finish();
    let origins = origins?;
    let any = origins.iter().any(|origin| origin.text == "*");
    let listed = || origins.iter().filter_map(|origin| check_origin(origin, report));
    Some(CorsConfig {
        origins: (!any).then(|| listed().collect()),
        headers: names,
        max_age,
    })
}

/// Checks `scheme://host[:port]`, the form of browsers.
fn check_origin(origin: &Text<'_>, report: &crate::document::report::Report) -> Option<String> {
    let is_good = origin.text.split_once("://").is_some_and(|(scheme, rest)| {
        let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain(scheme) && is_plain(rest) && !rest.contains(['/', '?', '#', '@', '*'])
    });
    if !is_good {
        report.push(
            Problem::new(
                Code::InvalidValue,
                &origin.span,
                format!("`{}` is not an origin", without_user(origin.text)),
            )
            .help("write it as browsers do, without a path: \"https://chat.example.com\"; or \"*\" for any"),
        );
    }
    is_good.then(|| origin.text.to_ascii_lowercase())
}
