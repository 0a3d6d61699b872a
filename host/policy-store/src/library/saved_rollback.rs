//! File of a rollback, so that it survives a restart: the active bytes, and the hashes of the rolled-back ones.
//!
//! Each policy has one file: a line of JSON, then the component. Writes are atomic. The bytes are loaded only if they
//! have the hash of the line and the configuration permits them.

use std::time::Duration;

use policy_runtime::PolicySettings;
use routing::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::digest::Digest;

/// Ending of the file's name.
pub(super) const ENDING: &str = "rollback";
/// Version of the format.
const VERSION: u32 = 1;

/// Content of the line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SavedRollback {
    version: u32,
    /// Identity of the active version.
    pub(super) in_force: VersionIdentity,
    /// Identities of the rolled-back versions, the latest first.
    pub(super) held: Vec<VersionIdentity>,
}

/// Identity of a version: its bytes and settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionIdentity {
    sha256: String,
    params: String,
    cpu_us: u64,
    wall_us: u64,
    memory_bytes: usize,
}

impl SavedRollback {
    pub(super) fn new(in_force: VersionIdentity, held: Vec<VersionIdentity>) -> Self {
        Self {
            version: VERSION,
            in_force,
            held,
        }
    }

    /// Returns the bytes of the file.
    pub(super) fn encode(&self, component: &[u8]) -> Vec<u8> {
        let mut file = serde_json::to_vec(self).expect("it has only texts and numbers");
        file.push(b'\n');
        file.extend_from_slice(component);
        file
    }

    /// Returns the line and the component of a file. Returns none if it is damaged or of another version.
    pub(super) fn decode(file: &[u8]) -> Option<(Self, &[u8])> {
        let end = file.iter().position(|byte| *byte == b'\n')?;
        let kept: Self = serde_json::from_slice(&file[..end]).ok()?;
        let component = &file[end + 1..];
        let digest: Digest = Sha256::digest(component).into();
        let is_whole = kept.version == VERSION && kept.in_force.sha256 == hex(&digest);
        (is_whole && kept.held.iter().all(|held| held.digest().is_some())).then_some((kept, component))
    }
}

impl VersionIdentity {
    pub(super) fn of(digest: &Digest, settings: &PolicySettings) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            sha256: hex(digest),
            params: settings.params_json.clone(),
            cpu_us: micros(settings.cpu_budget),
            wall_us: micros(settings.wall_limit),
            memory_bytes: settings.memory_bytes,
        }
    }

    /// Returns the SHA-256 of its bytes, in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the hash, if it is valid.
    pub(super) fn digest(&self) -> Option<Digest> {
        let digits = self.sha256.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes?.try_into().ok()
    }

    pub(super) fn settings(&self) -> PolicySettings {
        PolicySettings {
            params_json: self.params.clone(),
            cpu_budget: Duration::from_micros(self.cpu_us),
            wall_limit: Duration::from_micros(self.wall_us),
            memory_bytes: self.memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_read_and_a_changed_byte_is_noticed() {
        let settings = PolicySettings {
            params_json: r#"{"a":"b\nc"}"#.to_owned(),
            ..PolicySettings::default()
        };
        let component = b"bytes\nof a component";
        let in_force = VersionIdentity::of(&Sha256::digest(component).into(), &settings);
        let kept = SavedRollback::new(in_force, vec![VersionIdentity::of(&[7; 32], &settings)]);
        let file = kept.encode(component);
        assert_eq!(SavedRollback::decode(&file), Some((kept.clone(), &component[..])));
        assert_eq!(kept.in_force.settings(), settings);
        assert_eq!(kept.held[0].digest(), Some([7; 32]));
        for at in [0, file.len() - 1] {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert_eq!(SavedRollback::decode(&changed), None);
        }
        assert_eq!(SavedRollback::decode(b""), None);
    }
}
