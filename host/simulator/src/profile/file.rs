//! A fitted profile as a file has it: one JSON object, whose fields are [`FittedProfile`]'s with hyphens.

use super::FittedProfile;

/// Reason for which a text is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text is no JSON, or a field is missing, unknown or of another type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A time is below 0, or no number.
    #[error("`{0}` must have no numbers below 0")]
    Negative(&'static str),
    /// A required part takes no time, or has no room.
    #[error("`{0}` must be above 0")]
    Nothing(&'static str),
}

impl FittedProfile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Where it is no profile, or one by which a run would not end.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = serde_json::from_str(text)?;
        let times: [(&str, &[f64]); 5] = [
            ("prefill-ms", &profile.prefill_ms),
            ("transfer-ms", &profile.transfer_ms),
            ("step-ms", &profile.step_ms),
            ("host-ms", std::slice::from_ref(&profile.host_ms)),
            ("disk-ms", std::slice::from_ref(&profile.disk_ms)),
        ];
        for (name, values) in times {
            if !values.iter().all(|value| value.is_finite() && *value >= 0.0) {
                return Err(ProfileError::Negative(name));
            }
        }
        let sizes = [
            ("prefill-ms", profile.prefill_ms.iter().sum()),
            ("step-ms", profile.step_ms.iter().sum()),
            ("kv-tokens", profile.kv_tokens as f64),
            ("link-gbps", profile.link_gbps),
        ];
        for (name, value) in sizes {
            if !(value.is_finite() && value > 0.0) {
                return Err(ProfileError::Nothing(name));
            }
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "prefill-ms": [20, 70, 0.5],
        "transfer-ms": [1, 3.7],
        "step-ms": [26.7, 0, 0.053],
        "host-ms": 2.5,
        "disk-ms": 54,
        "kv-tokens": 1350000,
        "link-gbps": 800
    }"#;

    #[test]
    fn a_profile_is_read_and_its_costs_are_those_of_the_file() {
        let profile = FittedProfile::from_json(TEXT).unwrap();
        assert_eq!(profile.kv_tokens, 1_350_000);
        assert_eq!(
            super::super::Profile::Fitted(profile).prefill_us(2_000, 0),
            160_000
        );
    }

    #[test]
    fn a_file_that_is_no_profile_is_reported() {
        let refused = |from: &str, to: &str| {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            FittedProfile::from_json(&text).unwrap_err().to_string()
        };
        assert!(refused("\"host-ms\"", "\"hosts-ms\"").contains("unknown field `hosts-ms`"));
        assert!(refused("[1, 3.7]", "[1]").contains("array of length 2"));
        assert!(refused("0.053", "-0.053").contains("`step-ms`"));
        assert!(refused("1350000", "0").contains("`kv-tokens` must be above 0"));
        assert!(refused("[26.7, 0, 0.053]", "[0, 0, 0]").contains("`step-ms` must be above 0"));
    }
}
