//! `[[routes]]`: which requests go to which pool, under which policy.

use std::collections::HashMap;

use crate::admission::{self, ObjectivesConfig};
use crate::code::Code;
use crate::config::Known;
use crate::diagnostic::Mark;
use crate::pipeline;
use crate::policy::{DeclaredPolicy, PolicyConfig, PolicySource};
use crate::pool::{DeclaredPool, PoolConfig};
use crate::reach::{check_models, check_reachable};
use crate::report::{Problem, Report};
use crate::section::Section;
use crate::source::Span;
use crate::suggest;
use crate::trial::{self, RouteKeys, TrialConfig};
use crate::value::{Item, Text};

/// `[[routes]]`. The first route that matches takes the request.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfig {
    /// What a request must be like.
    pub matches: RouteMatch,
    /// A pool of the configuration.
    pub pool: String,
    /// A policy of the configuration.
    pub policy: String,
    /// The one that decides on the prefill worker instead, where the pool splits requests.
    pub prefill_policy: Option<String>,
    /// The one that decides on the decode worker instead.
    pub decode_policy: Option<String>,
    /// What is tried out beside `policy`.
    pub trials: TrialConfig,
    /// What its requests are to get.
    pub objectives: ObjectivesConfig,
}

impl RouteConfig {
    /// The policies it names, those that are only tried out too.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        let of_phases = self.prefill_policy.iter().chain(&self.decode_policy);
        let canaries = self.trials.canaries.iter().map(|canary| &canary.policy);
        let all = std::iter::once(&self.policy).chain(of_phases).chain(canaries);
        all.chain(&self.trials.shadows).map(String::as_str)
    }
}

/// What a request must be like, all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// Globs (`*`, `?`) one of which its model matches; empty means any request, also one without a model.
    pub models: Vec<String>,
    /// Its path, exactly.
    pub path: Option<String>,
    /// Headers it has, names in lower case, values exactly.
    pub headers: Vec<(String, String)>,
}

/// What routes can name.
pub(crate) struct Names<'n> {
    pub(crate) known: &'n Known<'n>,
    pub(crate) pools: &'n [DeclaredPool],
    pub(crate) policies: &'n [DeclaredPolicy],
    /// Whether there is a policy folder.
    pub(crate) in_folder: Option<&'n [String]>,
}

/// The routes, and the policies they name that have no table of their own.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) routes: Vec<RouteConfig>,
    pub(crate) implied: Vec<PolicyConfig>,
}

pub(crate) fn read(item: Option<&Item<'_>>, names: &Names<'_>, report: &Report) -> Routes {
    let mut routes = Routes::default();
    pipeline::resolve(names, &mut routes.implied, report);
    let sections = item.map(|item| Section::each(item, "`[[routes]]`"));
    match (sections, names.pools) {
        (Some(sections), _) if !sections.is_empty() => {
            let count = sections.len();
            let mut earlier: Vec<(RouteMatch, Span)> = Vec::new();
            for section in sections {
                let span = section.span().clone();
                if let Some(route) = read_one(section, names, &mut routes.implied) {
                    check_reachable(&route.matches, &span, &earlier, report);
                    earlier.push((route.matches.clone(), span));
                    routes.routes.push(route);
                }
            }
            // A route that was not understood may be the one that names it.
            if routes.routes.len() == count {
                report_unused(names, &routes.routes, report);
            }
        }
        // Reported with the pools.
        (_, []) => {}
        (_, [only]) => {
            let place = report.mark(&only.name_span);
            let policy = resolve(names.known.default_policy, names, &mut routes.implied, place);
            routes.routes.push(RouteConfig {
                matches: RouteMatch::default(),
                pool: only.config.name.clone(),
                policy: policy.unwrap_or_default(),
                prefill_policy: None,
                decode_policy: None,
                trials: TrialConfig::default(),
                objectives: ObjectivesConfig::default(),
            });
            report_unused(names, &routes.routes, report);
        }
        (_, [first, ..]) => report.push(
            Problem::new(
                Code::NoRoutes,
                &item.map_or(first.name_span.clone(), |item| item.span.clone()),
                format!("there are {} pools and no routes", names.pools.len()),
            )
            .help(format!(
                "say what goes where, for example\n[[routes]]\nmatch = {{ model = \"llama-*\" }}\npool = \"{}\"",
                first.config.name
            )),
        ),
    }
    routes
}

