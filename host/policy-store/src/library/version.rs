//! One version of a policy: certain bytes with certain settings, loaded, and whether it is asked.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use policy_runtime::{PolicySettings, WasmPolicy};
use routing::{Circuit, CircuitSpec, CircuitState, PolicyVersion, scores_singly};
use sha2::{Digest as _, Sha256};

use super::WantedPolicy;
use super::component::Digest;
use super::saved_rollback::VersionIdentity;
use super::wanted_policy::hex;

/// Digits of the bytes' hash in a version's id: enough to tell versions apart at sight.
const BYTES_DIGITS: usize = 12;
/// Digits of the settings' hash, of which there are few for the same bytes.
const SETTINGS_DIGITS: usize = 6;

/// A component that works with its settings.
#[derive(Debug, Clone)]
pub struct LoadedVersion {
    /// Loaded component.
    pub policy: Arc<WasmPolicy>,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its own, whatever the configuration says by now.
    pub(super) settings: PolicySettings,
    /// Tells it from the policy's other versions.
    pub(super) id: Arc<str>,
    /// The same for as long as the version is kept and its spec does not change.
    pub(super) circuit: Arc<Circuit>,
    pub(super) spec: CircuitSpec,
    /// When it was put in force, or loaded where it never was.
    pub(super) since: SystemTime,
    /// Its bytes, where a rollback to it is to outlive the process.
    pub(super) bytes: Option<KeptBytes>,
}

/// Bytes of a component, shared.
pub(super) type KeptBytes = Arc<Cow<'static, [u8]>>;

impl LoadedVersion {
    pub(super) fn new(policy: Arc<WasmPolicy>, digest: Digest, wanted: &WantedPolicy) -> Self {
        let settings = wanted.settings.clone();
        Self {
            policy,
            digest,
            id: id(&digest, &settings).into(),
            settings,
            circuit: Arc::new(Circuit::new(wanted.circuit)),
            spec: wanted.circuit,
            since: SystemTime::now(),
            bytes: None,
        }
    }

    /// Returns it with its bytes.
    pub(super) fn keeping(self, bytes: Option<KeptBytes>) -> Self {
        Self { bytes, ..self }
    }

    /// Returns which bytes and settings it has.
    pub(super) fn identity(&self) -> VersionIdentity {
        VersionIdentity::of(&self.digest, &self.settings)
    }

    /// Whether it is made of these.
    pub(super) fn is_of(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        self.digest == *digest && self.settings == *settings
    }

    /// The same with its circuit as `spec` has it; the very same where it has it already.
    pub(super) fn under(&self, spec: CircuitSpec) -> Self {
        let mut version = self.clone();
        if version.spec != spec {
            version.circuit = Arc::new(Circuit::new(spec));
            version.spec = spec;
        }
        version
    }

    /// Whether it can do what is wanted of it.
    pub(super) fn does(&self, wanted: &WantedPolicy) -> bool {
        !wanted.scores || scores_singly(&*self.policy)
    }

    /// Whether it decides calls, were it the first of its chain.
    pub(super) fn decides(&self) -> bool {
        self.circuit.state() == CircuitState::Closed
    }

    /// As a link of a chain.
    pub(super) fn link(&self) -> PolicyVersion {
        PolicyVersion {
            policy: Arc::clone(&self.policy) as _,
            circuit: Arc::clone(&self.circuit),
            id: Arc::clone(&self.id),
        }
    }
}

/// The beginning of the bytes' hash; where parameters or limits are not the default ones, also of theirs: a chain may have the same
/// bytes twice.
fn id(digest: &Digest, settings: &PolicySettings) -> String {
    let mut id = hex(digest);
    id.truncate(BYTES_DIGITS);
    if *settings != PolicySettings::default() {
        let PolicySettings {
            params_json,
            cpu_budget,
            wall_limit,
            memory_bytes,
        } = settings;
        let limits = format!("{params_json} {cpu_budget:?} {wall_limit:?} {memory_bytes}");
        let of_settings = hex(&Sha256::digest(limits).into());
        id.push('-');
        id.push_str(&of_settings[..SETTINGS_DIGITS]);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_with_other_parameters_have_another_id() {
        let plain = PolicySettings::default();
        let tuned = PolicySettings {
            params_json: r#"{"a":1}"#.to_owned(),
            ..PolicySettings::default()
        };
        let ids = [id(&[7; 32], &plain), id(&[7; 32], &tuned), id(&[8; 32], &tuned)];
        assert_eq!(ids[0], "070707070707");
        assert!(ids[1].starts_with("070707070707-"), "{ids:?}");
        assert_eq!(ids[1][12..], ids[2][12..]);
    }
}
