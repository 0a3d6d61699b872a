//! Filters of a pipeline, and column names.

use routing::{FeaturePlan, Filter, FilterTest};

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::suggest;
use crate::document::value::Item;
use crate::name;

pub(super) fn read_filter(mut filter: Section<'_>) -> Option<Filter> {
    let report = filter.report();
    let (label, feature) = (filter.item("label"), filter.item("feature"));
    let test = match (&label, &feature) {
        (Some(label), None) => read_label(label, &mut filter),
        (None, Some(feature)) => read_bounds(feature, &mut filter),
        (Some(label), Some(feature)) => {
            report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &feature.key_span,
                    "a filter looks at a `label` or at a `feature`",
                )
                .also(&label.key_span, "and here is the other")
                .help("make two filters of it: a candidate has to pass all of them"),
            );
            return None;
        }
        (None, None) => {
            report.push(
                Problem::new(Code::MissingKey, filter.span(), "a filter needs a `label` or a `feature`")
                    .help("write { label = \"zone\", is = \"eu\" } or { feature = \"load.requests\", at-most = 32 }"),
            );
            return None;
        }
    };
    let strict = filter.item("strict").and_then(|strict| strict.flag());
    filter.finish();
    Some(Filter {
        test: test?,
        strict: strict.unwrap_or(false),
    })
}

fn read_label(label: &Item<'_>, filter: &mut Section<'_>) -> Option<FilterTest> {
    let conditions = [("is", false), ("in", false), ("is-not", true)]
        .map(|(key, without)| filter.item(key).map(|item| (item, without)));
    let key = label.text()?;
    if !name::check(key.text, name::IN_NAMES, "a label", &key.span, label.report) {
        return None;
    }
    let mut given = conditions.into_iter().flatten();
    let Some((item, without)) = given.next() else {
        let message = format!(
            "a filter by the label `{}` needs `is`, `is-not` or `in`",
            key.text
        );
        let help = format!("write {{ label = \"{}\", is = \"eu\" }}", key.text);
        label
            .report
            .push(Problem::new(Code::MissingKey, filter.span(), message).help(help));
        return None;
    };
    if let Some((second, _)) = given.next() {
        let message = format!("a filter has `{}` and `{}`", item.key, second.key);
        label.report.push(
            Problem::new(Code::ConflictingKeys, &second.key_span, message)
                .also(&item.key_span, "and here is the other")
                .help("make two filters of it: a candidate has to pass all of them"),
        );
        return None;
    }
    let values = if item.key == "in" {
        item.texts()?
    } else {
        vec![item.text()?]
    };
    if values.is_empty() {
        let problem = Problem::new(
            Code::InvalidValue,
            &item.span,
            "`in` is empty: no candidate passes",
        );
        item.report.push(problem.help("name at least one value"));
        return None;
    }
    Some(FilterTest::Label {
        key: key.text.into(),
        without,
        values: values.iter().map(|value| value.text.into()).collect(),
    })
}

fn read_bounds(feature: &Item<'_>, filter: &mut Section<'_>) -> Option<FilterTest> {
    let (at_least, at_most) = (filter.item("at-least"), filter.item("at-most"));
    let name = read_feature(feature);
    if at_least.is_none() && at_most.is_none() {
        feature.report.push(
            Problem::new(
                Code::MissingKey,
                filter.span(),
                "a filter by a feature needs `at-most` or `at-least`",
            )
            .help("write { feature = \"load.requests\", at-most = 32 }"),
        );
        return None;
    }
    let bound = |item: &Option<Item<'_>>, none: f64| match item {
        Some(item) => item.number(f64::MAX),
        None => Some(none),
    };
    let (least, most) = (
        bound(&at_least, f64::NEG_INFINITY),
        bound(&at_most, f64::INFINITY),
    );
    let (name, least, most) = (name?, least?, most?);
    if least > most {
        let problem = Problem::new(
            Code::ConflictingKeys,
            filter.span(),
            format!("nothing is at least {least} and at most {most}"),
        );
        feature
            .report
            .push(problem.help("`at-least` is the smaller of the two"));
        return None;
    }
    Some(FilterTest::Feature {
        name: name.into(),
        at_least: least,
        at_most: most,
    })
}

/// Reads the name of a column.
pub(super) fn read_feature<'t>(item: &Item<'t>) -> Option<&'t str> {
    let text = item.text()?;
    let name = text.text;
    let refuse = |message: String, help: Option<String>| {
        let problem = Problem::new(Code::NoSuchFeature, &text.span, message);
        item.report.push(problem.maybe_help(help));
        None
    };
    if name == "worker.role" {
        let help = "give the legs of a request pipelines of their own: `prefill-policy` and `decode-policy` of the route";
        return refuse(
            "a pipeline chooses among workers of one role: it is called once for each leg of a request"
                .to_owned(),
            Some(help.to_owned()),
        );
    }
    if name.starts_with("request.") {
        return refuse(
            format!("`{name}` is the same for every candidate: nothing can be chosen by it"),
            Some("name a number of the candidates; `conductor policy features` lists them".to_owned()),
        );
    }
    // A `?` at the end of a name makes it optional; filters and scorers cannot use an unknown number.
    let bare = name.trim_end_matches('?');
    match FeaturePlan::resolve::<&str>(&[], &[bare]) {
        Ok(_) if bare == name => Some(name),
        Ok(_) => refuse(
            format!("there is no feature `{name}`"),
            Some(format!("write `{bare}`")),
        ),
        Err(unknown) => {
            let known = unknown.known.iter().map(String::as_str);
            refuse(
                format!("there is no feature `{name}`"),
                suggest::help(bare, known),
            )
        }
    }
}
