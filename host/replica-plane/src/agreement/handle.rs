//! Handle of the agreement: proposals in, the view out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agreement::{AgreedKey, Judged, RouterStates, SubjectState};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::objects::{ObjectState, ObjectTable, OfferedObjects};
use super::start::StartState;
use super::view::AgreedView;

/// Handle for the rest of the router. A clone is another handle to the same agreement.
#[derive(Debug, Clone)]
pub struct AgreedHandle(Arc<HandleState>);

struct HandleState {
    router: String,
    shared: Mutex<Shared>,
    /// Notifies the task of proposals.
    proposed: Notify,
    start: watch::Sender<StartState>,
}

impl fmt::Debug for HandleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleState")
            .field("router", &self.router)
            .finish_non_exhaustive()
    }
}

struct Shared {
    view: Arc<AgreedView>,
    inputs: Inputs,
    /// Proposals that the task has taken and the view does not show yet.
    taken: BTreeSet<AgreedKey>,
    objects: ObjectTable<ObjectState>,
    /// Number of entries that this router does not follow.
    not_followed: usize,
    on_change: Option<Box<dyn Fn() + Send>>,
}

/// Inputs of the task since its last step.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// Decisions by their keys: a later one replaces an earlier one.
    pub(crate) proposals: BTreeMap<AgreedKey, Proposed>,
    pub(crate) offered: OfferedObjects,
    /// Bytes of followed decisions.
    pub(crate) kept: OfferedObjects,
    /// Hashes of wanted bytes.
    pub(crate) wanted: Vec<String>,
    /// Own states, if they changed.
    pub(crate) states: RouterStates,
    pub(crate) has_new_states: bool,
}

/// Proposed decision.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) value: Value,
    /// Hashes of the bytes that it needs.
    pub(crate) needs: Vec<String>,
    /// Contents of the key by which it was judged, if it may replace no others.
    pub(crate) over: Option<Judged>,
}

impl AgreedHandle {
    /// Returns the handle of a router.
    #[must_use]
    pub fn new(router: &str, name: &str) -> Self {
        Self(Arc::new(HandleState {
            router: router.to_owned(),
            shared: Mutex::new(Shared {
                view: Arc::default(),
                inputs: Inputs {
                    proposals: BTreeMap::new(),
                    offered: BTreeMap::new(),
                    kept: BTreeMap::new(),
                    wanted: Vec::new(),
                    states: RouterStates::of(name),
                    has_new_states: true,
                },
                taken: BTreeSet::new(),
                objects: ObjectTable::default(),
                not_followed: 0,
                on_change: None,
            }),
            proposed: Notify::new(),
            start: watch::Sender::new(StartState::Waiting),
        }))
    }

    /// Returns the id of this router.
    #[must_use]
    pub fn router(&self) -> &str {
        &self.0.router
    }

    /// Returns the progress of the start.
    pub(super) fn start(&self) -> &watch::Sender<StartState> {
        &self.0.start
    }

    /// Calls `on_change` after each change of the view.
    pub fn on_change(&self, on_change: impl Fn() + Send + 'static) {
        self.lock().on_change = Some(Box::new(on_change));
    }

    /// Returns the latest view.
    #[must_use]
    pub fn view(&self) -> Arc<AgreedView> {
        Arc::clone(&self.lock().view)
    }

    /// Proposes a decision. The bytes of its policies are stored before it, by their SHA-256. Other decisions do not
    /// wait for them.
    pub fn propose(
        &self,
        key: AgreedKey,
        value: Value,
        objects: impl IntoIterator<Item = (String, Arc<Vec<u8>>)>,
    ) {
        self.add(key, value, None, objects.into_iter().collect());
    }

    /// Proposes a decision that was judged by these contents of its key ([`AgreedView::judged`]), as
    /// [`propose`](Self::propose) does. It gives way to what the store has in their place by now.
    pub fn propose_over(
        &self,
        key: AgreedKey,
        value: Value,
        judged: Judged,
        objects: impl IntoIterator<Item = (String, Arc<Vec<u8>>)>,
    ) {
        self.add(key, value, Some(judged), objects.into_iter().collect());
    }

    fn add(&self, key: AgreedKey, value: Value, over: Option<Judged>, objects: OfferedObjects) {
        let needs = objects.keys().cloned().collect();
        let mut shared = self.lock();
        shared.inputs.offered.extend(objects);
        let proposed = Proposed { value, needs, over };
        shared.inputs.proposals.insert(key, proposed);
        drop(shared);
        self.0.proposed.notify_one();
    }

    /// Offers the bytes of all followed decisions, by their SHA-256. They are stored if the store lost them.
    pub fn keep_objects(&self, objects: BTreeMap<String, Arc<Vec<u8>>>) {
        if !objects.is_empty() {
            self.lock().inputs.kept = objects;
            self.0.proposed.notify_one();
        }
    }

    /// Returns whether this router has a decision for the key that the store does not have, from its proposal on.
    #[must_use]
    pub fn is_proposed(&self, key: &AgreedKey) -> bool {
        let shared = self.lock();
        let is_new = shared.inputs.proposals.contains_key(key) || shared.taken.contains(key);
        is_new || shared.view.is_proposed(key)
    }

