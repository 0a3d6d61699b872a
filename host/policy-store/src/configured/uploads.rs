//! Uploads into the policy folder: which policies may be replaced, and how a file gets there as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use conductor_config::{Config, check_policy_name};
use local_files::{ConfigSource, NewFileAccess, replace_file};
use policy_runtime::PolicySettings;
use routing::hex;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{PolicyFiles, mark_scorers};
use crate::builtin;
use crate::library::{PolicyProblem, PolicySource, WantedPolicy};

/// Mode of a new file, less nothing: the router's user may read its own policies, and others may too.
const MODE: u32 = 0o644;

/// Rules of a configuration for uploads.
#[derive(Debug)]
pub struct UploadRules {
    folder: Option<PathBuf>,
    /// Configured policies; none for one without a component of its own.
    configured: BTreeMap<String, Option<WantedPolicy>>,
    /// Template of a policy that no table configures.
    unconfigured: WantedPolicy,
}

/// Place and conditions of an upload.
#[derive(Debug, Clone)]
pub struct UploadTarget {
    /// The policy as it would be loaded.
    wanted: WantedPolicy,
    path: PathBuf,
}

/// Reason for refusing an upload.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The name cannot name a policy.
    #[error("upload a policy: {0}")]
    Name(String),
    /// There is no policy folder.
    #[error("upload policy `{0}`: no `policy-dir` is configured")]
    NoFolder(String),
    /// The policy does not come from the folder.
    #[error("upload policy `{name}`: it is {source_name}, not a file of `policy-dir`")]
    NotOfFolder {
        /// Name of the policy.
        name: String,
        /// Source of its component.
        source_name: String,
    },
    /// The configuration does not permit the bytes.
    #[error("upload policy `{name}`")]
    NotPermitted {
        /// Name of the policy.
        name: String,
        /// The problem.
        #[source]
        source: PolicyProblem,
    },
    /// The file cannot be written.
    #[error("write `{}`", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

impl UploadRules {
    /// Returns the rules of a configuration.
    #[must_use]
    pub fn of(config: &Config, source: &ConfigSource) -> Self {
        let files = PolicyFiles::of(config, source);
        let folder = files.folder.clone();
        let mut wanted: Vec<WantedPolicy> = (config.policies.iter())
            .filter_map(|policy| files.configured(policy))
            .collect();
        mark_scorers(config, &mut wanted);
        let mut configured: BTreeMap<_, _> = (config.policies.iter())
            .map(|policy| (policy.name.clone(), None))
            .collect();
        configured.extend(
            wanted
                .into_iter()
                .map(|policy| (policy.name.clone(), Some(policy))),
        );
        let any = folder.clone().unwrap_or_default().join("any.wasm");
        Self {
            folder,
            configured,
            unconfigured: files.in_folder(String::new(), any),
        }
    }

    /// Returns the target of a policy's upload.
    ///
    /// # Errors
    /// [`UploadError`] if the policy has no file in the folder, and can have none.
    pub fn target(&self, name: &str) -> Result<UploadTarget, UploadError> {
        check_policy_name(name).map_err(UploadError::Name)?;
        let folder = self.folder.as_deref();
        let folder = folder.ok_or_else(|| UploadError::NoFolder(name.to_owned()))?;
        let path = folder.join(format!("{name}.wasm"));
        let elsewhere = |source_name: String| UploadError::NotOfFolder {
            name: name.to_owned(),
            source_name,
        };
        let wanted = match self.configured.get(name) {
            Some(None) => return Err(elsewhere("a pipeline".to_owned())),
            Some(Some(wanted)) if wanted.source == PolicySource::File(path.clone()) => wanted.clone(),
            Some(Some(wanted)) => return Err(elsewhere(format!("`{}`", wanted.source))),
            None if builtin::find(name).is_some() => return Err(elsewhere("a built-in policy".to_owned())),
            None => WantedPolicy {
                name: name.to_owned(),
                source: PolicySource::File(path.clone()),
                ..self.unconfigured.clone()
            },
        };
        Ok(UploadTarget { wanted, path })
    }
}

impl UploadTarget {
    /// Returns the name of the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.wanted.name
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the parameters and limits that the policy will be loaded with.
    #[must_use]
    pub fn settings(&self) -> &PolicySettings {
        &self.wanted.settings
    }

    /// Returns true if a pipeline has the policy as a scorer.
    #[must_use]
    pub fn scores(&self) -> bool {
        self.wanted.scores
    }

    /// Returns the SHA-256 of bytes that the configuration permits, in hexadecimal digits.
    ///
    /// # Errors
    /// [`UploadError::NotPermitted`] if a pin or the folder's list excludes them.
    pub fn permit(&self, bytes: &[u8]) -> Result<String, UploadError> {
        let digest = Sha256::digest(bytes).into();
        let permitted = self.wanted.permit.check(&digest);
        permitted.map_err(|source| UploadError::NotPermitted {
            name: self.wanted.name.clone(),
            source,
        })?;
        Ok(hex(&digest))
    }

