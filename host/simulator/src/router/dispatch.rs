//! Dispatch of a placement: leases, expected cache contents and backlog; their return; and the events of it.

use std::sync::Arc;

use placement::{PrefixMatches, WorkerPlacement};
use routing::{EventKind, Role};

use super::bookings::{Booking, WorkerShare};
use super::events::{RouterEvent, worker_number};
use super::index::TracePrompt;
use super::noted_request::NotedRequest;
use super::placement::Placement;
use super::prices::PromptLengths;
use super::single::{Router, session_hash};
use super::state::RouterState;
use crate::engine::Fetch;
use crate::request::Request;

impl Router {
    /// Books a request at the workers it goes to.
    pub(super) fn dispatch(
        &mut self,
        now_us: u64,
        number: usize,
        request: &Request,
        prompt: &Arc<TracePrompt>,
        workers: WorkerPlacement,
    ) -> Placement {
        let tokens = request.prompt_tokens;
        let begins = workers.prefills.unwrap_or(workers.answers);
        let fetch = self.foresee(now_us, number, begins.member, tokens, prompt);
        let uncached = tokens.saturating_sub(begins.matched.unwrap_or(0));
        let computed = self.worker(begins.member).load().book(tokens, uncached);
        let computed = computed.with_best_match(begins.best.unwrap_or(0));
        let computes = WorkerShare::new(begins.member, computed, now_us);
        let (answers, prefills) = match workers.prefills {
            None => (computes, None),
            // Booked before the prefill leg is sent, so that no other request sees this worker idle meanwhile.
            Some(_) => {
                let answers = workers.answers.member;
                let fetched = self.worker(answers).load().book_fetched(tokens);
                (WorkerShare::new(answers, fetched, now_us), Some(computes))
            }
        };
        self.state.index.expect(begins.member, prompt);
        let handed = prefills.is_some().then(|| Arc::clone(prompt));
        self.book(now_us, number, request, answers, prefills, handed);
        Placement::Dispatch {
            worker: workers.answers.member,
            prefill: workers.prefills.map(|choice| choice.member),
            score: workers.score,
            matched: begins.matched,
            fetch,
        }
    }

    /// Books the answer to a prompt that is computed.
    pub(super) fn dispatch_answer(
        &mut self,
        now_us: u64,
        number: usize,
        request: &Request,
        prompt: &Arc<TracePrompt>,
        workers: WorkerPlacement,
    ) -> Placement {
        let (worker, tokens) = (workers.answers.member, request.prompt_tokens);
        let fetched = self.worker(worker).load().book_fetched(tokens);
        self.state.index.expect(worker, prompt);
        let answers = WorkerShare::new(worker, fetched, now_us);
        self.book(now_us, number, request, answers, None, None);
        Placement::Dispatch {
            worker,
            prefill: None,
            score: workers.score,
            matched: workers.answers.matched,
            fetch: None,
        }
    }

    /// Books a request at its workers, and records the first of them as its destination. `handed` is the prompt that
    /// one of them computes for the other.
    fn book(
        &mut self,
        now_us: u64,
        number: usize,
        request: &Request,
        answers: WorkerShare,
        prefills: Option<WorkerShare>,
        handed: Option<Arc<TracePrompt>>,
    ) {
        let (session, tokens) = (request.session.map(session_hash), request.prompt_tokens);
        let begins = prefills.as_ref().unwrap_or(&answers).worker;
        let booking = Booking {
            prompt_tokens: tokens,
            session,
            answers,
            prefills,
            handed,
        };
        self.bookings.insert(number, booking);
        let of = NotedRequest { number, session };
        self.note(now_us, EventKind::Dispatched, of, begins, tokens.into());
    }

    /// Returns what the worker fetches before it computes the prompt, and adds the prompt to its backlog. Only where
    /// prices are given or prefixes are fetched.
    fn foresee(
        &mut self,
        now_us: u64,
        number: usize,
        worker: usize,
        tokens: u32,
        prompt: &TracePrompt,
    ) -> Option<Fetch> {
        let RouterState {
            fleet, index, prices, ..
        } = &self.state;
        if !prices.are_given() && !prices.may_fetch() {
            return None;
        }
        let workers = fleet.workers();
        let has_cache =
            |at: &usize| fleet.is_there(*at) && workers[*at].spec().role != Role::Decode || *at == worker;
        let rows: Vec<usize> = (0..workers.len()).filter(has_cache).collect();
        let ids: Vec<_> = rows.iter().map(|at| workers[*at].id()).collect();
        let mut matches = PrefixMatches::default();
        index.reader().find_matches(prompt, &ids, &mut matches);
        let own = rows.iter().position(|at| *at == worker);
        let own = own.and_then(|row| matches.get(row));
        let best = best_holder(&rows, &matches);
        let lengths = PromptLengths::new(tokens, own, best.map(|(_, tokens)| tokens));
        let fetched = best.filter(|_| prices.fetches(worker, lengths));
        let fetch = fetched.map(|(from, held)| Fetch {
            from,
            blocks: index.reader().blocks(held),
        });
        if let Some(us) = prices.prefill_us(number, worker, lengths) {
            self.state.backlogs[worker].add(number, us as u64, now_us);
        }
        fetch
    }

    /// Records that a worker has computed a prompt, if it was to.
    pub(super) fn prefilled(&mut self, now_us: u64, number: usize, worker: usize) {
        self.state.fleet.answered(worker);
        self.state.backlogs[worker].remove(number, now_us);
    }

    /// Returns the load leases of a request. Its attempt counts as failed at the worker `failed`, and as abandoned at
    /// the others.
    pub(super) fn give_back(&mut self, now_us: u64, number: usize, failed: Option<usize>) {
        let Some(booking) = self.bookings.remove(&number) else {
            return;
        };
        // A decode leg that was not sent yet has no event.
        let shares = match &booking.prefills {
            Some(leg) if failed != Some(booking.answers.worker) => [Some(leg), None],
            Some(leg) => [Some(leg), Some(&booking.answers)],
            None => [Some(&booking.answers), None],
        };
        for share in shares.into_iter().flatten() {
            self.state.backlogs[share.worker].remove(number, now_us);
            let kind = if failed == Some(share.worker) {
                EventKind::Failed
            } else {
                EventKind::Abandoned
            };
            let session = booking.session;
            let of = NotedRequest { number, session };
            self.note(now_us, kind, of, share.worker, share.after_ms(now_us));
        }
    }

    /// Records an event of a request at a worker.
    pub(super) fn note(&mut self, at_us: u64, kind: EventKind, of: NotedRequest, worker: usize, value: f64) {
        let seq = self.seq(of.number);
        self.events.note(&RouterEvent {
            kind,
            at_us,
            seq,
            session: of.session,
            worker: &self.state.fleet.workers()[worker],
            number: value,
        });
    }

    /// Records an event of a worker. As in the server, a join has the role as its number.
    pub(super) fn note_worker(&mut self, at_us: u64, kind: EventKind, worker: usize) {
        let worker = &self.state.fleet.workers()[worker];
        self.events.note(&RouterEvent {
            kind,
            at_us,
            seq: 0,
            session: None,
            worker,
            number: worker_number(kind, worker),
        });
    }
}

/// Returns the worker that holds most of a prompt; of several, the first.
fn best_holder(rows: &[usize], matches: &PrefixMatches) -> Option<(usize, u32)> {
    let held = rows.iter().enumerate();
    let held = held.filter_map(|(row, at)| Some((*at, matches.get(row)?.any_tokens)));
    held.reduce(|best, next| if next.1 > best.1 { next } else { best })
}
