//! Plan of a worker's next step.

use super::SimWorker;
use crate::engine::decode::DecodeJob;
use crate::engine::job::JobKind;
use crate::engine::prefill::Prompt;
use crate::engine::step::{Parts, Step};

impl SimWorker {
    /// Begins a step, unless one is under way or there is nothing to do. Something may have come that one under way did
    /// not expect.
    pub(super) fn begin(&mut self, now_us: u64) {
        if let Some(step) = &mut self.step {
            step.reports_us = step.ends_us;
            return;
        }
        let mut reported = Vec::new();
        self.answers.admit(&mut reported);
        self.report(now_us, reported);
        let mut parts = Parts::default();
        self.plan_prompts(now_us, &mut parts);
        let computes = !self.prompts.begun.is_empty();
        let batch = self.answers.len();
        let decodes = batch > 0 && (self.chunk_tokens.is_some() || !computes);
        if decodes {
            self.costs.decode(batch, self.answers.resident(), &mut parts);
        } else if computes {
            self.costs.compute_fixed(&mut parts);
        } else {
            return;
        }
        let took_us = self.costs.took_us(parts);
        let ends_us = now_us + took_us;
        let mut reports_us = ends_us;
        if !computes {
            reports_us += self.quiet_us(took_us);
        }
        self.step = Some(Step {
            ends_us,
            reports_us,
            decodes,
        });
    }

    /// Returns the least time that passes after a step of the batch alone, which takes `took_us`, until one ends that
    /// has an event.
    fn quiet_us(&self, took_us: u64) -> u64 {
        let quiet = self.answers.quiet_steps();
        if quiet == 0 {
            return 0;
        }
        let batch = self.answers.len();
        let grown = self.answers.resident() + quiet * u64::from(batch);
        let mut last = Parts::default();
        self.costs.decode(batch, grown, &mut last);
        // A step's time by its tokens is a line or bends down, so that the least is at one of the ends.
        quiet * took_us.min(self.costs.took_us(last))
    }

    /// Settles what the next step computes of which prompts.
    fn plan_prompts(&mut self, now_us: u64, parts: &mut Parts) {
        let chunk = self.chunk_tokens;
        let mut room = chunk.map_or(u32::MAX, |chunk| chunk.saturating_sub(self.answers.len()));
        if self.prompts.is_preemptive() {
            self.begin_shorter(now_us, parts);
        }
        for (place, prompt) in self.prompts.begun.iter_mut().enumerate() {
            let piece = prompt.plan(if place < self.step_prompts { room } else { 0 });
            room -= piece.end - piece.start;
            // An interrupted prompt has no part in the step.
            if piece.start < piece.end {
                self.costs.compute(piece, parts);
            }
        }
        while room > 0 && self.prompts.begun.len() < self.step_prompts {
            let Some(mut prompt) = self.next_prompt(now_us) else {
                break;
            };
            self.costs.begin(prompt.reuse.unwrap_or_default(), parts);
            let piece = prompt.plan(room);
            room -= piece.end - piece.start;
            self.costs.compute(piece, parts);
            self.prompts.begun.push(prompt);
        }
    }

    /// Begins the waiting prompts that are shorter than the rest of one that has begun, and puts the least rest first.
    fn begin_shorter(&mut self, now_us: u64, parts: &mut Parts) {
        let rests = self.prompts.begun.iter();
        let Some(longest_us) = rests.map(|prompt| self.costs.rest_us(prompt.rest())).max() else {
            return;
        };
        while let Some((_, next)) = self.prompts.next(now_us)
            && next.takes_us < longest_us
            && let Some(prompt) = self.next_prompt(now_us)
        {
            self.costs.begin(prompt.reuse.unwrap_or_default(), parts);
            self.prompts.begun.push(prompt);
        }
        let costs = &self.costs;
        self.prompts
            .begun
            .sort_by_key(|prompt| costs.rest_us(prompt.rest()));
    }

    /// Takes the next prompt out of the queue, if there is room for its answer.
    fn next_prompt(&mut self, now_us: u64) -> Option<Prompt> {
        let (at, prompt) = self.prompts.next(now_us)?;
        if self.writes_answers && prompt.job.kind == JobKind::Whole {
            let answer = DecodeJob::of(&prompt.job, None);
            if !self.answers.reserve(answer.tokens()) {
                return None;
            }
        }
        let mut prompt = self.prompts.take(at)?;
        let reuse = prompt.reuse.unwrap_or_else(|| self.look_up(&prompt.job));
        prompt.begin(reuse);
        Some(prompt)
    }
}
