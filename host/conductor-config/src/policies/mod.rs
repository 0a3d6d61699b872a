//! `[policies.NAME]`: source, parameters, limits and circuit breaker of a policy.

pub(crate) mod compile;
pub(crate) mod model;
pub(crate) mod param;
pub(crate) mod pipeline;

use std::path::PathBuf;
use std::time::Duration;

use routing::CircuitSpec;

use crate::document::code::Code;
use crate::document::renamed::warn_renamed;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::suggest;
use crate::document::value::Item;
use crate::known::Known;
use crate::name;
use crate::sha256;

use self::model::{DEFAULT_SESSIONS, DeclaredPolicy, PolicyConfig, PolicyLimits, PolicySource, UnreadPart};

/// Largest limit of sessions: about 100 MB.
const MOST_SESSIONS: u32 = 1_048_576;

pub(crate) fn read(
    section: Option<Section<'_>>,
    known: &Known<'_>,
    in_folder: Option<&[String]>,
) -> Vec<DeclaredPolicy> {
    let entries = section.map(|policies| policies.entries()).unwrap_or_default();
    entries
        .iter()
        .map(|entry| read_one(entry, known, in_folder))
        .collect()
}

/// Reports files of the policy folder with the name of a builtin. They replace it only if a table of that name has a
/// file as source.
pub(crate) fn report_ignored(
    folder: &Item<'_>,
    policies: &[DeclaredPolicy],
    known: &Known<'_>,
    in_folder: &[String],
) {
    let builtins = in_folder
        .iter()
        .filter(|name| known.builtins.contains(&name.as_str()));
    for name in builtins {
        let mut declared = policies.iter().map(|policy| &policy.config);
        if declared.any(|policy| policy.name == *name && policy.source.is_file()) {
            continue;
        }
        let message = format!(
            "`{name}.wasm` of the policy folder is not loaded: `{name}` is a builtin, which a file replaces only where a table says so"
        );
        folder
            .report
            .push(Problem::new(Code::IgnoredPolicyFile, &folder.span, message).help(ignored_file_fix(name)));
    }
}

/// Returns the advice for loading a file that has the name of a builtin.
#[must_use]
pub fn ignored_file_fix(name: &str) -> String {
    format!("rename it, or replace the builtin with a table [policies.{name}] that has no `builtin`")
}

fn read_one(entry: &Item<'_>, known: &Known<'_>, in_folder: Option<&[String]>) -> DeclaredPolicy {
    name::check(
        &entry.key,
        name::IN_NAMES,
        "a policy",
        &entry.key_span,
        entry.report,
    );
    let place = entry.report.mark(&entry.key_span);
    let mut declared = DeclaredPolicy {
        config: PolicyConfig::implied(&entry.key, PolicySource::Folder, place),
        name_span: entry.key_span.clone(),
        unread: Some(UnreadPart::Source),
    };
    let errors_before = entry.report.error_count();
    let Some(mut policy) = Section::of(entry, format!("`[policies.{}]`", entry.key)) else {
        return declared;
    };
    let config = &mut declared.config;
    if let Some(item) = policy.item("pipeline") {
        read_pipeline(&item, &mut policy, config);
        if config.pipeline().is_some() {
            // A pipeline itself is not loaded.
            declared.unread = None;
        }
        policy.finish();
        return declared;
    }
    let source = read_source(&mut policy, entry, known, in_folder);
    declared.unread = source.is_none().then_some(UnreadPart::Source);
    let config = &mut declared.config;
    if let Some((source, span)) = source {
        config.source = source;
        config.source_at = entry.report.mark(&span);
    }
    if let Some(params) = policy.item("params") {
        config.params_at = Some(entry.report.mark(&params.span));
        config.param_places = param::places(&params);
        config.params_json = param::json(&params);
    }
    if let Some(limits) = policy.section("limits", &format!("`limits` of `[policies.{}]`", entry.key)) {
        config.limits = read_limits(limits);
    }
    if let Some(circuit) = policy.section("circuit", &format!("`circuit` of `[policies.{}]`", entry.key)) {
        config.circuit = read_circuit(circuit);
    }
    let most = policy.count("sessions", DEFAULT_SESSIONS.into(), 1..=MOST_SESSIONS.into());
    config.sessions = u32::try_from(most).unwrap_or(MOST_SESSIONS);
    if let Some(pin) = policy.text("sha256") {
        config.sha256_at = Some(entry.report.mark(&pin.span));
        config.sha256 = sha256::read(&pin, "sha256", entry.report);
    }
    policy.finish();
    if declared.unread.is_none() && entry.report.error_count() > errors_before {
        declared.unread = Some(UnreadPart::Settings);
    }
    declared
}

fn read_pipeline(item: &Item<'_>, policy: &mut Section<'_>, config: &mut PolicyConfig) {
    for key in [
        "builtin", "path", "params", "limits", "circuit", "sessions", "sha256",
    ] {
        let Some(other) = policy.item(key) else {
            continue;
        };
        item.report.push(
            Problem::new(
                Code::ConflictingKeys,
                &other.key_span,
                format!("a pipeline has no `{key}` of its own"),
            )
            .also(&item.key_span, "it consists of other policies")
            .help(format!(
                "give a `{key}` to one of its scorers, in a table of that one"
            )),
        );
    }
    config.source_at = item.report.mark(&item.key_span);
    if let Some(pipeline) = pipeline::read(item, &format!("`[policies.{}]`", config.name)) {
        config.source = PolicySource::Pipeline(pipeline);
    }
}

