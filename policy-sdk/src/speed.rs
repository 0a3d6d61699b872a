//! How long the candidates take for prompt tokens: by the time of one as the router has measured it, or by configured weights.

use crate::call::{Call, Row};
use crate::plan::{Column, Plan};

/// Where the router lays out the speeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    weight: Column,
    /// Only asked for where speeds are to be measured.
    token_ms: Option<Column>,
}

/// The speeds of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    weight: Column,
    measured: Option<Measured>,
}

/// Speeds as they were measured.
#[derive(Debug, Clone, Copy)]
struct Measured {
    column: Column,
    /// Milliseconds that a token takes on a worker of weight 1, by those whose speed is known.
    at_weight_one: f64,
}

impl Speed {
    pub(crate) fn new(plan: &mut Plan, is_measured: bool) -> Self {
        Self {
            weight: plan.column("worker.weight"),
            token_ms: is_measured.then(|| plan.column("cost.token-ms")),
        }
    }

    /// Measured where all candidates that `computes` prompts have one; what another one takes is then told from its weight.
    pub(crate) fn of<'c>(&self, call: &Call<'c>, computes: impl Fn(&Row<'c>) -> bool) -> Pace {
        Pace {
            weight: self.weight,
            measured: self
                .token_ms
                .and_then(|column| self.measured(column, call, computes)),
        }
    }

    /// By weight.
    pub(crate) fn configured(&self) -> Pace {
        Pace {
            weight: self.weight,
            measured: None,
        }
    }

    fn measured<'c>(
        &self,
        column: Column,
        call: &Call<'c>,
        computes: impl Fn(&Row<'c>) -> bool,
    ) -> Option<Measured> {
        let (mut sum, mut known) = (0.0, 0.0);
        for row in call.rows() {
            let token_ms = row.get(column);
            if token_ms > 0.0 {
                sum += token_ms * row.get(self.weight);
                known += 1.0;
            } else if computes(&row) {
                return None;
            }
        }
        (known > 0.0).then(|| Measured {
            column,
            at_weight_one: sum / known,
        })
    }
}

impl Pace {
    /// Whether work is counted in milliseconds; else in tokens on a worker of weight 1.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.is_some()
    }

    /// What the work of so many tokens takes there.
    #[inline]
    pub(crate) fn work(&self, row: &Row<'_>, tokens: f64) -> f64 {
        let weight = row.get(self.weight);
        let Some(measured) = self.measured else {
            return tokens / weight;
        };
        let token_ms = row.get(measured.column);
        if token_ms > 0.0 {
            tokens * token_ms
        } else {
            tokens * measured.at_weight_one / weight
        }
    }

    /// What it takes on a worker of weight 1.
    pub(crate) fn work_anywhere(&self, tokens: f64) -> f64 {
        match self.measured {
            Some(measured) => tokens * measured.at_weight_one,
            None => tokens,
        }
    }
}