    /// Records the state of an entry at this router.
    pub fn set_state(&self, key: &AgreedKey, revision: u64, state: SubjectState) {
        let mut shared = self.lock();
        if shared.inputs.states.set(key, revision, state) {
            shared.inputs.has_new_states = true;
            drop(shared);
            self.0.proposed.notify_one();
        }
    }

    /// Returns bytes by their SHA-256, and fetches them if they are not here.
    #[must_use]
    pub fn object(&self, sha256: &str) -> ObjectState {
        let mut shared = self.lock();
        if let Some(found) = shared.objects.get(sha256) {
            return found.clone();
        }
        shared.objects.set(sha256, ObjectState::Working);
        shared.inputs.wanted.push(sha256.to_owned());
        drop(shared);
        self.0.proposed.notify_one();
        ObjectState::Working
    }

    /// Returns the states of the entries at this router.
    #[must_use]
    pub fn states(&self) -> RouterStates {
        self.lock().inputs.states.clone()
    }

    /// Returns `true` if this router followed that revision of the entry at an earlier look.
    #[must_use]
    pub fn has_applied(&self, key: &AgreedKey, revision: u64) -> bool {
        self.lock().inputs.states.get(key) == Some(&(revision, SubjectState::Applied))
    }

    /// Ends a look at the entries. Removes the states of those that are gone, and counts those that this router does
    /// not follow. An entry about something outside its configuration counts only while a live router follows it.
    pub fn settle_states(&self, is_live: impl Fn(&str) -> bool) {
        let mut shared = self.lock();
        let Shared { view, inputs, .. } = &mut *shared;
        let has_removed = inputs
            .states
            .retain(|key| view.stored(key).is_some() || view.is_proposed(key));
        let live = view.states.iter().filter(|(router, _)| is_live(router));
        let live: Vec<&RouterStates> = live.map(|(_, states)| states).collect();
        let not_followed = inputs.states.not_followed(&live);
        inputs.has_new_states |= has_removed;
        shared.not_followed = not_followed;
        drop(shared);
        if has_removed {
            self.0.proposed.notify_one();
        }
    }

    /// Returns the number of entries that this router does not follow, as counted last.
    pub(crate) fn not_followed(&self) -> usize {
        self.lock().not_followed
    }

    /// Waits for inputs.
    pub(crate) async fn proposed(&self) {
        self.0.proposed.notified().await;
    }

    /// Takes the inputs. The states stay.
    pub(crate) fn take_inputs(&self) -> Inputs {
        let mut shared = self.lock();
        let Shared { inputs, taken, .. } = &mut *shared;
        taken.extend(inputs.proposals.keys().cloned());
        Inputs {
            proposals: std::mem::take(&mut inputs.proposals),
            offered: std::mem::take(&mut inputs.offered),
            kept: std::mem::take(&mut inputs.kept),
            wanted: std::mem::take(&mut inputs.wanted),
            states: inputs.states.clone(),
            has_new_states: std::mem::take(&mut inputs.has_new_states),
        }
    }

    /// Returns `true` if these bytes were requested and are not here.
    pub(crate) fn is_missing(&self, sha256: &str) -> bool {
        let shared = self.lock();
        let object = shared.objects.get(sha256);
        object.is_some_and(|object| !matches!(object, ObjectState::Ready(_)))
    }

    /// Records fetched bytes, and calls `on_change`.
    pub(crate) fn set_object(&self, sha256: &str, object: ObjectState) {
        self.lock().objects.set(sha256, object);
        self.call_on_change();
    }

    /// Replaces the view, and calls `on_change`. Failed objects are fetched again if the entries changed.
    pub(crate) fn set_view(&self, view: AgreedView) {
        let mut shared = self.lock();
        if shared.view.stored != view.stored || shared.view.is_synced != view.is_synced {
            shared
                .objects
                .retain(|_, object| !matches!(object, ObjectState::Failed(_)));
        }
        shared.view = Arc::new(view);
        shared.taken.clear();
        drop(shared);
        self.call_on_change();
    }

    fn call_on_change(&self) {
        if let Some(on_change) = &self.lock().on_change {
            on_change();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agreement::{AgreedEntry, AgreedKind};

    use super::*;
    use crate::agreement::view::ViewEntry;

    #[test]
    fn an_entry_of_something_else_counts_while_a_live_router_follows_it_and_a_removed_one_no_more() {
        let (handle, key) = (
            AgreedHandle::new("1", "one"),
            AgreedKey::of(AgreedKind::Route, "r"),
        );
        let entry = AgreedEntry::new("2", 1, 0, Value::Null);
        let mut other = RouterStates::of("two");
        other.set(&key, 3, SubjectState::Applied);
        handle.set_view(AgreedView {
            stored: BTreeMap::from([(key.clone(), ViewEntry { revision: 3, entry })]),
            states: BTreeMap::from([("2".to_owned(), other)]),
            ..AgreedView::default()
        });
        let counted = |live: &[&str]| {
            handle.settle_states(|router| live.contains(&router));
            handle.not_followed()
        };
        handle.set_state(&key, 3, SubjectState::Elsewhere("no such route".to_owned()));
        assert_eq!((counted(&["2"]), counted(&[])), (1, 0));
        handle.set_state(&key, 3, SubjectState::Refused("no such policy".to_owned()));
        assert_eq!(counted(&[]), 1);
        handle.set_view(AgreedView::default());
        assert_eq!(counted(&["2"]), 0);
        assert_eq!(handle.states().get(&key), None);
    }
}