/// The route, unless its pool or policy is missing.
fn read_one(
    mut route: Section<'_>,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
) -> Option<RouteConfig> {
    let report = route.report();
    let (matches, models) = match route.section("match", "`match` of `[[routes]]`") {
        Some(section) => read_match(section),
        None => Default::default(),
    };
    let example = names.pools.first().map_or("main", |pool| &pool.config.name);
    let pool_text = route
        .required("pool", &format!("\"{example}\""))
        .and_then(|item| item.text());
    let pool = pool_text.and_then(|text| find_pool(&text, names, report));
    if let Some(pool) = pool {
        check_models(&models, pool, report);
    }
    let policy = match route.item("policy") {
        Some(item) => item
            .text()
            .and_then(|text| find_policy(&text, names, implied, report)),
        None => resolve(
            names.known.default_policy,
            names,
            implied,
            report.mark(route.span()),
        ),
    };
    let mut first_of_phase = None;
    let mut of_phase = |key| {
        let item = route.item(key)?;
        first_of_phase.get_or_insert((key, item.key_span.clone()));
        if let Some(pool) = pool.filter(|pool| pool.pd.is_none()) {
            report_no_phases(&item, &pool.name);
        }
        find_policy(&item.text()?, names, implied, report)
    };
    let prefill_policy = of_phase("prefill-policy");
    let decode_policy = of_phase("decode-policy");
    let keys = RouteKeys {
        policy: policy.as_deref(),
        of_phase: first_of_phase,
    };
    let trials = trial::read(&mut route, &keys, names, implied);
    let objectives = admission::read_objectives(&mut route);
    route.finish();
    Some(RouteConfig {
        matches,
        pool: pool?.name.clone(),
        policy: policy?,
        prefill_policy,
        decode_policy,
        trials,
        objectives,
    })
}

fn report_no_phases(item: &Item<'_>, pool: &str) {
    item.report.push(
        Problem::new(
            Code::NeedsKey,
            &item.key_span,
            format!(
                "`{}` means nothing: the pool `{pool}` does not split requests",
                item.key
            ),
        )
        .help("use `policy`; or add pd = { dialect = \"nixl\" } to the pool"),
    );
}

fn read_match(mut section: Section<'_>) -> (RouteMatch, Vec<Text<'_>>) {
    let report = section.report();
    let invalid = |span: &Span, message: &str, help: &str| {
        report.push(Problem::new(Code::InvalidValue, span, message).help(help));
    };
    let model = section.item("model");
    let models = model
        .as_ref()
        .and_then(|item| item.text_or_texts())
        .unwrap_or_default();
    if let Some(item) = model.filter(|item| item.value.as_array().is_some_and(|list| list.is_empty())) {
        invalid(
            &item.span,
            "a route for no model matches nothing",
            "leave `model` out to match every model",
        );
    }
    for empty in models.iter().filter(|model| model.text.is_empty()) {
        invalid(
            &empty.span,
            "an empty model matches nothing",
            "leave `model` out to match every model",
        );
    }
    let path = section.text("path");
    if let Some(path) = &path
        && (!path.text.starts_with('/') || path.text.contains(['*', '?', '#']))
    {
        invalid(
            &path.span,
            "`path` is compared exactly, with the request's path up to its `?`",
            "write a whole path, for example \"/v1/chat/completions\"",
        );
    }
    let headers = section
        .section("header", "`header` of `match`")
        .map(|section| read_headers(&section))
        .unwrap_or_default();
    section.finish();
    let matches = RouteMatch {
        models: models.iter().map(|model| model.text.to_owned()).collect(),
        path: path.map(|path| path.text.to_owned()),
        headers,
    };
    (matches, models)
}

