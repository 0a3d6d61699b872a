//! The kinds of scripts that the soak goes through, again and again.

use crate::naive::script::Mix;

/// Kind of script, its name, and the number of steps between queries for all prompts.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) mix: Mix,
    pub(crate) pause: usize,
}

fn base() -> Mix {
    Mix {
        workers: 2,
        ranks: 2,
        steps: 1..500,
        prompts: 8,
        letters: 8,
        alphabet: 2,
        hybrid: false,
        tiers: true,
        odd: true,
        agreed: 10,
    }
}

/// Returns the kinds of scripts. `odd` is set if engines may contradict themselves.
pub(crate) fn kinds(odd: bool) -> Vec<Kind> {
    let kind = |name, pause, mix: Mix| Kind {
        name,
        mix: Mix {
            odd: odd && mix.odd,
            ..mix
        },
        pause,
    };
    let long = Mix {
        workers: 8,
        steps: 1..4000,
        prompts: 24,
        letters: 300,
        alphabet: 100,
        agreed: 30,
        ..base()
    };
    let clean = Mix {
        odd: false,
        agreed: 100_000,
        ranks: 1,
        tiers: false,
        ..long.clone()
    };
    let wide = Mix {
        workers: 300,
        ranks: 4,
        steps: 1..12_000,
        prompts: 12,
        letters: 80,
        agreed: 500,
        ..long.clone()
    };
    let deep = Mix {
        workers: 4,
        ranks: 1,
        steps: 1..1000,
        prompts: 16,
        letters: 6000,
        agreed: 200,
        ..long.clone()
    };
    let hybrid = Mix {
        hybrid: true,
        letters: 12,
        ..base()
    };
    vec![
        kind("tiny", 5, base()),
        kind("tiny hybrid", 5, hybrid.clone()),
        kind("long", 100, long.clone()),
        kind("long, in agreement", 100, clean),
        kind(
            "long hybrid",
            200,
            Mix {
                hybrid: true,
                letters: 60,
                ..long
            },
        ),
        kind("a thousand holders", 1000, wide),
        kind("deep", 50, deep),
    ]
}
