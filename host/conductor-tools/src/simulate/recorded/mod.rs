//! A decision log as what is simulated: its requests, its workers, costs fitted to it, and the policy that decided.

mod measured;
mod report;
mod requests;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use routing::Role;
use simulator::{ClusterSpec, Fit, Profile, Recording, RunSpec, StepWork, UNKNOWN_NUMBERS, WorkerSpec};

use self::measured::Measured;
pub use self::measured::{LogAccuracy, MeasuredFigure};
pub(super) use self::report::RecordedReport;
use self::report::{About, FitReport, NotModelled};
use self::requests::{LeftOut, LoggedPolicy, LoggedPool, LoggedRequests, LoggedWorker, PartFacts};
use super::contestant::{Contestant, split};
use crate::UsageError;
use crate::args::{ArrivalKind, CACHE_TOKENS, ProfileName, SimulateArgs};
use crate::policy::component::ComponentFile;
use policy_store::builtin;

/// Prompts whose beginnings are not known share nothing in a simulation, while they did where they were recorded: with
/// more of them, another load would be simulated.
const LEAST_WITH_BLOCKS: f64 = 0.9;

/// Recorded requests of one pool, and the costs of their work.
#[derive(Debug)]
pub(super) struct RecordedTrace {
    pub(super) recording: Recording,
    /// Workers in the order of the router's pool, decode workers last.
    workers: Vec<LoggedWorker>,
    /// Fitted profile, if one was requested.
    fit: Option<Fit>,
    /// Policy that placed most of the requests, and their number.
    policy: (LoggedPolicy, usize),
    about: About,
}

impl RecordedTrace {
    /// Reads the log that the arguments name, if they do.
    pub(super) fn read(args: &SimulateArgs) -> anyhow::Result<Option<Self>> {
        let Some(first) = args.log.first() else {
            return Ok(None);
        };
        let mut log = LoggedRequests::read(&args.log)?;
        let (name, pool) = chosen(&mut log, args.pool.as_deref())?;
        let most = args.requests.map(|requests| requests as usize);
        let facts = pool.first(most);
        let facts = facts.ok_or_else(|| anyhow!("failed to read the log: no policy placed a request"))?;
        let block_tokens = block_tokens(&pool, &facts)?;
        let requests = facts.requests as f64;
        let title = first.file_stem().unwrap_or_default().to_string_lossy();
        let workers = pool.fleet();
        let recording = Recording::of(&title, block_tokens, workers.len(), pool.requests);
        let recording = match most {
            Some(requests) => recording.first(requests),
            None => recording,
        };
        let recording = match args.arrivals {
            ArrivalKind::AfterAnswers => recording,
            ArrivalKind::Recorded => Recording {
                trace: recording.trace.at_recorded_times(),
                ..recording
            },
        };
        let fit = (args.cluster.profile == ProfileName::Log).then(|| {
            let room = room_tokens(args.cluster.cache_tokens, block_tokens);
            let work = step_work(&workers, args.cluster.chunk_tokens);
            Fit::of(&recording, room, work)
                .context("failed to learn from the log what requests cost; give a --profile")
        });
        let fit = fit.transpose()?;
        let policy = facts.policy;
        let about = About {
            pool: name,
            policy: policy.0.name.clone(),
            policy_share: policy.1 as f64 / requests,
            recorded_share: log.share(),
            unreadable_lines: log.unreadable,
            without_decision: log.without_decision,
            left_out: pool.left_out,
            with_blocks: facts.with_blocks as f64 / requests,
            before_decision_ms: facts.before_ms / requests,
            fit: fit.as_ref().map(FitReport::of),
        };
        Ok(Some(Self {
            recording,
            workers,
            fit,
            policy,
            about,
        }))
    }

    /// Returns the fitted profile, if one was requested.
    pub(super) fn profile(&self) -> Option<Profile> {
        Some(Profile::Fitted(self.fit.as_ref()?.profile.clone()))
    }

    /// Returns the log's workers, each with so many blocks in its cache. With `requested`, returns so many workers
    /// that do everything: the first of them, or copies of them besides.
    pub(super) fn cluster(&self, requested: Option<u32>, cache_blocks: usize) -> anyhow::Result<ClusterSpec> {
        let mut workers = self.workers.clone();
        if let Some(requested) = requested {
            if workers.iter().any(|worker| worker.role != Role::Mixed) {
                bail!(
                    "failed to take --workers: those of the log compute prompts or write answers; it says how many of each"
                );
            }
            workers = with_copies(&workers, requested as usize);
        }
        let profile = Profile::default();
        let worker = |LoggedWorker { role, identity }| WorkerSpec {
            identity: Some(identity),
            ..match role {
                Role::Decode => WorkerSpec::of(&profile, role, 0),
                role => WorkerSpec::of(&profile, role, cache_blocks),
            }
        };
        Ok(ClusterSpec {
            workers: workers.into_iter().map(worker).collect(),
            ..ClusterSpec::mixed(0, cache_blocks, None)
        })
    }

