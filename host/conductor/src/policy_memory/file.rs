//! What a policy remembers as the bytes of a file: versioned, checksummed, and read without trust.
//!
//! Numbers are little endian, texts and values are preceded by their length:
//!
//! ```text
//! "conductor policy state\n", u32 version = 1
//! u32 values,   of each: u16 key, u32 value
//! u32 workers,  of each: u16 name
//! u32 sessions, of each: u64 hash, u32 position of its worker, u64 end in milliseconds since 1970
//! SHA-256 of all before
//! ```
//!
//! Sessions go by the workers' names, since ids are not the same in another run; the one that was used last stands last.

use std::collections::BTreeMap;

use policy_runtime::StateSnapshot;
use routing::WorkerId;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Largest file that is read, in bytes: above all that a policy may keep (4,096 values of 16 KiB, a million sessions).
pub(super) const MAX_FILE: u64 = 128 << 20;
const MAGIC: &[u8] = b"conductor policy state\n";
const VERSION: u32 = 1;
const CHECKSUM: usize = 32;

/// A file is not as it was written.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Damage {
    #[error("it has {0} bytes, over the limit of {MAX_FILE}")]
    TooLarge(u64),
    #[error("it does not begin as a policy's state does")]
    NotOurs,
    #[error("it is of version {0}, and this router reads version {VERSION}")]
    Version(u32),
    #[error("it is cut off or was changed: its checksum does not fit")]
    Checksum,
    #[error("what it says makes no sense, though its checksum fits")]
    Nonsense,
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// Keys and values.
    pub(super) values: Vec<(Box<str>, Vec<u8>)>,
    /// In the order of their last use.
    pub(super) sessions: Vec<SavedSession>,
}

/// A session of another run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedSession {
    pub(super) session: u64,
    /// The worker's name.
    pub(super) worker: Box<str>,
    /// Until when, in milliseconds since 1970.
    pub(super) until_ms: u64,
}

impl Saved {
    /// As it is written. Sessions of workers that are not among `names` are over.
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

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut file = Writer(MAGIC.to_vec());
        file.u32(VERSION);
        file.count(self.values.len());
        for (key, value) in &self.values {
            file.name(key);
            file.count(value.len());
            file.0.extend_from_slice(value);
        }
        let mut names: Vec<&str> = self.sessions.iter().map(|session| &*session.worker).collect();
        names.sort_unstable();
        names.dedup();
        file.count(names.len());
        names.iter().for_each(|name| file.name(name));
        file.count(self.sessions.len());
        for session in &self.sessions {
            let name = names.binary_search(&&*session.worker);
            file.0.extend_from_slice(&session.session.to_le_bytes());
            file.count(name.expect("it is among those that were just collected"));
            file.0.extend_from_slice(&session.until_ms.to_le_bytes());
        }
        let checksum = Sha256::digest(&file.0);
        file.0.extend_from_slice(&checksum);
        file.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(Damage::NotOurs)?;
        let mut header = Reader(rest);
        let version = header.u32().ok_or(Damage::Checksum)?;
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(Damage::Checksum)?;
        if Sha256::digest(body)[..] != checksum[..] {
            return Err(Damage::Checksum);
        }
        let body = body
            .get(MAGIC.len() + size_of::<u32>()..)
            .ok_or(Damage::Checksum)?;
        let mut reader = Reader(body);
        let saved = reader.saved().ok_or(Damage::Nonsense)?;
        if reader.0.is_empty() {
            Ok(saved)
        } else {
            Err(Damage::Nonsense)
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// A key, or the name of a worker: cut at 64 KiB, which neither reaches.
    fn name(&mut self, name: &str) {
        let name = &name[..name.floor_char_boundary(u16::MAX.into())];
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(name.as_bytes());
    }
}

/// Reads on; none where there is nothing more, or no such thing.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn saved(&mut self) -> Option<Saved> {
        let values = self.each(|reader| Some((reader.name()?.into(), reader.value()?.to_vec())))?;
        let names = self.each(Self::name)?;
        let sessions = self.each(|reader| {
            Some(SavedSession {
                session: reader.u64()?,
                worker: (*names.get(reader.u32()? as usize)?).into(),
                until_ms: reader.u64()?,
            })
        })?;
        Some(Saved { values, sessions })
    }

    /// So many as are announced; the announcement itself makes no room.
    fn each<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.u32()?).map(|_| read(self)).collect()
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = u16::from_le_bytes(*self.array()?);
        std::str::from_utf8(self.bytes(length.into())?).ok()
    }

    fn value(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
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

    fn saved() -> impl Strategy<Value = Saved> {
        let value = ("\\PC{0,20}", vec(any::<u8>(), 0..40));
        let values = vec(value.prop_map(|(key, value)| (key.into(), value)), 0..8);
        (values, vec(session(), 0..8)).prop_map(|(values, sessions)| Saved { values, sessions })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(saved in saved()) {
            prop_assert_eq!(Saved::decode(&saved.encode()), Ok(saved));
        }

        #[test]
        fn a_file_that_is_cut_off_is_told(saved in saved(), cut in 1_usize..400) {
            let file = saved.encode();
            let left = &file[..file.len().saturating_sub(cut)];
            prop_assert!(Saved::decode(left).is_err());
        }

        #[test]
        fn a_bit_that_was_turned_is_told(saved in saved(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut file = saved.encode();
            let at = at.index(file.len());
            file[at] ^= 1_u8 << bit;
            prop_assert!(Saved::decode(&file).is_err());
        }

        #[test]
        fn no_bytes_with_a_checksum_that_fits_are_too_much(body in vec(any::<u8>(), 0..200)) {
            let mut file = [MAGIC, &VERSION.to_le_bytes(), &body].concat();
            let checksum = Sha256::digest(&file);
            file.extend_from_slice(&checksum);
            let _ = Saved::decode(&file);
        }
    }

    #[test]
    fn a_file_of_another_kind_or_version_is_told_apart() {
        assert_eq!(Saved::decode(b"{}"), Err(Damage::NotOurs));
        let newer = [MAGIC, &7_u32.to_le_bytes()].concat();
        assert_eq!(Saved::decode(&newer), Err(Damage::Version(7)));
    }

    #[test]
    fn sessions_go_by_name_and_end_on_the_wall_clock() {
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
        let saved = Saved::of(remembered, &names, 1_000);
        let expected = SavedSession {
            session: 1,
            worker: "seven".into(),
            until_ms: 4_000,
        };
        assert_eq!(saved.sessions, [expected]);
    }
}
