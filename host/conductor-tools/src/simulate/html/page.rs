//! The page: what was simulated, the figures, the plots.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};

use serde_json::Value;

use super::super::breakdowns::{self, BreakdownTable};
use super::super::compare::Comparison;
use super::super::figures::Figure;
use super::super::report::SimulationReport;
use super::breakdown_plots::breakdown_plots;
use super::plot::looks;
use super::plots::{Shown, at_speed, goodput};
use super::text::Escaped;

/// A report as HTML.
#[derive(Debug)]
pub(in super::super) struct Page<'r> {
    report: &'r SimulationReport,
    /// Setting of the simulation.
    setting: Value,
    /// Policies by number, which selects their style.
    policies: BTreeMap<usize, &'r str>,
}

impl<'r> Page<'r> {
    pub(in super::super) fn of(report: &'r SimulationReport) -> anyhow::Result<Self> {
        let numbered = report
            .rows
            .iter()
            .map(|row| (row.contestant, row.policy.as_str()));
        Ok(Self {
            report,
            setting: serde_json::to_value(&report.setting)?,
            policies: numbered.collect(),
        })
    }

    fn figures(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (head, rows) = self.report.table();
        writeln!(f, "<h2>Figures</h2>")?;
        table(f, "Figures of all runs", &head, &rows)?;
        for note in self.report.notes() {
            writeln!(f, "<p class=\"warning\">{}</p>", sentence(&note))?;
        }
        let seeds = self.report.about_seeds();
        writeln!(f, "<p class=\"quiet\">{}</p>", Escaped(seeds))?;
        writeln!(f, "<details><summary>Meaning of the columns</summary><dl>")?;
        for Figure { name, what, .. } in self.report.figures() {
            writeln!(f, "<dt>{}</dt><dd>{}</dd>", Escaped(name), Escaped(what))?;
        }
        writeln!(f, "</dl></details>")
    }

    fn comparisons(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for comparison in &self.report.comparisons {
            let Comparison {
                baseline,
                policy,
                words,
                ..
            } = comparison;
            let heading = comparison.heading();
            writeln!(f, "<h2>{}</h2>", Escaped(&heading))?;
            writeln!(f, "<p><strong>Verdict: {}</strong></p>", sentence(words))?;
            let head = ["figure", baseline.as_str(), policy.as_str(), "difference"];
            table(f, &heading, &head, &comparison.lines())?;
            writeln!(f, "<p>{}</p>", sentence(&comparison.by_request()))?;
        }
        Ok(())
    }

    fn legend(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "<ul class=\"legend\" aria-label=\"Policies\">")?;
        for (policy, name) in &self.policies {
            writeln!(
                f,
                "<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><g class=\"{}\"><path class=\"curve\" d=\"M0 5H28\"/></g></svg>{}</li>",
                looks(*policy),
                Escaped(name)
            )?;
        }
        writeln!(f, "</ul>")
    }

    fn plots(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let speeds = self.report.speeds();
        if speeds.len() > 1 {
            writeln!(f, "<section><h2>Goodput</h2>")?;
            self.legend(f)?;
            writeln!(
                f,
                "<div class=\"plots\">{}</div></section>",
                goodput(self.report, &self.policies)
            )?;
        }
        for (number, speed) in speeds.iter().enumerate() {
            let rows = self.report.rows_at(*speed);
            let seed = match self.report.seeds.as_slice() {
                [_] | [] => String::new(),
                [first, ..] => format!(", seed {first}"),
            };
            writeln!(f, "<section><h2>At x{speed}{seed}</h2>")?;
            self.legend(f)?;
            writeln!(f, "<div class=\"plots\">")?;
            let mut shown = at_speed(&rows, number);
            shown.extend(breakdown_plots(&rows, number));
            for shown in &shown {
                write!(f, "{shown}")?;
            }
            writeln!(f, "</div>")?;
            if !shown.iter().any(|shown| shown.plot.id.starts_with("refused")) {
                writeln!(f, "<p class=\"quiet\">No request was refused.</p>")?;
            }
            for BreakdownTable { title, head, rows } in breakdowns::tables(&rows) {
                writeln!(f, "<h3>{}</h3>", Escaped(&title))?;
                table(f, &title, &head, &rows)?;
            }
            writeln!(f, "</section>")?;
        }
        Ok(())
    }

    fn setting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "<h2>Setting</h2><dl>")?;
        for (key, value) in self.setting.as_object().into_iter().flatten() {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Null => "-".to_owned(),
                Value::Array(values) if values.is_empty() => "-".to_owned(),
                other => other.to_string(),
            };
            let key = key.replace('-', " ");
            writeln!(f, "<dt>{}</dt><dd>{}</dd>", Escaped(&key), Escaped(&value))?;
        }
        let seeds = match self.report.seeds.as_slice() {
            [first, .., last] => format!("{first} to {last}"),
            seeds => seeds.iter().map(u64::to_string).collect(),
        };
        let vary = Escaped(self.report.seeds_vary);
        writeln!(f, "<dt>seeds</dt><dd>{seeds}. {vary}</dd></dl>")
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = Escaped(&self.report.trace);
        writeln!(
            f,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        )?;
        writeln!(
            f,
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        )?;
        writeln!(
            f,
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">"
        )?;
        writeln!(
            f,
            "<title>Simulation: {name}</title>\n<style>\n{}</style></head>",
            include_str!("page.css")
        )?;
        writeln!(f, "<body><main>\n<h1>Simulation: {name}</h1>")?;
        writeln!(f, "<p>{}</p>", Escaped(self.report.opening()))?;
        if let Some(recording) = &self.report.recording {
            writeln!(
                f,
                "<h2>Recording</h2>\n<pre class=\"wide\">{}</pre>",
                Escaped(recording.to_string())
            )?;
        }
        self.figures(f)?;
        self.comparisons(f)?;
        self.plots(f)?;
        self.setting(f)?;
        writeln!(f, "</main></body></html>")
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let title = &self.plot.title;
        writeln!(
            f,
            "<figure><figcaption>{}<span>{}</span></figcaption>",
            Escaped(title),
            Escaped(&self.how)
        )?;
        write!(f, "{}", self.plot)?;
        writeln!(f, "<details><summary>As a table</summary>")?;
        table(f, title, &self.head, &self.rows)?;
        writeln!(f, "</details></figure>")
    }
}

/// Formats a table. The first cell of each row is its heading.
fn table<R: AsRef<[String]>>(
    f: &mut Formatter<'_>,
    label: &str,
    head: &[impl AsRef<str>],
    rows: &[R],
) -> fmt::Result {
    // Focusable, so that a keyboard scrolls it too.
    writeln!(
        f,
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>",
        Escaped(label)
    )?;
    for name in head {
        write!(f, "<th scope=\"col\">{}</th>", Escaped(name))?;
    }
    writeln!(f, "</tr></thead><tbody>")?;
    for row in rows {
        write!(f, "<tr>")?;
        for (at, cell) in row.as_ref().iter().enumerate() {
            match at {
                0 => write!(f, "<th scope=\"row\">{}</th>", Escaped(cell))?,
                _ => write!(f, "<td>{}</td>", sentence(cell))?,
            }
        }
        writeln!(f, "</tr>")?;
    }
    writeln!(f, "</tbody></table></div>")
}

/// Returns a text of the report, with the sign that terminals may lack.
fn sentence(text: &str) -> String {
    Escaped(text).to_string().replace(" +-", " ±")
}