fn read_headers(section: &Section<'_>) -> Vec<(String, String)> {
    let mut seen: HashMap<String, Span> = HashMap::new();
    let mut headers = Vec::new();
    for entry in section.entries() {
        let name = entry.key.to_ascii_lowercase();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            entry.report.push(
                Problem::new(
                    Code::InvalidName,
                    &entry.key_span,
                    format!("`{}` cannot name a header", entry.key),
                )
                .help("use letters, digits and dashes"),
            );
        }
        if let Some(first) = seen.insert(name.clone(), entry.key_span.clone()) {
            entry.report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &entry.key_span,
                    format!("the header `{name}` is there twice"),
                )
                .label("again here")
                .also(&first, "first here")
                .help("the case of a header's name does not count: keep one of the two"),
            );
        }
        if let Some(value) = entry.text() {
            if value.text.chars().any(char::is_control) {
                entry.report.push(
                    Problem::new(
                        Code::InvalidValue,
                        &value.span,
                        format!("no header can have this value of `{name}`: it has a control character"),
                    )
                    .help("write the value as a client sends it"),
                );
            }
            headers.push((name, value.text.to_owned()));
        }
    }
    headers
}

fn find_pool<'n>(text: &Text<'_>, names: &Names<'n>, report: &Report) -> Option<&'n PoolConfig> {
    let found = names.pools.iter().find(|pool| pool.config.name == text.text);
    if found.is_none() {
        let all = names.pools.iter().map(|pool| pool.config.name.as_str());
        report.push(
            Problem::new(
                Code::NoSuchPool,
                &text.span,
                format!("there is no pool `{}`", text.text),
            )
            .maybe_help(suggest::help(text.text, all)),
        );
    }
    found.map(|pool| &pool.config)
}

pub(crate) fn find_policy(
    text: &Text<'_>,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
    report: &Report,
) -> Option<String> {
    let found = resolve(text.text, names, implied, report.mark(&text.span));
    if found.is_none() {
        let declared = names.policies.iter().map(|policy| policy.config.name.as_str());
        let in_folder = names.in_folder.unwrap_or_default().iter().map(String::as_str);
        let all = declared
            .chain(names.known.builtins.iter().copied())
            .chain(in_folder);
        let name = text.text;
        let help = suggest::help(name, all).map(|help| match names.in_folder {
            Some(_) => format!("{help}; or put {name}.wasm into the folder `policy-dir` names"),
            None => help,
        });
        report.push(
            Problem::new(
                Code::NoSuchPolicy,
                &text.span,
                format!("there is no policy `{}`", text.text),
            )
            .maybe_help(help),
        );
    }
    found
}

/// A policy by its own table, else a builtin, else a file of the policy folder.
fn resolve(name: &str, names: &Names<'_>, implied: &mut Vec<PolicyConfig>, place: Mark) -> Option<String> {
    let exists = names.policies.iter().any(|policy| policy.config.name == name)
        || implied.iter().any(|policy| policy.name == name);
    if !exists {
        let source = if names.known.builtins.contains(&name) {
            PolicySource::Builtin(name.to_owned())
        } else if names
            .in_folder
            .is_some_and(|files| files.iter().any(|file| file == name))
        {
            PolicySource::Folder
        } else {
            return None;
        };
        implied.push(PolicyConfig::implied(name, source, place));
    }
    Some(name.to_owned())
}

fn report_unused(names: &Names<'_>, routes: &[RouteConfig], report: &Report) {
    for pool in names.pools {
        if !routes.iter().any(|route| route.pool == pool.config.name) {
            report.push(Problem::new(
                Code::UnusedPool,
                &pool.name_span,
                format!("no route leads to the pool `{}`", pool.config.name),
            ));
        }
    }
    let example = names.pools.first().map_or("main", |pool| &pool.config.name);
    for policy in names.policies {
        let name = &policy.config.name;
        let is_scorer = names.policies.iter().any(|other| {
            let pipeline = other.config.pipeline();
            pipeline.is_some_and(|pipeline| pipeline.spec.scorers().any(|scorer| scorer == name))
        });
        let is_routed = || {
            let mut named = routes.iter().flat_map(RouteConfig::policies);
            named.any(|named| named == name)
        };
        if !is_scorer && !is_routed() {
            report.push(
                Problem::new(
                    Code::UnusedPolicy,
                    &policy.name_span,
                    format!("no route names the policy `{name}`"),
                )
                .help(format!(
                    "name it in a route, for example\n[[routes]]\npool = \"{example}\"\npolicy = \"{name}\""
                )),
            );
        }
    }
}
