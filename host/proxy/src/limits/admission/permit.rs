//! What one request takes of its pool, until its answer ends.

use std::sync::Arc;

use routing::weighted_tokens;

use super::gate::AdmissionController;

/// ConnectionLimiter in the budget, and a charge on the tenant's account. Dropped, the room is given back and whoever waits is let in; what
/// was never made use of is not charged either.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(super) gate: Arc<AdmissionController>,
    /// What it takes of the budget of tokens.
    pub(super) tokens: u64,
    /// Of those, the output that is expected.
    pub(super) output: u64,
    /// Who was charged, and how much.
    pub(super) charged: Option<Charge>,
    pub(super) is_used: bool,
}

/// On a tenant's account.
#[derive(Debug)]
pub(super) struct Charge {
    pub(super) tenant: Arc<str>,
    pub(super) weight: f64,
    /// Weighted tokens over the weight.
    pub(super) share: f64,
}

impl Permit {
    /// The request goes to a worker.
    pub(super) fn begin(&mut self) {
        self.is_used = true;
    }

    /// The answer is complete, with so many tokens: the tenant is charged those.
    pub(crate) fn served(&self, output: u64) {
        if let Some(charge) = &self.charged {
            let more = weighted_tokens(0, output) - weighted_tokens(0, self.output);
            self.gate.correct(&charge.tenant, more / charge.weight);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(charge) = self.charged.take().filter(|_| !self.is_used) {
            self.gate.correct(&charge.tenant, -charge.share);
        }
        self.gate.give_back(self.tokens, self.is_used);
    }
}
