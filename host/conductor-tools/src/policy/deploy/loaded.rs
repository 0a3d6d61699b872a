//! Bytes of a deployment on a page of policies: loaded, held back, or not seen.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::refusal::{DeployError, PATIENCE};

/// Returns whether a router has these bytes under that name, by its page of policies.
pub(super) fn has_loaded(
    page: &Value,
    name: &str,
    sha256: &str,
    file: &Path,
    waited: Duration,
) -> Result<bool, DeployError> {
    let mut policies = page["policies"].as_array().into_iter().flatten();
    let known = policies.find(|policy| policy["name"] == name);
    let known = known.unwrap_or(&Value::Null);
    if known["sha256"] == sha256 {
        return Ok(true);
    }
    let mut held = known["held_back"].as_array().into_iter().flatten();
    if held.any(|held| held == sha256) {
        return Err(DeployError::HeldBack(name.to_owned()));
    }
    if waited <= PATIENCE {
        return Ok(false);
    }
    let why = known["problem"].as_str().map(|problem| format!(": {problem}"));
    Err(DeployError::NotSeen {
        file: file.display().to_string(),
        why: why.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_are_waited_for_unless_they_are_held_back_or_the_router_does_not_load_them_in_time() {
        let after = |policy: Value, waited: Duration| {
            let page = json!({ "policies": [{ "name": "other", "sha256": "new" }, policy] });
            let loaded = has_loaded(&page, "mine", "new", Path::new("/p/mine.wasm"), waited);
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
