//! Session home: the worker assumed to cache a session's prompts when no prefix match is known.

use std::cell::OnceCell;

use crate::call::{Call, Row, WorkerId};
use crate::params::Params;
use crate::plan::Plan;
use crate::price::Quote;

/// Configured assumption about a session's home worker.
#[derive(Debug, Clone, Copy)]
pub struct SessionHome {
    /// Share of the prompt that the home is assumed to hold.
    share: f64,
}

/// Matches of one call, known or assumed.
#[derive(Debug)]
pub struct SessionMatches<'a> {
    call: &'a Call<'a>,
    quote: Quote<'a>,
    share: f64,
    /// Computed on first use; never needed with a live index.
    home: OnceCell<Option<WorkerId>>,
}

impl SessionHome {
    /// Reads the parameter `session-share`, and requests the hashes of the workers' names.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        plan.name_hash();
        Self {
            share: params
                .unit("share")
                .about(
                    "Share of the prompt that a session's home worker is assumed to hold if the match is unknown.",
                )
                .number("session-share", 0.75, 0.0..=1.0),
        }
    }

    /// Creates the matches of a call.
    #[must_use]
    pub fn matches<'a>(&self, call: &'a Call<'a>, quote: Quote<'a>) -> SessionMatches<'a> {
        SessionMatches {
            call,
            quote,
            share: self.share,
            home: OnceCell::new(),
        }
    }
}

impl SessionMatches<'_> {
    /// Returns the cached tokens of the prompt; if they are unknown, the assumption about the session's home.
    #[must_use]
    #[inline]
    pub fn get(&self, row: &Row<'_>) -> f64 {
        self.quote.matched(row).unwrap_or_else(|| {
            let at_home = self.home() == Some(row.id());
            match at_home {
                true => self.share * self.quote.prompt(),
                false => 0.0,
            }
        })
    }

    /// Finds the session's home ([`Call::home`]).
    fn home(&self) -> Option<WorkerId> {
        *self
            .home
            .get_or_init(|| self.call.home(self.call.request().session?))
    }
}