    /// Replaces the file by these bytes: a reader sees the old file or the new one. Blocks until it is on the disk.
    ///
    /// # Errors
    /// [`UploadError::Write`]; the old file stays then.
    pub fn store(&self, bytes: &[u8]) -> Result<(), UploadError> {
        self.replace(bytes).map_err(|source| UploadError::Write {
            path: self.path.clone(),
            source,
        })
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mode = match fs::symlink_metadata(&self.path) {
            Ok(file) if file.is_file() => file.permissions().mode() & 0o777,
            Ok(_) => {
                return Err(io::Error::other(
                    "it is a symbolic link or no file: replace its target",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => MODE,
            Err(error) => return Err(error),
        };
        replace_file(&self.path, bytes, NewFileAccess::Mode(mode)).map_err(|error| error.source)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use conductor_config::Known;

    use super::*;

    fn rules(folder: &Path, toml: &str) -> UploadRules {
        let text = format!(
            "{toml}\n[[routes]]\npool = \"p\"\npolicy = \"round-robin\"\n[[pools.p.workers]]\nurl = \"http://127.0.0.1:1\"\n"
        );
        let file = folder.join("conductor.toml");
        let source = ConfigSource::File(file);
        let known = Known {
            builtins: &builtin::names(),
            former_builtins: &[],
            default_policy: "round-robin",
            files: &source,
            has_admin_key: false,
        };
        let parsed = Config::parse("test", &text, &known).unwrap();
        UploadRules::of(&parsed.config, &source)
    }

    #[track_caller]
    fn refused(rules: &UploadRules, name: &str, expected: &str) {
        let error = rules.target(name).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }

    #[test]
    fn only_files_of_the_folder_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["p/mine.wasm", "q/other.wasm"] {
            let path = folder.path().join(name);
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let toml = "policy-dir = \"p\"\n[policies.other]\npath = \"q/other.wasm\"\n[policies.own]\n\
                    builtin = \"round-robin\"\n[policies.mine]\nlimits = { cpu = \"2ms\" }\n";
        let rules = rules(folder.path(), toml);
        let mine = rules.target("mine").unwrap();
        assert_eq!(mine.path(), folder.path().join("p/mine.wasm"));
        assert_eq!(mine.settings().cpu_budget, std::time::Duration::from_millis(2));
        let new = rules.target("new").unwrap();
        assert_eq!(new.path(), folder.path().join("p/new.wasm"));
        assert_eq!(*new.settings(), PolicySettings::default());
        refused(&rules, "other", "q/other.wasm");
        refused(&rules, "own", "round-robin");
        refused(&rules, "cache-aware", "built-in");
        for name in ["", "..", "../mine", "a/b", ".hidden", "a\0b", "a b"] {
            refused(&rules, name, "cannot name a policy");
        }
    }

    #[test]
    fn without_a_folder_there_is_no_target() {
        let folder = tempfile::tempdir().unwrap();
        refused(&rules(folder.path(), ""), "mine", "policy-dir");
    }

    #[test]
    fn a_list_permits_only_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("p")).unwrap();
        let listed = hex(&Sha256::digest(b"good"));
        let toml = format!("policy-dir = \"p\"\npolicy-dir-allow = [\"{listed}\"]\n");
        let target = rules(folder.path(), &toml).target("mine").unwrap();
        assert_eq!(target.permit(b"good").unwrap(), listed);
        assert!(matches!(
            target.permit(b"bad"),
            Err(UploadError::NotPermitted { .. })
        ));
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_with_its_mode_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let policies = folder.path().join("p");
        fs::create_dir(&policies).unwrap();
        let target = rules(folder.path(), "policy-dir = \"p\"\n")
            .target("mine")
            .unwrap();
        target.store(b"one").unwrap();
        fs::set_permissions(target.path(), Permissions::from_mode(0o640)).unwrap();
        target.store(b"two").unwrap();
        assert_eq!(fs::read(target.path()).unwrap(), b"two");
        assert_eq!(
            fs::metadata(target.path()).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(fs::read_dir(&policies).unwrap().count(), 1);
        let elsewhere = folder.path().join("elsewhere.wasm");
        fs::rename(target.path(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, target.path()).unwrap();
        assert!(matches!(target.store(b"link"), Err(UploadError::Write { .. })));
        assert_eq!(fs::read(&elsewhere).unwrap(), b"two");
        fs::remove_dir_all(&policies).unwrap();
        assert!(matches!(target.store(b"three"), Err(UploadError::Write { .. })));
    }
}
