//! States of the agreed entries at one router, which it reports to the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::AgreedKey;

/// Most bytes of a report.
const MOST_BYTES: usize = 512 << 10;

/// State of an entry at a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectState {
    /// The router follows the entry.
    Applied,
    /// The router holds all parts of the next decision ready.
    Staged,
    /// The router holds all parts of the next decision ready, and cannot follow the present one, for this reason.
    OnlyStaged(String),
    /// Parts are on their way, or are being compiled.
    Working,
    /// The entry is of something that this router's configuration does not have, or has otherwise.
    Elsewhere(String),
    /// The router cannot follow it, for this reason.
    Refused(String),
}

impl SubjectState {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Staged | Self::OnlyStaged(_) => "staged",
            Self::Working => "working",
            Self::Elsewhere(_) => "elsewhere",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns the reason for which the router does not follow the entry.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Elsewhere(reason) | Self::Refused(reason) | Self::OnlyStaged(reason) => Some(reason),
            Self::Applied | Self::Staged | Self::Working => None,
        }
    }
}

/// States of all entries at one router, by the entries' keys, each with the revision that it is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterStates {
    /// Name of the router.
    pub name: String,
    states: BTreeMap<String, (u64, SubjectState)>,
}

impl RouterStates {
    /// Returns the states of a router, all unknown.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            states: BTreeMap::new(),
        }
    }

    /// Records the state of an entry. Returns true if it changed.
    pub fn set(&mut self, key: &AgreedKey, revision: u64, state: SubjectState) -> bool {
        let state = (revision, state);
        self.states.insert(key.to_string(), state.clone()) != Some(state)
    }

    /// Returns the state of an entry, with its revision.
    #[must_use]
    pub fn get(&self, key: &AgreedKey) -> Option<&(u64, SubjectState)> {
        self.states.get(&key.to_string())
    }

    /// Removes the states of all other entries. Returns `true` if there were some.
    pub fn retain(&mut self, is_entry: impl Fn(&AgreedKey) -> bool) -> bool {
        let before = self.states.len();
        let is_entry = |key: &str| AgreedKey::parse(key).is_some_and(|key| is_entry(&key));
        self.states.retain(|key, _| is_entry(key));
        self.states.len() != before
    }

    /// Returns the number of entries that this router does not follow. An entry about something outside its
    /// configuration counts only while one of the `others` follows it.
    #[must_use]
    pub fn not_followed(&self, others: &[&Self]) -> usize {
        let is_not_followed = |(key, (revision, state)): &(&String, &(u64, SubjectState))| match state {
            SubjectState::Refused(_) | SubjectState::OnlyStaged(_) => true,
            SubjectState::Elsewhere(_) => others
                .iter()
                .any(|other| other.states.get(*key) == Some(&(*revision, SubjectState::Applied))),
            SubjectState::Applied | SubjectState::Staged | SubjectState::Working => false,
        };
        self.states.iter().filter(is_not_followed).count()
    }

    /// Returns its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a report. Returns `None` if it is too long or cannot be read.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MOST_BYTES)
            .then(|| serde_json::from_slice(bytes).ok())
            .flatten()
    }
}
