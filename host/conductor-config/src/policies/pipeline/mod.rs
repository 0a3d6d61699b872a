//! `pipeline` of `[policies.NAME]`: filters, scorers with their weights, and the choice of a candidate.

mod filter;

use routing::{Pick, PipelineSpec, Term, TermSource};

use self::filter::{read_feature, read_filter};
use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Mark;
use crate::document::source::Span;
use crate::document::value::{Item, Text};
use crate::policies::model::{PipelineConfig, PolicyConfig, PolicySource};
use crate::routes::names::{Names, find_policy};

/// Most filters and most scorers of one pipeline.
const MOST_FILTERS: usize = 32;
const MOST_SCORERS: usize = 16;
/// Largest weight and temperature.
const LARGEST_WEIGHT: f64 = 1e6;
const HOTTEST: f64 = 100.0;
const TEMPERATURE: f64 = 0.1;

/// An entry of `scorers`.
struct ReadTerm {
    term: Option<Term>,
    /// Position of the policy's name.
    policy_at: Option<Mark>,
    /// Text to detect a second entry of the same kind.
    text: String,
}

/// Reads a pipeline; `title` is the name of the policy's table in messages.
pub(crate) fn read(item: &Item<'_>, title: &str) -> Option<PipelineConfig> {
    let mut section = Section::of(item, format!("`pipeline` of {title}"))?;
    let report = item.report;
    let filters = entries(&mut section, "filters", title, MOST_FILTERS);
    let scorers = entries(&mut section, "scorers", title, MOST_SCORERS);
    if filters.is_none() && scorers.is_none() {
        let message = "a pipeline needs `filters` or `scorers`";
        let help = "add scorers = [{ feature = \"load.requests\", weight = -1 }]";
        report.push(Problem::new(Code::MissingKey, section.span(), message).help(help));
    }
    let filters = filters.unwrap_or_default().into_iter().filter_map(read_filter);
    let filters = filters.collect();
    let mut seen: Vec<(String, Span)> = Vec::new();
    let (mut terms, mut scorers_at) = (Vec::new(), Vec::new());
    for entry in scorers.unwrap_or_default() {
        let span = entry.span().clone();
        let read = read_term(entry);
        if let Some((_, first)) = seen
            .iter()
            .find(|(text, _)| !text.is_empty() && *text == read.text)
        {
            report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &span,
                    format!("`{}` is among the scorers twice", read.text),
                )
                .also(first, "first here")
                .help("give it one weight"),
            );
        }
        seen.push((read.text, span));
        terms.extend(read.term);
        scorers_at.extend(read.policy_at);
    }
    let pick = read_pick(&mut section);
    section.finish();
    let spec = PipelineSpec { filters, terms, pick };
    Some(PipelineConfig { spec, scorers_at })
}

/// Returns the tables of a list, or `None` without the list.
fn entries<'t>(
    section: &mut Section<'t>,
    key: &'static str,
    title: &str,
    most: usize,
) -> Option<Vec<Section<'t>>> {
    let item = section.item(key)?;
    if item.value.as_array().is_some_and(|list| list.is_empty()) {
        return None;
    }
    let what = format!("an item of `{key}` of {title}");
    let mut entries = match item.value.as_array() {
        Some(list) => list
            .iter()
            .filter_map(|entry| Section::of(&item.element(entry.get_ref(), entry.span()), what.clone()))
            .collect::<Vec<_>>(),
        None => return item.wrong_type("a list of tables").or(Some(Vec::new())),
    };
    if entries.len() > most {
        let message = format!(
            "`{key}` has {} items, and a pipeline at most {most}",
            entries.len()
        );
        item.report
            .push(Problem::new(Code::OutOfRange, &item.key_span, message));
        entries.truncate(most);
    }
    Some(entries)
}

