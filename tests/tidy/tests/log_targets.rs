//! Logs: recommended levels name modules that exist, and errors are logged with their sources.

use tidy::paths::code_spans;
use tidy::{files, root};

/// Returns the modules of a line's log levels, such as `proxy::dispatch::shadow`.
fn modules(line: &str) -> impl Iterator<Item = &str> {
    let levels = code_spans(line).filter_map(|span| span.strip_prefix("log.level = \"")?.strip_suffix('"'));
    levels
        .flat_map(|level| level.split(','))
        .filter_map(|directive| Some(directive.split_once('=')?.0))
}

fn exists(module: &str) -> bool {
    let mut parts = module.split("::");
    let of_crate = parts.next().unwrap_or_default().replace('_', "-");
    let sources = root().join("host").join(of_crate).join("src");
    let path = parts.fold(sources, |path, part| path.join(part));
    path.exists() || path.with_extension("rs").exists()
}

#[test]
fn every_module_of_a_recommended_log_level_exists() {
    let mut gone = Vec::new();
    let mut checked = 0;
    for page in files(&["md"]) {
        for (at, line) in page.text.lines().enumerate() {
            for module in modules(line) {
                checked += 1;
                if !exists(module) {
                    gone.push(format!("{}:{}: {module}", page.path, at + 1));
                }
            }
        }
    }
    assert!(checked > 0, "no page recommends the log level of a module");
    assert!(gone.is_empty(), "these modules do not exist: {gone:#?}");
}

#[test]
fn a_module_that_does_not_exist_is_found() {
    let line = "Set `log.level = \"info,proxy::lost=debug,kv_index=trace\"`, not `x = 1`.";
    let found: Vec<_> = modules(line).map(|module| (module, exists(module))).collect();
    assert_eq!(found, [("proxy::lost", false), ("kv_index", true)]);
}

/// Files that log an error without its sources, with the reason.
const WITHOUT_SOURCES: &[(&str, &str)] = &[(
    "host/proxy/src/tokens/local/mod.rs",
    "the source of a template's error may quote the prompt",
)];

#[test]
fn errors_are_logged_with_their_sources() {
    let mut found = Vec::new();
    for file in files(&["rs"]) {
        let is_source = file.path.starts_with("host/") && file.path.contains("/src/");
        if !is_source || WITHOUT_SOURCES.iter().any(|(path, _)| *path == file.path) {
            continue;
        }
        for (at, line) in file.text.lines().enumerate() {
            if line.contains("%error") {
                found.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "log these errors as `error = &error as &dyn Error`: {found:#?}"
    );
}