    /// Returns the recorded policy, if it is available, and then the named ones.
    pub(super) fn contestants(&self, requested: &[String]) -> anyhow::Result<Vec<Contestant>> {
        let own = self.policy(requested)?;
        let others = requested
            .iter()
            .filter(|requested| Some(*requested) != own.as_ref());
        let all: Vec<String> = own.iter().chain(others).cloned().collect();
        Contestant::all(&all)
    }

    /// Returns the report on the log, with the error of the model if the first policy is the recorded one.
    pub(super) fn report(self, contestants: &[Contestant], spec: &RunSpec) -> anyhow::Result<RecordedReport> {
        let is_whole = spec.cluster.workers.len() == self.workers.len();
        let own = contestants.first().filter(|first| is_whole && self.is_by(first));
        let measured = own
            .map(|own| Measured::of(&self.recording, own, spec))
            .transpose()?;
        Ok(RecordedReport {
            about: self.about,
            not_modelled: NotModelled {
                only_weights_differ: only_weights_differ(&spec.cluster.workers),
                unknown_numbers: unknown_numbers(contestants),
            },
            measured,
        })
    }

    /// Returns the accuracy of the model for the policy that decided.
    pub(super) fn accuracy(&self, spec: &RunSpec) -> anyhow::Result<LogAccuracy> {
        let contestants = self.contestants(&[])?;
        let policy = contestants
            .first()
            .ok_or_else(|| anyhow!("failed to compare: the log's policy is not built in"))?;
        Ok(Measured::of(&self.recording, policy, spec)?.accuracy())
    }

    fn is_by(&self, contestant: &Contestant) -> bool {
        Some(&contestant.sha256) == self.policy.0.sha256.as_ref()
    }

    /// Returns the policy that decided, as an argument would name it: a built-in one, or one of the given ones.
    fn policy(&self, given: &[String]) -> anyhow::Result<Option<String>> {
        let policy = &self.policy.0;
        let is_it = |subject: &ComponentFile| Some(subject.sha256()) == policy.sha256;
        let mut which = builtin::BUILTINS
            .iter()
            .find(|builtin| is_it(&ComponentFile::of(builtin)))
            .map(|it| it.name);
        for (file, _) in given.iter().map(|given| split(given)) {
            if which.is_none() && is_it(&ComponentFile::find(Path::new(file)).map_err(UsageError::new)?) {
                which = Some(file);
            }
        }
        if let Some(which) = which {
            let params = policy.params.as_deref().filter(|params| *params != "{}");
            return Ok(Some(
                params.map_or_else(|| which.to_owned(), |params| format!("{which}={params}")),
            ));
        }
        if given.is_empty() {
            bail!(
                "failed to simulate the policy `{}` of the log: it is not one that this version has built in. Name its file, or \
                 the policies that are to place the requests instead",
                policy.name
            );
        }
        Ok(None)
    }
}

/// Returns the first so many workers; where there are not as many, copies of them with names of their own besides.
fn with_copies(workers: &[LoggedWorker], count: usize) -> Vec<LoggedWorker> {
    let mut all: Vec<LoggedWorker> = workers.iter().cycle().take(count).cloned().collect();
    let mut names: HashSet<String> = workers
        .iter()
        .map(|worker| worker.identity.name.clone())
        .collect();
    for (at, copy) in all.iter_mut().enumerate().skip(workers.len()) {
        let name = &mut copy.identity.name;
        while !names.insert(name.clone()) {
            *name = format!("{name}-{at}");
        }
    }
    all
}

/// Returns the room for running requests. Without a cache they have room all the same.
fn room_tokens(cache_tokens: u64, block_tokens: u32) -> u64 {
    match cache_tokens < u64::from(block_tokens) {
        true => CACHE_TOKENS,
        false => cache_tokens,
    }
}

/// Returns whether two of the workers have different weights, and all of them the same speed.
fn only_weights_differ(workers: &[WorkerSpec]) -> bool {
    let weight = |worker: &WorkerSpec| worker.identity.as_ref().map(|identity| identity.weight);
    let mut pairs = workers.windows(2);
    workers.windows(2).all(|pair| pair[0].speed == pair[1].speed)
        && pairs.any(|pair| weight(&pair[0]) != weight(&pair[1]))
}

/// Returns the numbers that policies read and no log has, each with those policies.
fn unknown_numbers(contestants: &[Contestant]) -> BTreeMap<String, Vec<String>> {
    let mut readers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for contestant in contestants {
        let features = contestant.request_columns.iter();
        for feature in features.filter(|feature| UNKNOWN_NUMBERS.contains(feature)) {
            let name = feature.name().to_owned();
            readers.entry(name).or_default().push(contestant.label.clone());
        }
    }
    readers
}

/// Returns the work of a step. By default, only workers that do everything split prompts, as in the simulation.
fn step_work(workers: &[LoggedWorker], chunk_tokens: Option<u32>) -> StepWork {
    let does_all = workers.iter().all(|worker| worker.role == Role::Mixed);
    match chunk_tokens.map_or(does_all, |tokens| tokens > 0) {
        true => StepWork::Both,
        false => StepWork::Either,
    }
}

