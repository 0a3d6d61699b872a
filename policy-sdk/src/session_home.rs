//! Where a session is taken to have its cache while nothing is known of caches.

use std::cell::OnceCell;

use crate::call::{Call, Row, WorkerId};
use crate::hash::mix;
use crate::params::Params;
use crate::price::Quote;

/// What a session's home is taken to hold.
#[derive(Debug, Clone, Copy)]
pub struct SessionHome {
    /// Share of the prompt.
    share: f64,
}

/// Matches of one call, known or taken for granted.
#[derive(Debug)]
pub struct Matches<'a> {
    call: &'a Call<'a>,
    quote: Quote<'a>,
    share: f64,
    /// Found when first needed: with a live index it never is.
    home: OnceCell<Option<WorkerId>>,
}

impl SessionHome {
    /// Reads the parameter `session-share`.
    #[must_use]
    pub fn configure(params: &mut Params) -> Self {
        Self {
            share: params
                .unit("share")
                .about(
                    "Part of the prompt that a session's home is taken to hold where the match is unknown.",
                )
                .number("session-share", 0.75, 0.0..=1.0),
        }
    }

    /// The matches of a call.
    #[must_use]
    pub fn matches<'a>(&self, call: &'a Call<'a>, quote: Quote<'a>) -> Matches<'a> {
        Matches {
            call,
            quote,
            share: self.share,
            home: OnceCell::new(),
        }
    }
}

impl Matches<'_> {
    /// Tokens of the prompt that need not be computed there; where that is not known, what a session's home is taken to hold.
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

    /// The candidate that the session belongs to: the one that ranks highest for it (rendezvous hashing), so that a
    /// worker that comes or goes moves no session but its own. A tie among all falls on the same one.
    fn home(&self) -> Option<WorkerId> {
        *self.home.get_or_init(|| {
            let session = self.call.request().session?;
            let ids = self.call.ids().iter().copied();
            ids.max_by_key(|&id| mix(session, u64::from(id)))
        })
    }
}
