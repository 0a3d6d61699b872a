//! Bytes of a deployment on a page of policies: loaded, held back, or not seen.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::refusal::DeployError;

/// Maximum time for the router to load a file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a policy that a router is to load.
#[derive(Debug)]
pub(super) struct DeployedBytes {
    pub(super) name: String,
    pub(super) sha256: String,
    /// Place in the policy folder.
    pub(super) file: PathBuf,
}

impl DeployedBytes {
    /// Returns whether a router has them under that name, by its page of policies.
    pub(super) fn are_loaded(&self, page: &Value, waited: Duration) -> Result<bool, DeployError> {
        let mut policies = page["policies"].as_array().into_iter().flatten();
        let known = policies.find(|policy| policy["name"] == *self.name);
        let known = known.unwrap_or(&Value::Null);
        if known["sha256"] == *self.sha256 {
            return Ok(true);
        }
        let mut held = known["held_back"].as_array().into_iter().flatten();
        if held.any(|held| *held == *self.sha256) {
            return Err(DeployError::HeldBack(self.name.clone()));
        }
        if waited <= PATIENCE {
            return Ok(false);
        }
        let why = known["problem"].as_str().map(|problem| format!(": {problem}"));
        Err(DeployError::NotSeen {
            file: self.file.display().to_string(),
            within: PATIENCE,
            why: why.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_are_waited_for_unless_they_are_held_back_or_the_router_does_not_load_them_in_time() {
        let after = |policy: Value, waited: Duration| {
            let page = json!({ "policies": [{ "name": "other", "sha256": "new" }, policy] });
            let deployed = DeployedBytes {
                name: "mine".to_owned(),
                sha256: "new".to_owned(),
                file: PathBuf::from("/p/mine.wasm"),
            };
            let loaded = deployed.are_loaded(&page, waited);
            loaded.map_err(|refused| refused.to_string())
        };
        let late = PATIENCE + Duration::from_secs(1);
        let loaded = json!({ "name": "mine", "sha256": "new", "held_back": ["old"] });
        assert_eq!(after(loaded, late), Ok(true));
        let before = json!({ "name": "mine", "sha256": "old", "held_back": [], "problem": "no component" });
        assert_eq!(after(before.clone(), PATIENCE), Ok(false));
        let not_seen = after(before, late).unwrap_err();
        assert!(not_seen.contains("did not load `/p/mine.wasm`") && not_seen.contains(": no component"));
        assert!(after(json!({ "name": "else" }), late).is_err_and(|why| why.contains("`policy-dir`")));
        let held = json!({ "name": "mine", "sha256": "old", "held_back": ["older", "new"] });
        assert!(after(held, Duration::ZERO).is_err_and(|why| why.contains("rolled these bytes back")));
    }
}