fn read_source(
    policy: &mut Section<'_>,
    entry: &Item<'_>,
    known: &Known<'_>,
    in_folder: Option<&[String]>,
) -> Option<(PolicySource, Span)> {
    match (policy.item("builtin"), policy.item("path")) {
        (Some(builtin), Some(path)) => {
            entry.report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &path.key_span,
                    format!("`{}` has both `builtin` and `path`", entry.key),
                )
                .also(&builtin.key_span, "a policy comes from one place")
                .help("keep one of the two"),
            );
            None
        }
        (Some(builtin), None) => builtin_source(&builtin, known),
        (None, Some(path)) => {
            let text = path.text()?;
            if text.text.is_empty() {
                path.report.push(
                    Problem::new(Code::InvalidValue, &text.span, "`path` is empty")
                        .help("name a component, for example \"policies/mine.wasm\""),
                );
                return None;
            }
            Some((PolicySource::File(PathBuf::from(text.text)), text.span))
        }
        (None, None) if in_folder.is_some_and(|names| names.contains(&entry.key)) => {
            Some((PolicySource::Folder, entry.key_span.clone()))
        }
        (None, None) => {
            report_no_source(entry, known, in_folder.is_some());
            None
        }
    }
}

fn builtin_source(builtin: &Item<'_>, known: &Known<'_>) -> Option<(PolicySource, Span)> {
    let text = builtin.text()?;
    if known.builtins.contains(&text.text) {
        return Some((PolicySource::Builtin(text.text.to_owned()), text.span));
    }
    if let Some(renamed) = known.renamed_builtin(text.text) {
        warn_renamed(builtin.report, &text.span, renamed);
        return Some((PolicySource::Builtin(renamed.1.to_owned()), text.span));
    }
    builtin.report.push(
        Problem::new(
            Code::NoSuchBuiltin,
            &text.span,
            format!("there is no builtin policy `{}`", text.text),
        )
        .maybe_help(suggest::help(text.text, known.builtins.iter().copied())),
    );
    None
}

fn report_no_source(entry: &Item<'_>, known: &Known<'_>, has_folder: bool) {
    let name = &entry.key;
    let help = if known.builtins.contains(&name.as_str()) {
        format!("add builtin = \"{name}\" for the one that is part of Conductor, or a `path`")
    } else if has_folder {
        format!("add `builtin` or `path`, or put {name}.wasm into the folder `policy-dir` names")
    } else {
        format!("add `builtin` or `path`, or set `policy-dir` to the folder that holds {name}.wasm")
    };
    entry.report.push(
        Problem::new(
            Code::PolicyWithoutSource,
            &entry.key_span,
            format!("the policy `{name}` has no source"),
        )
        .help(help),
    );
}

fn read_limits(mut limits: Section<'_>) -> PolicyLimits {
    let default = PolicyLimits::default();
    let config = PolicyLimits {
        cpu: limits.duration(
            "cpu",
            default.cpu,
            Duration::from_micros(50)..=Duration::from_secs(1),
        ),
        wall: limits.duration(
            "wall",
            default.wall,
            Duration::from_millis(1)..=Duration::from_secs(10),
        ),
        memory: limits.size("memory", default.memory, 64 << 10..=256 << 20),
    };
    if config.wall < config.cpu {
        limits.report().push(
            Problem::new(
                Code::ConflictingKeys,
                limits.span(),
                "`wall` is shorter than `cpu`",
            )
            .help(
                "CPU time passes no faster than the clock: make `wall` several times `cpu`, for when the \
                 machine is busy",
            ),
        );
    }
    limits.finish();
    config
}

fn read_circuit(mut circuit: Section<'_>) -> CircuitSpec {
    let default = CircuitSpec::default();
    let longest = Duration::from_hours(24);
    let faults = circuit.count("faults", default.faults.into(), 1..=1_000_000);
    let times = Duration::from_millis(10)..=longest;
    let open_time = circuit
        .renamed_item("open-time", "rest")
        .and_then(|item| item.duration(&times))
        .unwrap_or(default.open_time);
    let spec = CircuitSpec {
        faults: u32::try_from(faults).unwrap_or(u32::MAX),
        share: circuit
            .item("share")
            .and_then(|share| share.positive(1.0))
            .unwrap_or(default.share),
        window: circuit.duration("window", default.window, Duration::from_millis(100)..=longest),
        open_time,
        max_open_time: circuit
            .renamed_item("max-open-time", "longest-rest")
            .and_then(|item| item.duration(&times))
            .unwrap_or(default.max_open_time.max(open_time)),
        ..default
    };
    if spec.max_open_time < spec.open_time {
        circuit.report().push(
            Problem::new(
                Code::ConflictingKeys,
                circuit.span(),
                "`max-open-time` is shorter than `open-time`",
            )
            .help("a failed probe doubles `open-time` up to `max-open-time`: make that at least `open-time`"),
        );
    }
    circuit.finish();
    spec
}
