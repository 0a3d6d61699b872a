//! Speed of the candidates for prompt tokens: measured time per token, or configured weight.

use crate::call::{Call, Row};
use crate::lanes::{Number, Numbers};
use crate::plan::{Column, Plan};

/// Columns of the speeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    weight: Column,
    /// Requested only if measured speeds are enabled.
    token_ms: Option<Column>,
}

/// Speeds of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSpeed {
    weight: Column,
    measured: Option<MeasuredSpeed>,
}

/// Measured speeds of one call.
#[derive(Debug, Clone, Copy)]
struct MeasuredSpeed {
    column: Column,
    /// Mean milliseconds per token, scaled to a worker of weight 1, over the candidates with a known speed.
    at_weight_one: f64,
}

impl Speed {
    pub(crate) fn new(plan: &mut Plan, is_measured: bool) -> Self {
        Self {
            weight: plan.column("worker.weight"),
            token_ms: is_measured.then(|| plan.column("cost.token-ms")),
        }
    }

    /// Uses measured speeds if all candidates for which `computes` is true have one. Other unknown speeds are
    /// derived from weights.
    pub(crate) fn of<'c>(&self, call: &Call<'c>, computes: impl Fn(&Row<'c>) -> bool) -> CallSpeed {
        CallSpeed {
            weight: self.weight,
            measured: self
                .token_ms
                .and_then(|column| self.measured(column, call, computes)),
        }
    }

    /// Returns the speeds by configured weight.
    pub(crate) fn configured(&self) -> CallSpeed {
        CallSpeed {
            weight: self.weight,
            measured: None,
        }
    }

    fn measured<'c>(
        &self,
        column: Column,
        call: &Call<'c>,
        computes: impl Fn(&Row<'c>) -> bool,
    ) -> Option<MeasuredSpeed> {
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
        (known > 0.0).then(|| MeasuredSpeed {
            column,
            at_weight_one: sum / known,
        })
    }
}

impl CallSpeed {
    /// Returns true if the unit of work is milliseconds; otherwise it is tokens on a worker of weight 1.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.is_some()
    }

    /// Returns the time of computing so many tokens on the candidate.
    #[inline(always)]
    pub(crate) fn work<R: Numbers>(&self, row: &R, tokens: R::Number) -> R::Number {
        let weight = row.number(self.weight);
        let Some(measured) = self.measured else {
            return tokens / weight;
        };
        let token_ms = row.number(measured.column);
        let by_weight = tokens * measured.at_weight_one.into() / weight;
        R::Number::select(token_ms.exceeds(0.0.into()), tokens * token_ms, by_weight)
    }

    /// Returns the time of so many tokens on a worker of weight 1.
    #[inline(always)]
    pub(crate) fn work_anywhere<N: Number>(&self, tokens: N) -> N {
        match self.measured {
            Some(measured) => tokens * measured.at_weight_one.into(),
            None => tokens,
        }
    }
}
