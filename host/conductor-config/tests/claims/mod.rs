//! Claims that hold for any configuration text. The fuzz target (`fuzz/`) makes the same claims.

use conductor_config::{Config, Diagnostics, Known, Paint};

pub(crate) const KNOWN: Known<'_> = Known {
    builtins: &["cache-aware", "round-robin"],
    former_builtins: &[],
    default_policy: "cache-aware",
    files: &["own"],
    has_admin_key: false,
};

/// Checks that no text causes a panic, that places are inside the text, and that the answer can be drawn.
pub(crate) fn text(text: &str) {
    match Config::parse("any", text, &KNOWN) {
        Ok(parsed) => {
            assert_eq!(parsed.warnings.error_count(), 0);
            for route in &parsed.config.routes {
                assert!(parsed.config.pools.iter().any(|pool| pool.name == route.pool));
                for named in route.policies() {
                    assert!(parsed.config.policies.iter().any(|policy| policy.name == named));
                }
            }
            places(&parsed.warnings, text);
        }
        Err(mistakes) => {
            assert!(mistakes.error_count() > 0);
            places(&mistakes, text);
        }
    }
}

fn places(diagnostics: &Diagnostics, text: &str) {
    let lines = text.split('\n').count();
    for item in diagnostics.items() {
        for mark in item.related.iter().chain([&item.primary]) {
            assert!((1..=lines).contains(&mark.location.line));
            assert!((1..=text.len() + 1).contains(&mark.location.column));
        }
    }
    assert_eq!(
        diagnostics.render(Paint::Plain).is_empty(),
        diagnostics.is_empty()
    );
}
