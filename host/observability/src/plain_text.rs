//! Prometheus' text format 0.0.4, made of an OpenMetrics page by a pass over its lines.
//!
//! The older format has no units, no exemplars and no end mark. The type and the help of a counter have the name of its
//! series, which ends in `_total`.

use std::fmt::Write as _;

/// Returns an OpenMetrics page in the text format 0.0.4.
#[must_use]
pub fn plain_text(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    // The help stands before the type, which defines its name.
    let mut help: Option<Described<'_>> = None;
    for line in openmetrics.lines() {
        if let Some(described) = Described::of(line, "# HELP ") {
            help = Some(described);
        } else if let Some(described) = Described::of(line, "# TYPE ") {
            let (suffix, kind) = older_type(described.text);
            let name = described.name;
            if let Some(help) = help.take().filter(|help| help.name == name) {
                let text = help.text;
                let _ = writeln!(page, "# HELP {name}{suffix} {text}");
            }
            let _ = writeln!(page, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') && !line.is_empty() {
            page.push_str(without_exemplar(line));
            page.push('\n');
        }
    }
    page
}

/// Line that describes a family.
struct Described<'a> {
    name: &'a str,
    text: &'a str,
}

impl<'a> Described<'a> {
    fn of(line: &'a str, keyword: &str) -> Option<Self> {
        let (name, text) = line.strip_prefix(keyword)?.split_once(' ')?;
        Some(Self { name, text })
    }
}

/// Returns the suffix of the name in the older format, and the type.
fn older_type(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", kind),
        "info" => ("_info", "gauge"),
        "stateset" => ("", "gauge"),
        "gaugehistogram" => ("", "histogram"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    }
}

/// Returns a sample without its exemplar, which follows the value.
fn without_exemplar(line: &str) -> &str {
    let value = labels_end(line);
    match line[value..].find(" # ") {
        Some(exemplar) => &line[..value + exemplar],
        None => line,
    }
}

/// Returns the position behind the labels. Values of labels may contain any character.
fn labels_end(line: &str) -> usize {
    let name_end = line.find(['{', ' ']).unwrap_or(line.len());
    if !line[name_end..].starts_with('{') {
        return name_end;
    }
    let (mut in_value, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate().skip(name_end) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_value => is_escaped = true,
            b'"' => in_value = !in_value,
            b'}' if !in_value => return at + 1,
            _ => {}
        }
    }
    line.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_name_of_their_series() {
        let page =
            "# HELP requests Requests.\n# TYPE requests counter\nrequests_total{pool=\"a\"} 3\n# EOF\n";
        let expected =
            "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total{pool=\"a\"} 3\n";
        assert_eq!(plain_text(page), expected);
    }

    #[test]
    fn units_and_exemplars_are_left_out() {
        let page = "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\n\
             t_seconds_bucket{le=\"1.0\"} 3 # {trace_id=\"ab\"} 0.5 1.0\nt_seconds_count 3\n# EOF\n";
        let expected = "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n\
             t_seconds_bucket{le=\"1.0\"} 3\nt_seconds_count 3\n";
        assert_eq!(plain_text(page), expected);
    }

    #[test]
    fn values_of_labels_are_left_alone() {
        for sample in [
            r#"a{b="x # {y}"} 1"#,
            r#"a{b="\"} # ",c="\\"} 1"#,
            "a 1",
            r#"a{b="}"} NaN"#,
        ] {
            assert_eq!(plain_text(sample), format!("{sample}\n"));
            assert_eq!(plain_text(&format!("{sample} # {{}} 1")), format!("{sample}\n"));
        }
    }

    #[test]
    fn types_that_are_newer_become_gauges() {
        let page = "# HELP build Build.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n# EOF\n";
        let expected = "# HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        assert_eq!(plain_text(page), expected);
    }
}
