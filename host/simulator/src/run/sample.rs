//! What a look at the cluster shows.

use routing::Role;

use super::Run;
use crate::outcome::Sample;

impl Run<'_> {
    pub(super) fn sample(&mut self, now_us: u64) {
        let workers = &self.spec.cluster.workers;
        let engines = self.cluster.workers();
        let loads = || engines.iter().map(|engine| engine.load());
        let waiting: usize = loads().map(|load| load.waiting + load.computing).sum();
        let decoding: usize = loads().map(|load| load.decoding).sum();
        let mean_of = |is: fn(Role) -> bool, load: &dyn Fn(usize) -> f64| {
            let those = (0..workers.len()).filter(|at| is(workers[*at].role));
            let (mut sum, mut count) = (0.0, 0);
            for at in those {
                sum += load(at);
                count += 1;
            }
            sum / f64::from(count.max(1))
        };
        let limits = &self.spec.limits;
        let prefill_load = mean_of(|role| role != Role::Decode, &|at| {
            engines[at].backlog_us(now_us) as f64 / limits.ttft_us as f64
        });
        let decode_load = mean_of(|role| role != Role::Prefill, &|at| {
            let load = engines[at].load();
            let step_us = match load.decoding {
                0 => 0,
                batch => self.spec.cluster.profile.step_us(batch as u32, load.kv_tokens),
            };
            step_us as f64 / limits.tbt_us as f64
        });
        let courses = &self.outcome.courses;
        let placed = || {
            let both = self.trace.requests.iter().zip(courses);
            both.filter(|(_, course)| course.first_token_us.is_some())
        };
        let held = self.line.len();
        self.outcome.samples.push(Sample {
            at_us: now_us,
            queued: (waiting + held) as u32,
            held: held as u32,
            decoding: decoding as u32,
            rejected: self.routers.counts().rejected as u32,
            blocks: placed().map(|(request, _)| request.blocks.len() as u64).sum(),
            cached_blocks: placed().map(|(_, course)| u64::from(course.cached_blocks)).sum(),
            prefill_load,
            decode_load,
        });
    }
}