/// Returns the named pool, or the only one.
fn chosen(log: &mut LoggedRequests, requested: Option<&str>) -> anyhow::Result<(String, LoggedPool)> {
    log.pools
        .retain(|_, pool| pool.left_out != LeftOut::default() || !pool.requests.is_empty());
    let names: Vec<String> = log.pools.keys().cloned().collect();
    let name = match (requested, names.as_slice()) {
        (Some(requested), _) => requested.to_owned(),
        (None, [only]) => only.clone(),
        (None, []) => bail!("failed to read the log: no request has a decision in it"),
        (None, several) => bail!(
            "failed to simulate a log of several pools: choose one with --pool, of {}",
            several.join(", ")
        ),
    };
    let pool = log.pools.remove(&name);
    let pool = pool.ok_or_else(|| {
        anyhow!(
            "failed to find the pool `{name}` in the log: it has {}",
            names.join(", ")
        )
    })?;
    if pool.requests.is_empty() {
        bail!("failed to simulate the log: of its requests {}", pool.left_out);
    }
    Ok((name, pool))
}

fn block_tokens(pool: &LoggedPool, facts: &PartFacts) -> anyhow::Result<u32> {
    let Some(tokens) = pool.block_tokens else {
        bail!(
            "failed to simulate the log: it does not show which prompts share a prefix. Record with `prompt-blocks = 16` in `[record]`, \
             in a pool whose prompts are tokenized (host/docs/policies/decision-log.md)"
        );
    };
    let share = facts.with_blocks as f64 / facts.requests as f64;
    if share < LEAST_WITH_BLOCKS {
        bail!(
            "failed to simulate the log: it has the beginnings of {:.0} % of the prompts, and at least {:.0} % are needed. Record with a \
             longer `tokenize-timeout`, or `tokenize = \"local\"`, where prompts were not tokenized in time",
            100.0 * share,
            100.0 * LEAST_WITH_BLOCKS
        );
    }
    Ok(tokens)
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests {
    use simulator::WorkerIdentity;

    use super::*;

    fn worker(name: &str, role: Role) -> LoggedWorker {
        let identity = WorkerIdentity {
            name: name.to_owned(),
            weight: 2.0,
            labels: BTreeMap::from([("of".to_owned(), name.to_owned())]),
        };
        LoggedWorker { role, identity }
    }

    #[test]
    fn workers_besides_those_of_the_log_are_copies_with_names_of_their_own() {
        let logged = ["a", "b", "a-2"].map(|name| worker(name, Role::Mixed));
        assert_eq!(with_copies(&logged, 2), logged[..2]);
        let more = with_copies(&logged, 7);
        assert_eq!(more[..3], logged);
        let names: HashSet<&String> = more.iter().map(|worker| &worker.identity.name).collect();
        assert_eq!(names.len(), 7);
        let labels: Vec<&str> = more
            .iter()
            .map(|worker| worker.identity.labels["of"].as_str())
            .collect();
        assert_eq!(labels, ["a", "b", "a-2", "a", "b", "a-2", "a"]);
        assert!(more.iter().all(|worker| worker.identity.weight == 2.0));
    }

    #[test]
    fn different_weights_are_reported_only_of_workers_with_equal_speeds() {
        let workers = |weights: [f64; 2], speeds: [f64; 2]| {
            [0, 1].map(|at| WorkerSpec {
                speed: speeds[at],
                identity: Some(WorkerIdentity {
                    weight: weights[at],
                    ..worker("a", Role::Mixed).identity
                }),
                ..WorkerSpec::of(&Profile::default(), Role::Mixed, 0)
            })
        };
        assert!(only_weights_differ(&workers([1.0, 2.0], [1.0, 1.0])));
        assert!(!only_weights_differ(&workers([1.0, 2.0], [1.0, 2.0])));
        assert!(!only_weights_differ(&workers([2.0, 2.0], [1.0, 1.0])));
    }

    #[test]
    fn running_requests_have_room_without_a_cache() {
        assert_eq!(room_tokens(65_536, 16), 65_536);
        assert_eq!(
            (room_tokens(0, 16), room_tokens(15, 16)),
            (CACHE_TOKENS, CACHE_TOKENS)
        );
    }

    #[test]
    fn mixed_workers_beside_decode_workers_compute_whole_prompts() {
        let worker = |role| worker("", role);
        let (alone, beside) = ([worker(Role::Mixed)], [worker(Role::Mixed), worker(Role::Decode)]);
        assert_eq!(step_work(&alone, None), StepWork::Both);
        assert_eq!(step_work(&alone, Some(0)), StepWork::Either);
        assert_eq!(step_work(&beside, None), StepWork::Either);
        assert_eq!(step_work(&beside, Some(8_192)), StepWork::Both);
    }
}
