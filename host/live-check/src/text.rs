//! Text form of the report: grouped by pool and worker, one line per check, a hint below each failed check.

use std::ffi::OsString;
use std::fmt::Write as _;

use conductor_config::Paint;

use crate::report::{CheckResult, LiveCheck, LiveReport, PoolReport, WorkerReport};

/// Marks of the three results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// √ ‼ ×
    Unicode,
    /// ASCII, for terminals without UTF-8.
    Ascii,
}

impl Glyphs {
    /// Returns the symbols that the locale of this process supports.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::of_locale(|name| std::env::var_os(name))
    }

    /// Returns the glyphs of the locale: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set and not empty.
    fn of_locale(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
        let locale = locale.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Self::Unicode
        } else {
            Self::Ascii
        }
    }

    fn of(self, result: CheckResult) -> &'static str {
        match (self, result) {
            (Self::Unicode, CheckResult::Pass) => "√",
            (Self::Unicode, CheckResult::Warn) => "‼",
            (Self::Unicode, CheckResult::Fail) => "×",
            (Self::Ascii, CheckResult::Pass) => "ok  ",
            (Self::Ascii, CheckResult::Warn) => "warn",
            (Self::Ascii, CheckResult::Fail) => "FAIL",
        }
    }
}

/// Returns the whole report.
#[must_use]
pub fn render(report: &LiveReport, glyphs: Glyphs, paint: Paint) -> String {
    let mut out = String::new();
    let page = TextPage { glyphs, paint };
    for pool in &report.pools {
        page.pool(&mut out, pool);
    }
    let LiveReport {
        passed,
        warned,
        failed,
        ..
    } = report;
    let verdict = if *failed == 0 {
        "all workers can serve"
    } else {
        "some checks failed"
    };
    let _ = writeln!(
        out,
        "{verdict}: {passed} passed, {warned} warned, {failed} failed"
    );
    out
}

#[derive(Clone, Copy)]
struct TextPage {
    glyphs: Glyphs,
    paint: Paint,
}

impl TextPage {
    fn pool(self, out: &mut String, pool: &PoolReport) {
        let title = match pool.dialect {
            Some(dialect) => format!("pool {} ({dialect})", pool.pool),
            None => format!("pool {}", pool.pool),
        };
        let _ = writeln!(out, "{title}\n{}", "-".repeat(title.chars().count()));
        for worker in &pool.workers {
            self.worker(out, worker);
        }
        for check in &pool.checks {
            self.check(out, "", check);
        }
        out.push('\n');
    }

    fn worker(self, out: &mut String, worker: &WorkerReport) {
        let WorkerReport {
            worker: name,
            url,
            role,
            ..
        } = worker;
        let title = if url.ends_with(&format!("//{name}")) {
            url.clone()
        } else {
            format!("{name} {url}")
        };
        let _ = writeln!(out, "{title} ({role})");
        for check in &worker.checks {
            self.check(out, "  ", check);
        }
    }

    fn check(self, out: &mut String, indent: &str, check: &LiveCheck) {
        let mark = self.coloured(check.result);
        let _ = writeln!(
            out,
            "{indent}{mark} {}: {}",
            check.check,
            printable(&check.message)
        );
        if let Some(hint) = &check.hint {
            let _ = writeln!(out, "{indent}    hint: {hint}");
        }
    }

    fn coloured(self, result: CheckResult) -> String {
        let mark = self.glyphs.of(result);
        let colour = match result {
            CheckResult::Pass => "32",
            CheckResult::Warn => "33",
            CheckResult::Fail => "31",
        };
        match self.paint {
            Paint::Plain => mark.to_owned(),
            Paint::Ansi => format!("\u{1b}[{colour}m{mark}\u{1b}[0m"),
        }
    }
}

/// Removes the control characters that a worker may have put into its answers.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LiveReport {
        let good = WorkerReport {
            worker: "w0".to_owned(),
            url: "http://10.0.0.1:8000".to_owned(),
            role: "prefill",
            checks: vec![LiveCheck::pass("reachable", "/health answers 200 in 2 ms")],
        };
        let bad = WorkerReport {
            worker: "10.0.0.2:8000".to_owned(),
            url: "http://10.0.0.2:8000".to_owned(),
            role: "decode",
            checks: vec![
                LiveCheck::warn("kv-events", "publishes none\u{1b}[2J", "start it with events"),
                LiveCheck::fail("models", "serves no model", "load one"),
            ],
        };
        LiveReport::new(vec![PoolReport {
            pool: "chat".to_owned(),
            dialect: Some("nixl"),
            workers: vec![good, bad],
            checks: vec![LiveCheck::warn("same-version", "1 and 2", "run one")],
        }])
    }

    #[test]
    fn a_report_is_grouped_by_pool_and_worker_with_a_hint_below_what_is_wrong() {
        let expected = "pool chat (nixl)\n----------------\n\
                        w0 http://10.0.0.1:8000 (prefill)\n  √ reachable: /health answers 200 in 2 ms\n\
                        http://10.0.0.2:8000 (decode)\n  ‼ kv-events: publishes none [2J\n      hint: start it with events\n  \
                        × models: serves no model\n      hint: load one\n\
                        ‼ same-version: 1 and 2\n    hint: run one\n\n\
                        some checks failed: 1 passed, 2 warned, 1 failed\n";
        assert_eq!(render(&report(), Glyphs::Unicode, Paint::Plain), expected);
    }

    #[test]
    fn colours_change_nothing_but_the_escapes_and_ascii_nothing_but_the_marks() {
        let plain = render(&report(), Glyphs::Unicode, Paint::Plain);
        let mut coloured = render(&report(), Glyphs::Unicode, Paint::Ansi);
        assert!(coloured.contains("\u{1b}[31m×\u{1b}[0m"), "{coloured}");
        for escape in ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[0m"] {
            coloured = coloured.replace(escape, "");
        }
        assert_eq!(coloured, plain);
        let ascii = render(&report(), Glyphs::Ascii, Paint::Plain);
        assert!(
            ascii.is_ascii() && ascii.contains("  FAIL models: serves no model"),
            "{ascii}"
        );
    }

    #[test]
    fn the_locale_decides_which_marks_can_be_shown() {
        let check = |set: &[(&str, &str)], expected| {
            let variable = |name: &str| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(Glyphs::of_locale(variable), expected, "{set:?}");
        };
        check(&[("LANG", "en_GB.UTF-8")], Glyphs::Unicode);
        check(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")], Glyphs::Unicode);
        check(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")], Glyphs::Ascii);
        check(&[("LC_ALL", ""), ("LANG", "en_GB.UTF-8")], Glyphs::Unicode);
        check(&[], Glyphs::Ascii);
    }
}
