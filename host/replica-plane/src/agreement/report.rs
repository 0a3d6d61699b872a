//! Report on the agreed entries, for the admin pages.

use std::collections::BTreeMap;

use agreement::SubjectState;
use serde::Serialize;
use serde_json::Value;

use super::handle::AgreedHandle;
use super::view::ViewEntry;

/// The agreement as this router sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AgreementReport {
    /// Set while the store answers.
    pub synced: bool,
    /// Reason for which the store is away.
    pub problem: Option<String>,
    /// Decisions of this router that the store does not have yet.
    pub proposals: usize,
    /// Entries that this router follows.
    pub entries: Vec<EntryRow>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EntryRow {
    /// Key.
    pub key: String,
    /// Kind: `hold`, `route`, `canary` or `instance`.
    pub kind: &'static str,
    /// Revision of the store; 0 for a proposal.
    pub revision: u64,
    /// Id of the router that decided.
    pub by: String,
    /// Time of the decision.
    pub at_unix_ms: u64,
    /// The decision.
    pub value: Value,
    /// State at this router and at each live one that reported one, by its id, with the reason if it does not follow.
    pub routers: BTreeMap<String, String>,
}

impl AgreementReport {
    /// Returns the report of a router. `is_live`: the other routers; the states of others are of runs that ended.
    #[must_use]
    pub fn of(handle: &AgreedHandle, is_live: impl Fn(&str) -> bool) -> Self {
        let (view, own) = (handle.view(), handle.states());
        let row = |(key, known): (agreement::AgreedKey, ViewEntry)| {
            let ViewEntry { revision, entry } = known;
            let all = view
                .states
                .iter()
                .map(|(router, states)| (router.as_str(), states))
                .filter(|(router, _)| is_live(router));
            let all = all.chain([(handle.router(), &own)]);
            let routers = all.filter_map(|(router, states)| {
                let (of_revision, state) = states.get(&key)?;
                (*of_revision == revision).then(|| (router.to_owned(), text(state)))
            });
            EntryRow {
                kind: key.kind().as_str(),
                key: key.to_string(),
                revision,
                by: entry.by,
                at_unix_ms: entry.at_unix_ms,
                value: entry.value,
                routers: routers.collect(),
            }
        };
        Self {
            synced: view.is_synced,
            problem: view.problem.clone(),
            proposals: view.proposals(),
            entries: view.followed().map(row).collect(),
        }
    }
}

fn text(state: &SubjectState) -> String {
    match state.reason() {
        Some(reason) => format!("{}: {reason}", state.as_str()),
        None => state.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use agreement::{AgreedEntry, AgreedKey, AgreedKind, RouterStates};

    use super::*;
    use crate::agreement::view::AgreedView;

    #[test]
    fn an_entry_has_the_states_of_this_router_and_the_live_ones() {
        let (handle, key) = (
            AgreedHandle::new("1", "one"),
            AgreedKey::of(AgreedKind::Route, "r"),
        );
        let entry = AgreedEntry::new("2", 1, 0, Value::Null);
        let states = ["2", "dead"].map(|router| {
            let mut states = RouterStates::of(router);
            states.set(&key, 3, SubjectState::Applied);
            (router.to_owned(), states)
        });
        handle.set_view(AgreedView {
            stored: BTreeMap::from([(key.clone(), ViewEntry { revision: 3, entry })]),
            states: BTreeMap::from(states),
            ..AgreedView::default()
        });
        handle.set_state(&key, 3, SubjectState::Working);
        let report = AgreementReport::of(&handle, |router| router == "2");
        let routers = [("1", "working"), ("2", "applied")];
        let routers = routers.map(|(router, state)| (router.to_owned(), state.to_owned()));
        assert_eq!(report.entries[0].routers, BTreeMap::from(routers));
    }
}
