//! File of what one policy remembers: MessagePack with its SHA-256, read without trust.
//!
//! The file is [`FileBody`] in MessagePack, structs as arrays, followed by the 32 bytes of its SHA-256. Sessions refer
//! to workers by name, since ids differ in another run. The session that was used last is the last one.

use std::collections::BTreeMap;

use policy_runtime::StateSnapshot;
use rmp_serde::config::BytesMode;
use routing::WorkerId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Largest file that is read, in bytes: more than a policy may keep (4,096 values of 16 KiB, a million sessions).
pub(super) const MAX_FILE: u64 = 128 << 20;
/// Version of the file's layout. Version 1 had a layout of its own, without MessagePack.
const VERSION: u32 = 2;
/// Beginning of a file of version 1.
const VERSION_1: &[u8] = b"conductor policy state\n";
const CHECKSUM: usize = 32;

/// Reason for not reading a file.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum FileDamage {
    #[error("it has {0} bytes, over the limit of {MAX_FILE}")]
    TooLarge(u64),
    #[error("it is truncated or modified: its checksum does not match")]
    Checksum,
    #[error("it is of version 1, which this router does not read any more: it writes version {VERSION}")]
    Outdated,
    #[error("it is of version {0}, and this router reads version {VERSION}")]
    Version(u32),
    #[error("its content is invalid, though its checksum matches: {0}")]
    Invalid(String),
}

/// Content of a state file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedMemory {
    /// Keys and values.
    pub(super) values: Vec<(Box<str>, Vec<u8>)>,
    /// Sessions, the most recently used last.
    pub(super) sessions: Vec<SavedSession>,
}

/// Session of another run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedSession {
    pub(super) session: u64,
    /// Name of the worker.
    pub(super) worker: Box<str>,
    /// End of the session, in milliseconds since 1970.
    pub(super) until_ms: u64,
}

impl SavedSession {
    /// Returns the rest of its time in milliseconds. `None` if it is over.
    pub(super) fn left_ms(&self, now_unix_ms: u64) -> Option<u64> {
        self.until_ms.checked_sub(now_unix_ms).filter(|left| *left > 0)
    }
}

/// Serialised form of a file. The version comes first in every layout.
#[derive(Debug, Serialize, Deserialize)]
struct FileBody {
    version: u32,
    values: Vec<(Box<str>, Vec<u8>)>,
    /// Names of workers, which the sessions refer to by position.
    workers: Vec<Box<str>>,
    sessions: Vec<FileSession>,
}

/// Serialised form of a session.
#[derive(Debug, Serialize, Deserialize)]
struct FileSession {
    session: u64,
    worker: u32,
    until_ms: u64,
}

impl SavedMemory {
    /// Returns the content to write. Sessions of workers that are not in `names` are left out.
    pub(super) fn of(
        remembered: StateSnapshot,
        names: &BTreeMap<WorkerId, Box<str>>,
        now_unix_ms: u64,
    ) -> Self {
        let sessions = remembered.sessions.into_iter().filter_map(|entry| {
            Some(SavedSession {
                session: entry.session,
                worker: names.get(&entry.worker)?.clone(),
                until_ms: now_unix_ms.saturating_add(u64::try_from(entry.left.as_millis()).ok()?),
            })
        });
        Self {
            values: remembered.values,
            sessions: sessions.collect(),
        }
    }

    /// Returns the bytes of the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut workers: Vec<Box<str>> = self.sessions.iter().map(|saved| saved.worker.clone()).collect();
        workers.sort_unstable();
        workers.dedup();
        let position = |name: &str| workers.partition_point(|worker| **worker < *name);
        let sessions = self.sessions.iter().map(|saved| FileSession {
            session: saved.session,
            worker: u32::try_from(position(&saved.worker)).unwrap_or(u32::MAX),
            until_ms: saved.until_ms,
        });
        let body = FileBody {
            version: VERSION,
            values: self.values.clone(),
            sessions: sessions.collect(),
            workers,
        };
        seal(&body)
    }

    /// Reads the bytes of a file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FileDamage> {
        if bytes.starts_with(VERSION_1) {
            return Err(FileDamage::Outdated);
        }
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(FileDamage::Checksum)?;
        if Sha256::digest(body)[..] != checksum[..] {
            return Err(FileDamage::Checksum);
        }
        let invalid = |error: rmp_serde::decode::Error| match version_of(body) {
            Some(version) if version != VERSION => FileDamage::Version(version),
            _ => FileDamage::Invalid(error.to_string()),
        };
        let body: FileBody = rmp_serde::from_slice(body).map_err(invalid)?;
        if body.version != VERSION {
            return Err(FileDamage::Version(body.version));
        }
        let session = |saved: FileSession| {
            let worker = body.workers.get(saved.worker as usize);
            let worker = worker.ok_or_else(|| FileDamage::Invalid("a session has no worker".to_owned()))?;
            Ok(SavedSession {
                session: saved.session,
                worker: worker.clone(),
                until_ms: saved.until_ms,
            })
        };
        Ok(Self {
            sessions: body.sessions.into_iter().map(session).collect::<Result<_, _>>()?,
            values: body.values,
        })
    }
}

