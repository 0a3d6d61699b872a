//! Legs of a request: the hand-over between its workers, and the failure of one.

use super::{RequestLegs, Run};
use crate::engine::{Fetch, JobKind, Reuse, TokenGaps};
use crate::outcome::{End, RefusalReason};

impl Run<'_> {
    /// Records that a prompt is computed.
    pub(super) fn prefilled(&mut self, now_us: u64, worker: usize, number: usize, reuse: Reuse) {
        let request = &self.trace.requests[number];
        let computed = request.prompt_tokens.saturating_sub(reuse.tokens());
        self.outcome.workers[worker].computed_tokens += u64::from(computed);
        let course = &mut self.outcome.courses[number];
        course.cached_tokens = reuse.tokens();
        self.routers.prompt_cached(number, worker, reuse.tokens());
        course.cached_blocks = reuse.tokens().div_ceil(self.trace.block_tokens);
        self.sampler.computed(request.blocks.len(), course.cached_blocks);
        let Some(RequestLegs {
            answers,
            prefill: Some(prefill),
        }) = self.tries[number].legs
        else {
            return;
        };
        if prefill != worker {
            return;
        }
        if !self.spec.cluster.decode {
            self.first_token(now_us, worker, number);
            return self.finished(now_us, number, TokenGaps::default());
        }
        self.routers.first_token(now_us, number, worker);
        self.released(now_us, number, self.routers.release_at(worker));
        self.hand_over(now_us, number, answers, worker);
    }

    /// Hands a computed prompt from its worker to the worker that is to answer. As in the server, another is chosen
    /// where that one is gone.
    pub(super) fn hand_over(&mut self, now_us: u64, number: usize, answers: usize, from: usize) {
        if self.away[answers] {
            self.routers.lost(now_us, number, answers);
            self.tries[number].kept = Some(from);
            return self.place(now_us, number);
        }
        let request = &self.trace.requests[number];
        if self.cluster.refuses(now_us, answers, request.prompt_tokens) {
            self.routers.refused(now_us, number, answers);
            let rejected = End::Rejected {
                status: 429,
                computed: true,
                reason: RefusalReason::DecodeWorker,
            };
            self.close(now_us, number, rejected);
            return self.released(now_us, number, self.routers.release_at(answers));
        }
        self.tries[number].legs = Some(RequestLegs {
            answers,
            prefill: Some(from),
        });
        let course = &mut self.outcome.courses[number];
        course.worker = Some(answers);
        // The prefill worker's token is the first that the client sees.
        let first_us = Some(*course.first_token_us.get_or_insert(now_us));
        let fetch = Fetch {
            from,
            blocks: request.blocks.len(),
        };
        let job = self.job(number, JobKind::Decode { first_us }, Some(fetch));
        self.cluster.submit(now_us, answers, job);
    }

    /// Fails a worker.
    pub(super) fn fail(&mut self, now_us: u64, worker: usize) {
        self.away[worker] = true;
        self.routers.gone(now_us, worker);
        // Prompts that wait there to be taken over are gone with it: those requests begin again.
        for tried in &mut self.tries {
            tried.kept.take_if(|kept| *kept == worker);
        }
        for number in self.cluster.fail(now_us, worker) {
            if self.is_abandoned(number) {
                continue;
            }
            self.lose(now_us, number, worker);
        }
    }

    /// Ends a router, and its requests with it.
    pub(super) fn router_dies(&mut self, now_us: u64, router: usize) {
        let has = |number: &usize| {
            let course = &self.outcome.courses[*number];
            course.arrived_us <= now_us
                && course.end == End::Unfinished
                && self.tries[*number].decisions > 0
                && self.routers.number_of(*number) == router
        };
        let requests: Vec<usize> = (0..self.tries.len()).filter(has).collect();
        self.routers.die(now_us, router, &requests);
        for number in requests {
            self.lines[router].leave(number);
            // A decision that is due for it is out of date.
            self.tries[number].decisions += 1;
            self.close(now_us, number, End::Lost);
        }
    }

    /// Returns whether the router of a request died with it.
    pub(super) fn is_abandoned(&self, number: usize) -> bool {
        self.outcome.courses[number].end == End::Lost
    }

    /// Handles the loss of a request's worker. If the answering worker has sent tokens, the answer breaks off.
    /// Otherwise the request begins again, as in the server, whose clients have seen nothing then.
    pub(super) fn lose(&mut self, now_us: u64, number: usize, worker: usize) {
        self.routers.lost(now_us, number, worker);
        self.released(now_us, number, self.routers.release_at(worker));
        if self.tries[number].answers {
            self.routers.left(now_us, number);
            self.close(now_us, number, End::Lost);
        } else {
            self.outcome.courses[number].first_token_us = None;
            self.place(now_us, number);
        }
    }
}
