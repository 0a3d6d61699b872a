//! Imports of a policy. None of them blocks, and the work of each is proportional to its result. The store bounds the
//! bytes of one call (`instance.rs`), `state.rs` the stored bytes.

use routing::{About, DecisionQueries, HostCall, Role, Tier, WaitsFor, WorkerId, is_secret_header};
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::{Everything, host, index, inspect, queue, sessions, state, types, workers};
use crate::guest::GuestState;
use crate::state::Refusal;

/// Longest header value passed to a policy, in bytes.
const MAX_HEADER: usize = 4 << 10;

/// Links every import of the WIT.
pub(crate) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    Everything::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |guest| guest)
}

impl GuestState {
    fn queries(&self) -> Option<&dyn DecisionQueries> {
        self.decision.as_ref().map(|decision| &*decision.queries)
    }

    fn about(&self, id: WorkerId) -> Option<About> {
        let worker = self.queries()?.worker(id)?;
        let spec = worker.spec();
        let labels = spec.labels.iter();
        Some(About {
            name: spec.name.to_string(),
            role: spec.role,
            labels: labels
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        })
    }

    fn session(&self) -> Option<u64> {
        self.decision.as_ref()?.session
    }

    fn recall_session(&self) -> Option<u32> {
        let decision = self.decision.as_ref()?;
        let worker = self.state.sessions().recall(decision.session?, decision.now_us)?;
        let mut rows = decision.queries.candidates().iter();
        rows.position(|id| *id == worker)?.try_into().ok()
    }

    fn remember_session(&self, row: u32, ttl_ms: u32) {
        let Some(decision) = &self.decision else { return };
        let Some(session) = decision.session else { return };
        if let Some(worker) = decision.queries.candidates().get(row as usize) {
            let sessions = self.state.sessions();
            sessions.remember(session, *worker, ttl_ms, decision.now_us);
        }
    }

    /// Returns a header that is not secret.
    fn open_header(&self, name: &str) -> Option<String> {
        if is_secret_header(name) {
            return None;
        }
        self.queries()?
            .header(name)
            .filter(|value| value.len() <= MAX_HEADER)
    }
}

impl types::Host for GuestState {}

impl workers::Host for GuestState {
    fn describe(&mut self, id: u32) -> Option<workers::About> {
        let handling = self.host_call(|| HostCall::Worker(WorkerId(id)));
        let about = self.result_of(handling, |guest| guest.about(WorkerId(id)))?;
        Some(workers::About {
            name: about.name,
            role: match about.role {
                Role::Mixed => workers::Role::Mixed,
                Role::Prefill => workers::Role::Prefill,
                Role::Decode => workers::Role::Decode,
            },
            labels: about.labels,
        })
    }
}

impl index::Host for GuestState {
    fn matched(&mut self, tier: index::Tier) -> Vec<u32> {
        let tier = match tier {
            index::Tier::Device => Tier::Device,
            index::Tier::Host => Tier::Host,
            // The WIT's slowest tier includes the shared one.
            index::Tier::Disk => Tier::Shared,
        };
        let handling = self.host_call(|| HostCall::Matched(tier));
        self.result_of(handling, |guest| {
            guest
                .queries()
                .map_or_else(Vec::new, |queries| queries.matched(tier))
        })
    }

    fn holders(&mut self, tokens: u32) -> u32 {
        let handling = self.host_call(|| HostCall::Holders(tokens));
        self.result_of(handling, |guest| {
            guest.queries().map_or(0, |queries| queries.holders(tokens))
        })
    }
}

impl inspect::Host for GuestState {
    fn header(&mut self, name: String) -> Option<String> {
        let handling = self.host_call(|| HostCall::Header(name.clone()));
        self.result_of(handling, |guest| guest.open_header(&name))
    }

    fn model(&mut self) -> String {
        let handling = self.host_call(|| HostCall::Model);
        let model = self.result_of(handling, |guest| Some(guest.queries()?.model().to_owned()));
        model.unwrap_or_default()
    }

    fn path(&mut self) -> String {
        let handling = self.host_call(|| HostCall::Path);
        let path = self.result_of(handling, |guest| Some(guest.queries()?.path().to_owned()));
        path.unwrap_or_default()
    }
}

impl host::Host for GuestState {
    fn log(&mut self, level: host::Level, message: String) {
        self.log.write(level, &message);
    }

    fn now_us(&mut self) -> u64 {
        self.decision.as_ref().map_or(0, |decision| decision.now_us)
    }

    fn random(&mut self) -> u64 {
        self.decision
            .as_mut()
            .map_or(0, |decision| decision.random.next())
    }
}

impl state::Host for GuestState {
    fn get(&mut self, key: String) -> Option<Vec<u8>> {
        let handling = self.host_call(|| HostCall::StateGet(key.clone()));
        self.result_of(handling, |guest| guest.state.get(&key))
    }

    fn set(&mut self, key: String, value: Vec<u8>) -> Result<(), state::Refusal> {
        let handling = self.host_call(|| HostCall::StateSet(key.clone(), value.clone()));
        Ok(self.result_of(handling, |guest| guest.state.set(&key, value))?)
    }

    fn add(&mut self, key: String, by: i64) -> Result<i64, state::Refusal> {
        let handling = self.host_call(|| HostCall::StateAdd(key.clone(), by));
        Ok(self.result_of(handling, |guest| guest.state.add(&key, by))?)
    }

    fn delete(&mut self, key: String) {
        let handling = self.host_call(|| HostCall::StateDelete(key.clone()));
        self.result_of(handling, |guest| guest.state.delete(&key));
    }
}

impl sessions::Host for GuestState {
    fn recall(&mut self) -> Option<u32> {
        let handling = self.host_call(|| HostCall::SessionRecall);
        self.result_of(handling, |guest| guest.recall_session())
    }

    fn remember(&mut self, row: u32, ttl_ms: u32) {
        let handling = self.host_call(|| HostCall::SessionRemember(row, ttl_ms));
        self.result_of(handling, |guest| guest.remember_session(row, ttl_ms))
    }

    fn forget(&mut self) {
        let handling = self.host_call(|| HostCall::SessionForget);
        self.result_of(handling, |guest| {
            if let Some(session) = guest.session() {
                guest.state.sessions().forget(session);
            }
        });
    }
}

impl queue::Host for GuestState {
    /// Part of the verdict and not a query: a replayed call makes it again.
    fn wait_for(&mut self, row: u32, work: u32) {
        if let Some(decision) = &mut self.decision {
            decision.waits_for = Some(WaitsFor { row, work });
        }
    }

    fn ahead(&mut self, most: Vec<u32>) -> Vec<u32> {
        let handling = self.host_call(|| HostCall::Ahead(most.clone()));
        self.result_of(handling, |guest| {
            let ahead = guest.queries().map(|queries| queries.ahead(&most));
            ahead.unwrap_or_default()
        })
    }
}

impl From<Refusal> for state::Refusal {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::KeyTooLong => Self::KeyTooLong,
            Refusal::ValueTooLong => Self::ValueTooLong,
            Refusal::Full => Self::Full,
            Refusal::NotACounter => Self::NotACounter,
        }
    }
}
