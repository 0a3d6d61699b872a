//! Task of the agreement: follows the store, and writes proposals and reports to it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agreement::{
    AgreedEntry, AgreedKey, AgreedStore, AgreedWrite, Agreement, KnownEntry, MOST_ENTRIES, ReportKey,
    RouterStates, StoreEvent, WriteOutcome,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::fetches::ObjectFetches;
use super::handle::{AgreedHandle, Proposed};
use super::metrics::AgreementMetrics;
use super::offers::ObjectOffers;
use super::recent::RecentReports;
use super::trials::{TrialExchange, TrialLook, TrialSource};
use super::view::{AgreedView, ViewEntry};

/// Interval of looks at the experiments.
const BEAT: Duration = Duration::from_millis(250);
/// Shortest time between two reports of evidence.
const EVIDENCE: Duration = Duration::from_secs(1);
/// Interval of reports of unchanged states: the others drop old ones first.
const STATES: Duration = Duration::from_hours(1);
/// Most routers whose states are kept.
const MOST_ROUTERS: usize = 256;

/// Parts of the agreement.
#[derive(Debug)]
pub struct AgreementParts<T> {
    /// Handle of the rest of the router.
    pub handle: AgreedHandle,
    /// Experiments of the active configuration.
    pub trials: T,
    /// Metrics.
    pub metrics: Arc<AgreementMetrics>,
}

/// The task.
#[derive(Debug)]
pub struct AgreementTask<T> {
    parts: AgreementParts<T>,
    agreement: Agreement,
    exchange: TrialExchange,
    states: RecentReports<String, RouterStates, MOST_ROUTERS>,
    offers: ObjectOffers,
    fetches: ObjectFetches,
    own_states: OwnStates,
    evidence_at: Option<Instant>,
    /// Reason of the store's absence. `None` while it is reached.
    absence: Option<String>,
    generation: u64,
}

/// Report on the states of the entries at this router.
#[derive(Debug)]
struct OwnStates {
    /// States that the store does not have yet.
    unsent: Option<RouterStates>,
    /// Time of the latest report.
    at: Instant,
}

impl<T: TrialSource> AgreementTask<T> {
    /// Returns the task.
    #[must_use]
    pub fn new(parts: AgreementParts<T>) -> Self {
        Self {
            agreement: Agreement::new(parts.handle.router()),
            parts,
            exchange: TrialExchange::default(),
            states: RecentReports::default(),
            offers: ObjectOffers::default(),
            fetches: ObjectFetches::default(),
            own_states: OwnStates {
                unsent: None,
                at: Instant::now(),
            },
            evidence_at: None,
            absence: Some("it is not reached yet".to_owned()),
            generation: 0,
        }
    }

    /// Follows the store until `stop` is cancelled.
    pub async fn run<S: AgreedStore>(mut self, mut store: S, stop: CancellationToken) {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.publish_view();
        loop {
            let mut is_beat = false;
            let changed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                event = store.next() => match self.handle(event) {
                    Some(changed) => changed,
                    None => return,
                },
                (sha256, bytes) = self.fetches.finished() => {
                    if let Some(object) = self.fetches.take_in(&sha256, bytes) {
                        self.parts.handle.set_object(&sha256, object);
                    }
                    false
                }
                (sha256, outcome) = self.offers.finished() => self.offers.take_in(&sha256, outcome),
                () = self.parts.handle.proposed() => false,
                _ = beat.tick() => {
                    is_beat = true;
                    false
                }
            };
            let step = async {
                let changed = self.step(&mut store, is_beat).await || changed;
                if changed {
                    self.publish_view();
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = step => {}
            }
        }
    }