fn read_term(mut scorer: Section<'_>) -> ReadTerm {
    let report = scorer.report();
    let (policy, feature) = (scorer.item("policy"), scorer.item("feature"));
    let weight = scorer.item("weight");
    let mut policy_at = None;
    let source = match (&policy, &feature) {
        (Some(policy), None) => policy.text().map(|name| {
            policy_at = Some(report.mark(&name.span));
            TermSource::Policy(name.text.into())
        }),
        (None, Some(feature)) => {
            if weight.is_none() {
                let problem = Problem::new(Code::MissingKey, scorer.span(), "a feature needs a `weight`");
                report.push(problem.help("below 0 where less is better, as of a load: weight = -1"));
            }
            read_feature(feature).map(|name| TermSource::Feature(name.into()))
        }
        (Some(policy), Some(feature)) => {
            report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &feature.key_span,
                    "a scorer is a `policy` or a `feature`",
                )
                .also(&policy.key_span, "and here is the other")
                .help("make two scorers of it"),
            );
            None
        }
        (None, None) => {
            let problem = Problem::new(
                Code::MissingKey,
                scorer.span(),
                "a scorer needs a `policy` or a `feature`",
            );
            let help = "write { policy = \"lora-affinity\", weight = 2 } or { feature = \"load.requests\", weight = -1 }";
            report.push(problem.help(help));
            None
        }
    };
    // An unreadable weight is reported and replaced by 1.
    let weight = weight.and_then(|weight| read_weight(&weight, policy.is_some()));
    let weight = weight.unwrap_or(1.0);
    scorer.finish();
    ReadTerm {
        text: match &source {
            Some(TermSource::Policy(name) | TermSource::Feature(name)) => name.to_string(),
            None => String::new(),
        },
        term: source.map(|source| Term { source, weight }),
        policy_at,
    }
}

fn read_weight(item: &Item<'_>, is_of_policy: bool) -> Option<f64> {
    let weight = item.number(LARGEST_WEIGHT)?;
    if weight == 0.0 {
        let problem = Problem::new(
            Code::OutOfRange,
            &item.span,
            "with a `weight` of 0 it has no effect",
        );
        item.report
            .push(problem.help("leave it out, or give it a weight"));
        return None;
    }
    if is_of_policy && weight < 0.0 {
        let message = format!("the `weight` of a policy must be above 0, not {weight}");
        let problem = Problem::new(Code::OutOfRange, &item.span, message);
        item.report.push(
            problem.help(
                "a scorer's numbers are better the higher they are; of a `feature`, less can be better",
            ),
        );
        return None;
    }
    Some(weight)
}

fn read_pick(section: &mut Section<'_>) -> Pick {
    let choices = [
        ("max", Pick::Max),
        (
            "softmax",
            Pick::Softmax {
                temperature: TEMPERATURE,
            },
        ),
        ("p2c", Pick::PowerOfTwo),
    ];
    let pick = section.choice("pick", Pick::Max, &choices);
    let Some(item) = section.item("temperature") else {
        return pick;
    };
    let temperature = item.positive(HOTTEST);
    match (pick, temperature) {
        (Pick::Softmax { .. }, Some(temperature)) => Pick::Softmax { temperature },
        (Pick::Softmax { .. }, None) => pick,
        _ => {
            let problem = Problem::new(
                Code::NeedsKey,
                &item.key_span,
                "`temperature` has no effect: only `softmax` has one",
            );
            item.report
                .push(problem.help("add pick = \"softmax\", or leave it out"));
            pick
        }
    }
}

/// A former name of a scorer, and its present one.
pub(crate) type RenamedScorer = (String, String);

/// Replaces former names of scorers in a pipeline.
pub(crate) fn rename(policy: &mut PolicyConfig, renamed: &[RenamedScorer]) {
    let PolicySource::Pipeline(pipeline) = &mut policy.source else {
        return;
    };
    for term in &mut pipeline.spec.terms {
        if let TermSource::Policy(name) = &mut term.source
            && let Some((_, present)) = renamed.iter().find(|(former, _)| **former == **name)
        {
            *name = present.as_str().into();
        }
    }
}

/// Resolves the scorers; policies without a table of their own are added to `implied`. Returns those that were renamed.
pub(crate) fn resolve(
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
    report: &Report,
) -> Vec<RenamedScorer> {
    let mut renamed = Vec::new();
    let pipelines = names
        .policies
        .iter()
        .filter_map(|policy| policy.config.pipeline());
    for PipelineConfig { spec, scorers_at } in pipelines {
        for (name, at) in spec.scorers().zip(scorers_at) {
            let mut declared = names.policies.iter().map(|policy| &policy.config);
            if declared.any(|policy| policy.name == name && policy.pipeline().is_some()) {
                let problem = Problem::new(
                    Code::NotSupported,
                    &at.span,
                    format!("`{name}` is a pipeline, which cannot be a scorer"),
                );
                report.push(problem.help("name its scorers here"));
                continue;
            }
            let text = Text {
                text: name,
                span: at.span.clone(),
            };
            let found = find_policy(&text, names, implied, report);
            renamed.extend(
                found
                    .filter(|found| found != name)
                    .map(|found| (name.to_owned(), found)),
            );
        }
    }
    renamed
}
