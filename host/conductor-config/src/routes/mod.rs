//! `[[routes]]`: routing of requests to pools and policies.

pub(crate) mod matching;
pub(crate) mod names;
pub(crate) mod reach;
pub(crate) mod trial;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Item;

use self::matching::{RouteMatch, read_match};
use self::names::{Names, find_policy, find_pool, resolve};
use self::reach::{check_models, check_reachable};
use self::trial::{RouteKeys, TrialConfig};
use crate::policies::model::PolicyConfig;
use crate::policies::pipeline::{self, RenamedScorer};
use crate::pools::admission::{self, ObjectivesConfig};

/// `[[routes]]`. The first route that matches takes the request.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfig {
    /// Conditions of a request.
    pub matches: RouteMatch,
    /// A pool of the configuration.
    pub pool: String,
    /// A policy of the configuration.
    pub policy: String,
    /// Policy of the prefill worker, if the pool splits requests.
    pub prefill_policy: Option<String>,
    /// Policy of the decode worker.
    pub decode_policy: Option<String>,
    /// Policies under trial.
    pub trials: TrialConfig,
    /// Objectives of its requests.
    pub objectives: ObjectivesConfig,
}

impl RouteConfig {
    /// Returns the policies it names, including those under trial.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        let of_phases = self.prefill_policy.iter().chain(&self.decode_policy);
        let canaries = self.trials.canaries.iter().map(|canary| &canary.policy);
        let all = std::iter::once(&self.policy).chain(of_phases).chain(canaries);
        all.chain(&self.trials.shadows).map(String::as_str)
    }
}

/// The routes, and the policies they name that have no table of their own.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) routes: Vec<RouteConfig>,
    pub(crate) implied: Vec<PolicyConfig>,
    /// Scorers of pipelines that are written by a former name.
    pub(crate) renamed: Vec<RenamedScorer>,
}

pub(crate) fn read(item: Option<&Item<'_>>, names: &Names<'_>, report: &Report) -> Routes {
    let mut routes = Routes::default();
    routes.renamed = pipeline::resolve(names, &mut routes.implied, report);
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
            // An unreadable route may be the one that names it.
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
                "add routes, for example\n[[routes]]\nmatch = {{ model = \"llama-*\" }}\npool = \"{}\"",
                first.config.name
            )),
        ),
    }
    routes
}

/// Reads a route; `None` if its pool or policy is missing.
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
    if let Some(pool) = pool.filter(|pool| !names.discovered.contains(&pool.name)) {
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
                "`{}` has no effect: the pool `{pool}` does not split requests",
                item.key
            ),
        )
        .help("use `policy`; or add pd = { dialect = \"nixl\" } to the pool"),
    );
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