/// Returns a body in MessagePack with its checksum.
fn seal(body: &impl Serialize) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = rmp_serde::Serializer::new(&mut file).with_bytes(BytesMode::ForceAll);
    body.serialize(&mut writer)
        .expect("memory takes all of it, and it has only texts, bytes and numbers");
    let checksum = Sha256::digest(&file);
    file.extend_from_slice(&checksum);
    file
}

/// Returns the version of a body in any layout: the first element of its array.
fn version_of(body: &[u8]) -> Option<u32> {
    let mut body = body;
    rmp_serde::decode::from_read::<_, (u32, serde::de::IgnoredAny)>(&mut body)
        .ok()
        .map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy_runtime::SessionEntry;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn session() -> impl Strategy<Value = SavedSession> {
        (any::<u64>(), "[a-c]{1,3}", any::<u64>()).prop_map(|(session, worker, until_ms)| SavedSession {
            session,
            worker: worker.into(),
            until_ms,
        })
    }

    fn saved() -> impl Strategy<Value = SavedMemory> {
        let value = ("\\PC{0,20}", vec(any::<u8>(), 0..40));
        let values = vec(value.prop_map(|(key, value)| (key.into(), value)), 0..8);
        (values, vec(session(), 0..8)).prop_map(|(values, sessions)| SavedMemory { values, sessions })
    }

    proptest! {
        #[test]
        fn a_written_file_is_read(saved in saved()) {
            prop_assert_eq!(SavedMemory::decode(&saved.encode()), Ok(saved));
        }

        #[test]
        fn a_truncated_file_is_refused(saved in saved(), cut in 1_usize..400) {
            let file = saved.encode();
            let left = &file[..file.len().saturating_sub(cut)];
            prop_assert!(SavedMemory::decode(left).is_err());
        }

        #[test]
        fn a_changed_bit_is_refused(saved in saved(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut file = saved.encode();
            let at = at.index(file.len());
            file[at] ^= 1_u8 << bit;
            prop_assert!(SavedMemory::decode(&file).is_err());
        }

        #[test]
        fn arbitrary_bytes_with_a_valid_checksum_are_bounded(body in vec(any::<u8>(), 0..200)) {
            let mut file = body;
            let checksum = Sha256::digest(&file);
            file.extend_from_slice(&checksum);
            let _ = SavedMemory::decode(&file);
        }
    }

    #[test]
    fn files_of_another_kind_or_version_have_errors_of_their_own() {
        assert_eq!(SavedMemory::decode(b"{}"), Err(FileDamage::Checksum));
        let text = SavedMemory::decode(&seal(&"text"));
        assert!(matches!(text, Err(FileDamage::Invalid(_))), "{text:?}");
        assert_eq!(
            SavedMemory::decode(&seal(&(7, "more"))),
            Err(FileDamage::Version(7))
        );
        let old = [VERSION_1, &1_u32.to_le_bytes()].concat();
        assert_eq!(SavedMemory::decode(&old), Err(FileDamage::Outdated));
        let stray = FileBody {
            version: VERSION,
            values: vec![],
            workers: vec![],
            sessions: vec![FileSession {
                session: 1,
                worker: 0,
                until_ms: 1,
            }],
        };
        assert!(matches!(
            SavedMemory::decode(&seal(&stray)),
            Err(FileDamage::Invalid(_))
        ));
    }

    #[test]
    fn sessions_are_saved_by_name_with_their_end_on_the_wall_clock() {
        let entry = |session, worker| SessionEntry {
            session,
            worker: WorkerId(worker),
            left: Duration::from_secs(3),
        };
        let remembered = StateSnapshot {
            values: vec![("k".into(), vec![1])],
            sessions: vec![entry(1, 7), entry(2, 8)],
        };
        let names = BTreeMap::from([(WorkerId(7), "seven".into())]);
        let saved = SavedMemory::of(remembered, &names, 1_000);
        let expected = SavedSession {
            session: 1,
            worker: "seven".into(),
            until_ms: 4_000,
        };
        assert_eq!(saved.sessions, [expected]);
    }
}
