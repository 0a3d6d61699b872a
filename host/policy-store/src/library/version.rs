//! Version of a policy: loaded bytes with settings and a circuit breaker.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use policy_runtime::{PolicySettings, WasmPolicy};
use routing::{Circuit, CircuitSpec, CircuitState, PolicyVersion, hex, scores_singly};
use sha2::{Digest as _, Sha256};

use super::WantedPolicy;
use super::digest::Digest;
use super::saved_rollback::VersionIdentity;

/// Digits of the bytes' hash in a version's id: enough to distinguish versions.
const BYTES_DIGITS: usize = 12;
/// Digits of the settings' hash, of which there are few for the same bytes.
const SETTINGS_DIGITS: usize = 6;

/// Component that works with its settings.
#[derive(Debug, Clone)]
pub struct LoadedVersion {
    /// Loaded component.
    pub policy: Arc<WasmPolicy>,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Settings that it was loaded with; the configuration may have others by now.
    pub(super) settings: PolicySettings,
    /// Id, unique among the policy's versions.
    pub(super) id: Arc<str>,
    /// Circuit breaker; another one after a change of its spec.
    pub(super) circuit: Arc<Circuit>,
    pub(super) spec: CircuitSpec,
    /// Time of its activation, else of its loading.
    pub(super) since: SystemTime,
    /// Bytes, if a rollback to it is to survive a restart.
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

    /// Returns the identity of its bytes and settings.
    pub(super) fn identity(&self) -> VersionIdentity {
        VersionIdentity::of(&self.digest, &self.settings)
    }

    /// Returns true if it has these bytes and settings.
    pub(super) fn is_of(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        self.digest == *digest && self.settings == *settings
    }

    /// Returns the version with a circuit of this spec. The circuit stays if it has this spec already.
    pub(super) fn under(&self, spec: CircuitSpec) -> Self {
        let mut version = self.clone();
        if version.spec != spec {
            version.circuit = Arc::new(Circuit::new(spec));
            version.spec = spec;
        }
        version
    }

    /// Returns true if it can score, or need not.
    pub(super) fn does(&self, wanted: &WantedPolicy) -> bool {
        !wanted.scores || scores_singly(&*self.policy)
    }

    /// Returns true if it would decide as the first of its chain.
    pub(super) fn decides(&self) -> bool {
        self.circuit.state() == CircuitState::Closed
    }

    /// Returns it as a link of a chain.
    pub(super) fn link(&self) -> PolicyVersion {
        PolicyVersion {
            policy: Arc::clone(&self.policy) as _,
            circuit: Arc::clone(&self.circuit),
            id: Arc::clone(&self.id),
        }
    }
}

/// Returns the beginning of the bytes' hash. Settings other than the default add theirs: a chain may have the same
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
        let of_settings = hex(&Sha256::digest(limits));
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
