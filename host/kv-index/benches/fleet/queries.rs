//! Cost of queries: all 128 workers' depths of one prompt.

use crate::corpus::{PIECE, Piece, stores};
use crate::figures::Unit;
use crate::fleet::DROPPED;
use crate::session::{Applying, Session};
use crate::subject::Subject;

impl<S: Subject> Session<'_, S> {
    pub(crate) fn queries(&mut self) {
        let long = self.chains(64);
        let times = self.query(&long);
        let name = "query, 2048 blocks matched";
        self.report(
            &format!("{name}, hashed before, p50"),
            Unit::Micros,
            times.hashed.micros(0.5),
            "<= 6",
        );
        self.report(
            &format!("{name}, hashed before, p99"),
            Unit::Micros,
            times.hashed.micros(0.99),
            "<= 15",
        );
        self.report(
            &format!("{name}, from tokens, p50"),
            Unit::Micros,
            times.from_tokens.micros(0.5),
            "",
        );
        self.report(
            &format!("{name}, from tokens, p99"),
            Unit::Micros,
            times.from_tokens.micros(0.99),
            "",
        );
        self.marginal(&long, 8);
        let longer = self.chains(128);
        if longer.len() > 20 {
            self.marginal(&longer, 64);
        }
        self.usual();
        self.popular();
    }

    /// Measures the cost of a matched block beyond the first `less` pieces of these prompts.
    fn marginal(&mut self, chains: &[Vec<Piece>], less: usize) {
        let cut: Vec<Vec<Piece>> = chains.iter().map(|chain| chain[..less].to_vec()).collect();
        let first = self.query(&cut).hashed.quantile(0.5);
        let all = self.query(chains).hashed.quantile(0.5);
        let blocks = |pieces: usize| pieces * PIECE;
        let name = format!(
            "query, each block from {} to {}",
            blocks(less),
            blocks(chains[0].len())
        );
        let slope = (all - first) / blocks(chains[0].len() - less) as f64;
        self.report(&name, Unit::NanosPerBlock, slope, "<= 3, 1 ns");
    }

    /// Measures whole prompts of the corpus as they come.
    fn usual(&mut self) {
        let mut chains: Vec<_> = self.placed.iter().map(|storing| storing.chain.clone()).collect();
        self.random.shuffle(&mut chains);
        chains.truncate(self.scale.prompts);
        let blocks: usize = chains.iter().map(|chain| chain.len() * PIECE).sum();
        let hashed = self.query(&chains).hashed;
        let mean = format!(
            "query, the corpus's prompts (mean {} blocks)",
            blocks / chains.len()
        );
        self.report(&format!("{mean}, p50"), Unit::Micros, hashed.micros(0.5), "");
        self.report(&format!("{mean}, p99"), Unit::Micros, hashed.micros(0.99), "");
        let per_block = hashed.total() / blocks as f64;
        self.report(
            "query, the corpus's prompts, a matched block",
            Unit::NanosPerBlock,
            per_block,
            "",
        );
    }

    /// Chains that everyone holds, to 64 different depths.
    fn popular(&mut self) {
        let copy = self.scale.copies + 6;
        let long = self
            .corpus
            .requests
            .iter()
            .position(|request| request.len() >= 64);
        let Some(request) = long else { return };
        let mut chain = self.corpus.request(request, copy);
        chain.truncate(64);
        let mut applying = Applying::default();
        for worker in 0..DROPPED {
            let depth = worker as usize % 64 + 1;
            let storing = self.fleet.store(worker, chain[..depth].to_vec());
            self.apply_all(&mut applying, worker, stores(&storing.chain, storing.known));
        }
        let hashed = self.query(&vec![chain; 200]).hashed;
        let name = "query, 2048 blocks held by all to 64 depths, warm, p50";
        self.report(name, Unit::Micros, hashed.micros(0.5), "");
    }
}