    /// Handles an event of the store. Returns whether the view changed; `None` if the store has ended.
    fn handle(&mut self, event: StoreEvent) -> Option<bool> {
        match event {
            StoreEvent::Opened => {
                self.agreement.opened();
                self.exchange.opened();
                self.states = RecentReports::default();
                self.offers.opened();
                self.own_states.unsent = Some(self.parts.handle.states());
            }
            StoreEvent::Entry { key, revision, bytes } => match AgreedEntry::decode(&bytes) {
                Ok(entry) => self.agreement.learned(key, KnownEntry { revision, entry }),
                Err(error) => {
                    self.parts.metrics.refused();
                    let error = &error as &dyn std::error::Error;
                    warn!(%key, revision, error, "an agreed entry is left out until a later decision replaces it");
                    self.agreement.unreadable(&key, revision);
                }
            },
            StoreEvent::Removed { key, revision } => {
                if self.agreement.removed(&key, revision) {
                    info!(%key, revision, "the entry of a decision was removed from the store");
                }
            }
            StoreEvent::Report { key, bytes } => self.reported(&key, &bytes),
            StoreEvent::Synced => {
                let before = self.agreement.counts().restored;
                self.agreement.synced();
                let decisions = self.agreement.counts().restored - before;
                if decisions > 0 {
                    warn!(
                        decisions,
                        "the store of the fleet's decisions has lost some, or went back to earlier ones: \
                         this router writes those that it follows again"
                    );
                }
                if self.absence.take().is_some() {
                    info!("the store of the fleet's decisions is reached; this router follows them");
                }
            }
            StoreEvent::Lost(why) => {
                self.agreement.lost();
                self.fetches.interrupt();
                self.offers.interrupt();
                if self.absence.as_ref() != Some(&why) {
                    warn!(
                        why,
                        "the store of the fleet's decisions is away: this router decides alone until it returns"
                    );
                }
                self.absence = Some(why);
            }
            StoreEvent::Closed => return None,
        }
        Some(true)
    }

    fn reported(&mut self, key: &ReportKey, bytes: &[u8]) {
        if key.router() == self.parts.handle.router() {
            return;
        }
        let is_read = match key {
            ReportKey::States { router } => {
                let states = RouterStates::decode(bytes);
                states
                    .map(|states| self.states.set(router.clone(), states))
                    .is_some()
            }
            ReportKey::Evidence { router, trial } => {
                self.exchange.learned(trial.clone(), router.clone(), bytes)
            }
        };
        if !is_read {
            self.parts.metrics.refused();
        }
    }

    /// Does what is due. Returns whether the view changed.
    async fn step<S: AgreedStore>(&mut self, store: &mut S, is_beat: bool) -> bool {
        let inputs = self.parts.handle.take_inputs();
        let mut changed = !inputs.proposals.is_empty();
        self.offers.add(inputs.offered);
        if !inputs.kept.is_empty() {
            self.offers.keep(inputs.kept);
        }
        for (key, proposed) in inputs.proposals {
            self.take_in(key, proposed);
        }
        if inputs.has_new_states || self.own_states.at.elapsed() >= STATES {
            self.own_states = OwnStates {
                unsent: Some(inputs.states),
                at: Instant::now(),
            };
        }
        let mut evidence = Vec::new();
        if is_beat {
            let reports = self.evidence_at.is_none_or(|at| at.elapsed() >= EVIDENCE);
            let TrialLook { decided, reports } = self.look(reports && self.agreement.is_synced());
            changed |= !decided.is_empty();
            for (key, value) in decided {
                self.agreement.propose(key, value, unix_ms());
            }
            evidence = reports;
        }
        self.fetches
            .follow(&inputs.wanted, |sha256| self.parts.handle.is_missing(sha256));
        if self.agreement.is_synced() {
            changed |= self.write(store).await;
            let router = self.parts.handle.router();
            let agreement = &self.agreement;
            self.offers.retain(|key| {
                let followed = agreement.followed(key);
                followed.is_some_and(|entry| entry.by == router)
            });
            self.offers.begin(store);
            self.report(store, evidence).await;
            self.fetches.begin(store);
        }
        let not_followed = self.parts.handle.not_followed();
        self.parts.metrics.look(&self.agreement, not_followed);
        changed
    }

    fn take_in(&mut self, key: AgreedKey, proposed: Proposed) {
        let Proposed { value, needs, over } = proposed;
        let Some(judged) = over else {
            self.offers.need(&key, needs);
            self.agreement.propose(key, value, unix_ms());
            return;
        };
        let revision = judged.revision();
        let is_proposed = self.agreement.propose_over(key.clone(), value, unix_ms(), judged);
        if is_proposed {
            self.offers.need(&key, needs);
        } else {
            info!(%key, revision, "a decision of this router gives way: its entry has changed since it was judged");
        }
    }

