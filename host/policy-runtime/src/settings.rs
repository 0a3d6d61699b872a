//! Operator settings of a policy.

use std::time::Duration;

/// Parameters and limits of one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// `params` as a JSON object; `{}` for none.
    pub params_json: String,
    /// CPU time of a decision. It is measured in ticks of a millisecond, so a smaller value means one tick.
    pub cpu_budget: Duration,
    /// Real time of a decision.
    pub wall_limit: Duration,
    /// Bytes of linear memory of an instance, over all its memories.
    pub memory_bytes: usize,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            params_json: "{}".to_owned(),
            cpu_budget: Duration::from_millis(1),
            wall_limit: Duration::from_millis(50),
            memory_bytes: 16 << 20,
        }
    }
}
