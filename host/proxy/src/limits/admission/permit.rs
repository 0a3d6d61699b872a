//! Permit: one request's share of its pool's budget, until its response ends.

use std::sync::Arc;

use routing::weighted_tokens;

use super::controller::AdmissionController;

/// Share of the budget, and a charge on the tenant's account. Dropping it returns the share and admits waiting
/// requests. The charge of an unused permit is returned too.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(super) controller: Arc<AdmissionController>,
    /// Tokens taken of the budget.
    pub(super) tokens: u64,
    /// Expected output within these tokens.
    pub(super) output: u64,
    /// Charged tenant and amount.
    pub(super) charged: Option<Charge>,
    pub(super) is_used: bool,
}

/// Charge on a tenant's account.
#[derive(Debug)]
pub(super) struct Charge {
    pub(super) tenant: Arc<str>,
    pub(super) weight: f64,
    /// Weighted tokens divided by the tenant's weight.
    pub(super) share: f64,
    /// True if the request was held, and is not yet known to be served.
    pub(super) is_decided: bool,
}

impl Permit {
    /// Marks the permit as used: the request goes to a worker.
    pub(super) fn begin(&mut self) {
        self.is_used = true;
        if let Some(charge) = &mut self.charged
            && std::mem::take(&mut charge.is_decided)
        {
            self.controller.decided(charge);
        }
    }

    /// Returns the charge of a request that waits again. Its next permit charges it.
    pub(super) fn refund(&mut self) {
        if let Some(charge) = self.charged.take() {
            self.controller.correct(&charge.tenant, -charge.share);
        }
    }

    /// Charges the tenant for the output tokens of a complete response.
    pub(crate) fn served(&self, output: u64) {
        if let Some(charge) = &self.charged {
            let more = weighted_tokens(0, output) - weighted_tokens(0, self.output);
            self.controller.correct(&charge.tenant, more / charge.weight);
        }
    }

    /// Charges the tenant for the output tokens of a response that broke off, if they are more than was expected.
    pub(crate) fn served_part(&self, output: u64) {
        if output > self.output {
            self.served(output);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_used {
            self.refund();
        }
        self.controller.give_back(self.tokens, self.is_used);
    }
}