    fn look(&mut self, reports: bool) -> TrialLook {
        if reports {
            self.evidence_at = Some(Instant::now());
        }
        let trials = self.parts.trials.trials();
        let view = self.view();
        self.exchange.look(&trials, &view, reports)
    }

    /// Writes the proposals whose bytes are stored. Stops at the first that the store does not answer.
    async fn write<S: AgreedStore>(&mut self, store: &mut S) -> bool {
        let mut changed = false;
        for key in self.agreement.give_up() {
            warn!(%key, "a decision of this router is not shared: the fleet has {MOST_ENTRIES} decisions, the most");
            changed = true;
        }
        while let Some(write) = self.next_write() {
            let outcome = store.write(&write).await;
            self.agreement.written(&write, &outcome);
            match &outcome {
                WriteOutcome::Accepted(revision) => {
                    info!(key = %write.key, revision, "a decision of this router is agreed");
                    changed = true;
                }
                // The watch delivers the entry. A judged decision does not wait for that. After the store lost its
                // entries, many decisions conflict at once, and none of those is judged.
                WriteOutcome::Conflict if self.agreement.is_judged(&write.key) => {
                    info!(key = %write.key, "the entry of a decision has changed: it is read again");
                    if let Ok(Some(event)) = store.read(&write.key).await {
                        self.handle(event);
                        changed = true;
                    }
                }
                WriteOutcome::Conflict => {
                    info!(key = %write.key, "the entry of a decision has changed: it is about to arrive");
                }
                WriteOutcome::Unknown(error) => {
                    let error = error as &dyn std::error::Error;
                    warn!(key = %write.key, error, "a decision is not agreed yet; it is sent again");
                    return changed;
                }
            }
        }
        changed
    }

    fn next_write(&mut self) -> Option<AgreedWrite> {
        let offers = &self.offers;
        self.agreement.next_write(|key| offers.is_ready(key))
    }

    async fn report<S: AgreedStore>(&mut self, store: &mut S, evidence: Vec<(String, Vec<u8>)>) {
        let router = self.parts.handle.router().to_owned();
        if let Some(states) = &self.own_states.unsent {
            let key = ReportKey::States {
                router: router.clone(),
            };
            if store.report(&key, states.encode()).await.is_err() {
                return;
            }
            self.own_states.unsent = None;
        }
        for (trial, report) in evidence {
            let key = ReportKey::Evidence {
                router: router.clone(),
                trial: trial.clone(),
            };
            if store.report(&key, report.clone()).await.is_err() {
                return;
            }
            self.exchange.reported(trial, report);
        }
    }

    fn view(&self) -> AgreedView {
        let stored = self.agreement.entries().map(|(key, known)| {
            let entry = known.entry.clone();
            let revision = known.revision;
            (key.clone(), ViewEntry { revision, entry })
        });
        let vacant = self.agreement.vacant();
        let vacant = vacant.map(|(key, revision)| (key.clone(), revision));
        let proposed = self.agreement.proposals();
        let proposed = proposed.map(|(key, entry)| (key.clone(), entry.clone()));
        let problems = self.agreement.proposals().filter_map(|(key, _)| {
            let problem = self.offers.problem(key)?;
            Some((key.clone(), problem.to_owned()))
        });
        let states = self.states.iter();
        let states = states.map(|(router, states)| (router.clone(), states.clone()));
        AgreedView {
            generation: self.generation,
            is_synced: self.agreement.is_synced(),
            is_open: self.agreement.is_open(),
            openings: self.agreement.openings(),
            problem: self.absence.clone(),
            stored: stored.collect(),
            vacant: vacant.collect(),
            proposed: proposed.collect(),
            problems: problems.collect(),
            states: states.collect(),
        }
    }

    fn publish_view(&mut self) {
        self.generation += 1;
        self.parts.handle.set_view(self.view());
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
