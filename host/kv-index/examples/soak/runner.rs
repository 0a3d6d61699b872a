//! One thread's soak: scripts one after the other on one index, which must be empty again after each.

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use kv_index::{IndexLimits, SharedPrefixIndex};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use routing::WorkerId;

use crate::mixes::{Kind, kinds};
use crate::naive::run::{Claim, Done, run};
use crate::naive::script::{Script, script};

/// Room that no script fills.
const AMPLE: usize = 1 << 22;
const SHORT: usize = 300;
/// An index serves this many scripts, with no restart between them.
const LIFE: u64 = 40;
const SHRINK_AT_MOST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) claim: Claim,
    pub(crate) events: u64,
    pub(crate) seed: u64,
}

/// Counts of the work done, by kind of script.
#[derive(Default)]
pub(crate) struct Tally {
    kinds: Vec<(&'static str, u64, Done)>,
}

pub(crate) struct Failure {
    seed: u64,
    kind: &'static str,
    what: String,
    minimal: Option<(Script, String)>,
}

/// Runs until the blocks in events are enough, the kinds in turn.
pub(crate) fn soak(plan: Plan) -> Result<Tally, Box<Failure>> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut source = TestRunner::new_with_rng(Config::default(), rng);
    let kinds = kinds(plan.claim == Claim::Equal);
    let mut tally = Tally {
        kinds: kinds.iter().map(|kind| (kind.name, 0, Done::default())).collect(),
    };
    let mut index = empty(plan.claim);
    for turn in 0_u64.. {
        if tally.blocks() >= plan.events {
            break;
        }
        // Whichever kind has come least far: all get their share of the blocks.
        let least = tally
            .kinds
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, _, done))| done.blocks);
        let at = least.map_or(0, |(at, _)| at);
        if turn.is_multiple_of(LIFE) {
            index = empty(plan.claim);
        }
        let done = one(&index, &kinds[at], plan, &mut source)?;
        tally.kinds[at].1 += 1;
        tally.kinds[at].2.add(done);
    }
    Ok(tally)
}

fn empty(claim: Claim) -> SharedPrefixIndex {
    SharedPrefixIndex::new(IndexLimits {
        max_blocks: if claim == Claim::Equal { AMPLE } else { SHORT },
    })
}

fn one(
    index: &SharedPrefixIndex,
    kind: &Kind,
    plan: Plan,
    source: &mut TestRunner,
) -> Result<Done, Box<Failure>> {
    let tree = script(&kind.mix)
        .new_tree(source)
        .expect("nothing is filtered out");
    let script = tree.current();
    let ran =
        run(index, &script, plan.claim, kind.pause).and_then(|done| leave(index, &script).map(|()| done));
    ran.map_err(|what| {
        Box::new(Failure {
            seed: plan.seed,
            kind: kind.name,
            what,
            minimal: shrink(tree, kind, plan.claim),
        })
    })
}

/// Removes all workers, after which nothing must be left.
fn leave(index: &SharedPrefixIndex, script: &Script) -> Result<(), String> {
    for worker in 0..script.workers {
        index.remove_worker(WorkerId(worker));
    }
    let stats = index.stats();
    if stats.holders == 0 {
        return Ok(());
    }
    Err(format!("all workers left, and yet: {stats:?}"))
}

/// Returns the smallest script found that fails on an index of its own. `None` if the failure needs the earlier
/// contents.
fn shrink(mut tree: impl ValueTree<Value = Script>, kind: &Kind, claim: Claim) -> Option<(Script, String)> {
    let start = Instant::now();
    let fails = |script: &Script| run(&empty(claim), script, claim, kind.pause.min(5)).err();
    let mut minimal = fails(&tree.current()).map(|why| (tree.current(), why))?;
    let mut more = tree.simplify();
    while more && start.elapsed() < SHRINK_AT_MOST {
        let script = tree.current();
        more = match fails(&script) {
            Some(why) => {
                minimal = (script, why);
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    Some(minimal)
}

impl Tally {
    fn blocks(&self) -> u64 {
        self.kinds.iter().map(|(_, _, done)| done.blocks).sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for &(name, scripts, done) in &other.kinds {
            match self.kinds.iter_mut().find(|(known, ..)| *known == name) {
                Some(kind) => {
                    kind.1 += scripts;
                    kind.2.add(done);
                }
                None => self.kinds.push((name, scripts, done)),
            }
        }
    }

    pub(crate) fn report(&self, claim: Claim, took: Duration) -> String {
        let mut text = match claim {
            Claim::Equal => "ample room: every effect and every answer equal to the model's\n".to_owned(),
            Claim::NeverMore => format!("room for {SHORT} blocks: no answer larger than the model's\n"),
        };
        let mut row = |name: &str, scripts: u64, done: Done| {
            let Done {
                events,
                blocks,
                questions,
            } = done;
            let _ = writeln!(
                text,
                "  {name:<20} {scripts:>8} scripts {events:>11} events {blocks:>12} blocks in them {questions:>9} prompts compared"
            );
        };
        let mut all = (0, Done::default());
        for &(name, scripts, done) in &self.kinds {
            row(name, scripts, done);
            all.0 += scripts;
            all.1.add(done);
        }
        row("all", all.0, all.1);
        let _ = writeln!(text, "  in {:.0} s", took.as_secs_f64());
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "FAILED: a script of kind `{}`, seed {}: {}",
            self.kind, self.seed, self.what
        )?;
        let Some((script, why)) = &self.minimal else {
            return writeln!(
                f,
                "not on an empty index: it takes what earlier scripts left behind"
            );
        };
        writeln!(f, "the smallest found: {why}\ngroups {:?}", script.groups)?;
        for prompt in &script.prompts {
            writeln!(f, "{prompt:?}")?;
        }
        script.steps.iter().try_for_each(|step| writeln!(f, "{step:?}"))
    }
}
