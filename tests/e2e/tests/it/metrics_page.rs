//! Parser of metrics pages for tests: both text formats, by the letter.

use std::collections::{BTreeMap, BTreeSet};

/// One family of a page.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// One line of a family.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
    /// Trace of the exemplar.
    pub(crate) exemplar: Option<String>,
}

/// Format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    OpenMetrics,
}

/// Parses a page. Every breach of the format is a panic.
pub(crate) fn parse(page: &str, format: Format) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    let mut has_ended = false;
    for line in page.lines() {
        assert!(!has_ended, "a line behind the end: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!families.contains_key(name), "{name} is described twice");
            current = name.to_owned();
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "the type stands behind the help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            assert_eq!(format, Format::OpenMetrics, "{line}");
            let (name, unit) = rest.split_once(' ').unwrap();
            let family = families.get_mut(name).unwrap();
            assert!(name == current && family.samples.is_empty(), "{line}");
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
            assert_eq!(family.unit.replace(unit.to_owned()), None, "{line}");
        } else if line == "# EOF" {
            assert_eq!(format, Format::OpenMetrics);
            has_ended = true;
        } else {
            let sample = sample(line, format);
            let family = families.get_mut(&current).unwrap();
            assert!(
                suffixes(&family.kind, format)
                    .iter()
                    .any(|suffix| sample.name == format!("{current}{suffix}")),
                "{line} in {current}"
            );
            family.samples.push(sample);
        }
    }
    assert_eq!(has_ended, format == Format::OpenMetrics);
    for (name, family) in &families {
        check(name, family);
    }
    families
}

fn suffixes(kind: &str, format: Format) -> &'static [&'static str] {
    match (kind, format) {
        ("counter", Format::OpenMetrics) => &["_total"],
        ("histogram", _) => &["_bucket", "_sum", "_count"],
        _ => &[""],
    }
}

fn sample(line: &str, format: Format) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let is_name = |text: &str| {
        let mut bytes = text.bytes();
        bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let (value, behind) = quoted(value);
            labels.push((label.to_owned(), value));
            match behind.strip_prefix(',') {
                Some(next) => rest = next,
                None => break rest = behind.strip_prefix('}').unwrap(),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    let (value, exemplar) = match value.split_once(" # ") {
        Some((value, exemplar)) => (value, Some(exemplar)),
        None => (value, None),
    };
    assert!(exemplar.is_none() || format == Format::OpenMetrics, "{line}");
    assert!(exemplar.is_none() || name.ends_with("_bucket"), "{line}");
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().unwrap(),
        exemplar: exemplar.map(|exemplar| trace_of(exemplar, line)),
    }
}

/// Returns the trace of an exemplar, which is its only label.
fn trace_of(exemplar: &str, line: &str) -> String {
    let labelled = exemplar.strip_prefix("{trace_id=\"").unwrap();
    let (trace, rest) = labelled.split_once("\"} ").unwrap();
    let (value, time) = rest.split_once(' ').unwrap();
    let (value, time): (f64, f64) = (value.parse().unwrap(), time.parse().unwrap());
    assert!(trace.len() == 32 && value >= 0.0 && time > 0.0, "{line}");
    trace.to_owned()
}

/// Returns the value of a label and the text behind it.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut is_escaped, mut end) = (String::new(), false, None);
    for (at, char) in text.char_indices() {
        match char {
            '"' if !is_escaped => {
                end = Some(at);
                break;
            }
            '\\' if !is_escaped => is_escaped = true,
            char => {
                value.push(char);
                is_escaped = false;
            }
        }
    }
    (value, &text[end.unwrap() + 1..])
}

fn check(name: &str, family: &Family) {
    assert!(!family.kind.is_empty() && !family.help.is_empty(), "{name}");
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let identity = format!("{} {:?}", sample.name, sample.labels);
        assert!(seen.insert(identity), "{name} has a series twice: {sample:?}");
        assert!(!sample.value.is_nan(), "{sample:?}");
        assert!(family.kind != "counter" || sample.value >= 0.0, "{sample:?}");
    }
    if family.kind == "histogram" {
        check_buckets(name, &family.samples);
    }
}

fn check_buckets(name: &str, samples: &[Sample]) {
    let mut before: Option<(f64, f64)> = None;
    for sample in samples {
        if !sample.name.ends_with("_bucket") {
            before = None;
            continue;
        }
        let (_, bound) = sample.labels.iter().find(|(label, _)| label == "le").unwrap();
        let bound: f64 = bound.replace("+Inf", "inf").parse().unwrap();
        if let Some((lower, count)) = before {
            assert!(lower < bound && count <= sample.value, "{name}: {sample:?}");
        }
        before = Some((bound, sample.value));
    }
}
