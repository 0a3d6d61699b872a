//! Task of the agreement: follows the store, and writes proposals and reports to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agreement::{
    AgreedEntry, AgreedStore, Agreement, KnownEntry, ReportKey, RouterStates, StoreEvent, WriteOutcome,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::fetches::ObjectFetches;
use super::handle::AgreedHandle;
use super::metrics::AgreementMetrics;
use super::objects::ObjectTable;
use super::trials::{TrialExchange, TrialLook, TrialSource};
use super::view::{AgreedView, ViewEntry};

/// Interval of looks at the experiments.
const BEAT: Duration = Duration::from_millis(250);
/// Shortest time between two reports of evidence.
const EVIDENCE: Duration = Duration::from_secs(1);
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
    states: BTreeMap<String, RouterStates>,
    /// Bytes that this router offered, and those that the store does not have yet.
    offered: ObjectTable<OfferedObject>,
    fetches: ObjectFetches,
    /// Own states that the store does not have yet.
    unsent_states: Option<RouterStates>,
    evidence_at: Option<Instant>,
    problem: Option<String>,
    generation: u64,
}

#[derive(Debug)]
struct OfferedObject {
    bytes: Arc<Vec<u8>>,
    is_stored: bool,
}

impl<T: TrialSource> AgreementTask<T> {
    /// Returns the task.
    #[must_use]
    pub fn new(parts: AgreementParts<T>) -> Self {
        Self {
            agreement: Agreement::new(parts.handle.router()),
            parts,
            exchange: TrialExchange::default(),
            states: BTreeMap::new(),
            offered: ObjectTable::default(),
            fetches: ObjectFetches::default(),
            unsent_states: None,
            evidence_at: None,
            problem: Some("it is not reached yet".to_owned()),
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
                self.states.clear();
                for (_, object) in self.offered.all_mut() {
                    object.is_stored = false;
                }
                self.unsent_states = Some(self.parts.handle.states());
            }
            StoreEvent::Entry { key, revision, bytes } => match AgreedEntry::decode(&bytes) {
                Ok(entry) => self.agreement.learned(key, KnownEntry { revision, entry }),
                Err(error) => {
                    self.parts.metrics.refused();
                    let error = &error as &dyn std::error::Error;
                    warn!(%key, revision, error, "an agreed entry is left out");
                }
            },
            StoreEvent::Report { key, bytes } => self.reported(&key, &bytes),
            StoreEvent::Synced => {
                self.agreement.synced();
                if self.problem.take().is_some() {
                    info!("the store of the fleet's decisions is reached; this router follows them");
                }
            }
            StoreEvent::Lost(why) => {
                self.agreement.lost();
                self.fetches.interrupt();
                if self.problem.is_none() {
                    warn!(
                        why,
                        "the store of the fleet's decisions is away: this router decides alone until it returns"
                    );
                }
                self.problem = Some(why);
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
                let has_room = self.states.len() < MOST_ROUTERS || self.states.contains_key(router);
                let states = RouterStates::decode(bytes).filter(|_| has_room);
                states.is_some_and(|states| {
                    self.states.insert(router.clone(), states);
                    true
                })
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
        for (key, value) in inputs.proposals {
            self.agreement.propose(key, value, unix_ms());
        }
        for (sha256, bytes) in inputs.offered {
            let is_stored = false;
            self.offered.set(&sha256, OfferedObject { bytes, is_stored });
        }
        if inputs.has_new_states {
            self.unsent_states = Some(inputs.states);
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
            self.report(store, evidence).await;
            self.fetches.begin(store);
        }
        let not_followed = self.parts.handle.not_followed();
        self.parts.metrics.look(&self.agreement, not_followed);
        changed
    }

    fn look(&mut self, reports: bool) -> TrialLook {
        if reports {
            self.evidence_at = Some(Instant::now());
        }
        let trials = self.parts.trials.trials();
        let view = self.view();
        self.exchange.look(&trials, &view, reports)
    }

    /// Writes objects, then proposals. Stops at the first that the store does not answer.
    async fn write<S: AgreedStore>(&mut self, store: &mut S) -> bool {
        for (sha256, object) in self.offered.all_mut().filter(|(_, object)| !object.is_stored) {
            match store.put_object(sha256, Arc::clone(&object.bytes)).await {
                Ok(()) => object.is_stored = true,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(sha256, error, "a decision waits until its policy is stored");
                    return false;
                }
            }
        }
        let mut changed = false;
        while let Some(write) = self.agreement.next_write() {
            let outcome = store.write(&write).await;
            self.agreement.written(&write, &outcome);
            match &outcome {
                WriteOutcome::Accepted(revision) => {
                    info!(key = %write.key, revision, "a decision of this router is agreed");
                    changed = true;
                }
                WriteOutcome::Conflict => {
                    info!(key = %write.key, "another router decided first: this router follows it");
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

    async fn report<S: AgreedStore>(&mut self, store: &mut S, evidence: Vec<(String, Vec<u8>)>) {
        let router = self.parts.handle.router().to_owned();
        if let Some(states) = &self.unsent_states {
            let key = ReportKey::States {
                router: router.clone(),
            };
            if store.report(&key, states.encode()).await.is_err() {
                return;
            }
            self.unsent_states = None;
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
        let proposed = self.agreement.proposals();
        let proposed = proposed.map(|(key, entry)| (key.clone(), entry.clone()));
        AgreedView {
            generation: self.generation,
            is_synced: self.agreement.is_synced(),
            problem: self.problem.clone(),
            stored: stored.collect(),
            proposed: proposed.collect(),
            states: self.states.clone(),
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
