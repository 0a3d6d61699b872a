//! Reachability of routes: requests taken by earlier routes, and models that the pool serves.

use wildmatch::WildMatch;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::source::Span;
use crate::document::suggest;
use crate::document::value::Text;
use crate::pools::PoolConfig;
use crate::routes::matching::RouteMatch;

/// Warns of a pattern that matches none of the pool's models.
pub(crate) fn check_models(patterns: &[Text<'_>], pool: &PoolConfig, report: &Report) {
    if pool.workers.is_empty() || pool.workers.iter().any(|worker| worker.models.is_empty()) {
        return;
    }
    let served: Vec<&str> = pool
        .workers
        .iter()
        .flat_map(|worker| worker.models.iter().chain(&worker.adapters))
        .map(String::as_str)
        .collect();
    for pattern in patterns {
        let glob = WildMatch::new(pattern.text);
        if !served.iter().any(|model| glob.matches(model)) {
            let wanted = pattern.text.trim_end_matches('*');
            report.push(
                Problem::new(
                    Code::NoSuchModel,
                    &pattern.span,
                    format!(
                        "no worker of the pool `{}` serves a model like `{}`",
                        pool.name, pattern.text
                    ),
                )
                .maybe_help(suggest::help(wanted, served.iter().copied())),
            );
        }
    }
}

/// Warns of a route that an `earlier` one hides.
pub(crate) fn check_reachable(
    matches: &RouteMatch,
    span: &Span,
    earlier: &[(RouteMatch, Span)],
    report: &Report,
) {
    let Some((_, first)) = earlier.iter().find(|(earlier, _)| covers(earlier, matches)) else {
        return;
    };
    report.push(
        Problem::new(Code::UnreachableRoute, span, "no request reaches this route")
            .also(first, "this one matches all of them")
            .help("the first route that matches wins: put the narrower one first"),
    );
}

/// Returns `true` if every request that matches `later` surely matches `earlier`.
fn covers(earlier: &RouteMatch, later: &RouteMatch) -> bool {
    let has_path = earlier.path.is_none() || earlier.path == later.path;
    let has_headers = earlier
        .headers
        .iter()
        .all(|header| later.headers.contains(header));
    let has_models = earlier.models.is_empty()
        || !later.models.is_empty()
            && later
                .models
                .iter()
                .all(|narrow| earlier.models.iter().any(|wide| glob_covers(wide, narrow)));
    has_path && has_headers && has_models
}

/// Returns `true` if a glob covers another. A glob without `?` can match the `*` and `?` of another only with its own
/// `*`, hence covers what they cover.
fn glob_covers(wide: &str, narrow: &str) -> bool {
    let is_literal = !narrow.contains(['*', '?']);
    wide == narrow || (is_literal || !wide.contains('?')) && WildMatch::new(wide).matches(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_covers_another_only_when_it_surely_does() {
        let check =
            |wide, narrow, expected| assert_eq!(glob_covers(wide, narrow), expected, "{wide} {narrow}");
        check("*", "a*", true);
        check("llama-*", "llama-3-*", true);
        check("llama-*", "llama-3", true);
        check("llama-?", "llama-3", true);
        check("llama-?", "llama-*", false);
        check("llama-3", "llama-*", false);
        check("a", "b", false);
    }
}
