//! Workers that leave service because of their health, and those that are back.

use std::collections::HashMap;

use proxy::{Health, PoolSample};

use crate::rates::worker_key;

/// Health of the workers at the last look.
#[derive(Debug, Default)]
pub struct HealthWatch(HashMap<String, bool>);

/// Worker that left service, or is back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    /// Key of the worker: `POOL/NAME`.
    pub worker: String,
    /// Set if it left service.
    pub is_out: bool,
    /// Reason of its state.
    pub reason: Option<String>,
}

impl HealthWatch {
    /// Returns the changes since the last look.
    pub fn look(&mut self, pools: &[PoolSample]) -> Vec<HealthChange> {
        let mut next = HashMap::new();
        let mut changes = Vec::new();
        for pool in pools {
            for worker in &pool.workers {
                let key = worker_key(pool, worker);
                let was_out = self.0.get(&key).copied().unwrap_or(false);
                let is_out = match worker.health {
                    Health::Ejected | Health::Unhealthy => true,
                    Health::Ok | Health::Returning => false,
                    // Set by an operator or by the worker itself.
                    Health::Pending | Health::Busy | Health::Draining | Health::EngineUnknown => was_out,
                };
                if is_out != was_out {
                    changes.push(HealthChange {
                        worker: key.clone(),
                        is_out,
                        reason: worker.reason.clone(),
                    });
                }
                next.insert(key, is_out);
            }
        }
        self.0 = next;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{pool, worker};

    #[test]
    fn a_worker_is_reported_when_it_leaves_service_and_when_it_is_back() {
        let mut watch = HealthWatch::default();
        let mut look = |health, reason: Option<&str>| {
            let mut worker = worker("w0");
            worker.health = health;
            worker.reason = reason.map(str::to_owned);
            let changes = watch.look(&[pool("a", vec![worker])]);
            changes
                .into_iter()
                .map(|change| (change.is_out, change.reason))
                .collect::<Vec<_>>()
        };
        assert_eq!(look(Health::Pending, None), []);
        assert_eq!(look(Health::Ok, None), []);
        assert_eq!(
            look(Health::Ejected, Some("refused")),
            [(true, Some("refused".to_owned()))]
        );
        assert_eq!(look(Health::Unhealthy, None), []);
        assert_eq!(look(Health::Draining, None), []);
        assert_eq!(look(Health::Returning, None), [(false, None)]);
        assert_eq!(look(Health::Ok, None), []);
    }
}
