//! Validation of overrides that come from a file or from another router, while they are deserialised.
//!
//! The rules are those of the configuration: names that lead nowhere else than into the policy folder, and shares that
//! leave the route's policy some sessions.

use conductor_config::check_policy_name;
use serde::de::{Deserialize, Deserializer, Error};

use super::change::PARTS;

/// Deserialises the name of a policy.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    check_policy_name(&name).map_err(Error::custom)?;
    Ok(name)
}

/// Deserialises names of policies.
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let mut checks = names.iter().map(|name| check_policy_name(name));
    checks.try_for_each(|check| check.map_err(Error::custom))?;
    Ok(names)
}

/// Deserialises canaries with their shares, which are above 0 and sum up to less than the whole.
pub(super) fn canaries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, u32)>, D::Error> {
    let canaries = Vec::<(String, u32)>::deserialize(from)?;
    for (name, share) in &canaries {
        check_policy_name(name).map_err(Error::custom)?;
        if *share == 0 {
            return Err(Error::custom(format_args!("the canary `{name}` has no share")));
        }
    }
    let sum: u64 = canaries.iter().map(|(_, share)| u64::from(*share)).sum();
    if sum >= u64::from(PARTS) {
        let why =
            format_args!("the canaries have {sum} of {PARTS} parts, and the route's policy must keep some");
        return Err(Error::custom(why));
    }
    Ok(canaries)
}

/// Deserialises the share of requests for shadows: above 0 and up to 1.
pub(super) fn sample<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let sample = f64::deserialize(from)?;
    if sample > 0.0 && sample <= 1.0 {
        return Ok(sample);
    }
    let why = format_args!("the share of requests for shadows is {sample}: it must be above 0 and at most 1");
    Err(Error::custom(why))
}
