//! Questions on documents found by a search. A question's topic has its documents in a ranking, of which each search
//! leaves some out: two prompts of a topic share what comes before the first difference, and a document that both have
//! after it is not shared.

use std::collections::BTreeMap;

use super::draws::{Draws, Percentiles, Popularity};
use super::session::{Author, Session, Turn};
use super::text::{BlockIds, Text};

/// Tokens of the instructions that all questions begin with.
const SYSTEM_TOKENS: u32 = 700;

/// Different documents.
const DOCUMENTS: u32 = 4_000;

/// Different topics, some far more frequent than others.
const TOPICS: u32 = 2_500;

/// Documents of a topic's ranking.
const RANKED: usize = 12;

/// Documents of a prompt, fewest and most.
const FOUND: (u32, u32) = (3, 8);

/// Share of a ranking's documents that a search leaves out.
const LEFT_OUT: f64 = 0.35;

/// Tokens of a document's passage.
const PASSAGE: &Percentiles = &[(0.0, 150.0), (0.50, 800.0), (0.90, 1_800.0), (1.0, 4_000.0)];

/// Tokens of a question.
const QUESTION: &Percentiles = &[(0.0, 8.0), (0.50, 40.0), (0.90, 200.0), (1.0, 1_000.0)];

/// Tokens of an answer.
const ANSWER: &Percentiles = &[
    (0.0, 1.0),
    (0.10, 30.0),
    (0.50, 220.0),
    (0.90, 600.0),
    (0.99, 1_100.0),
    (1.0, 2_000.0),
];

/// Source of questions, with the prompts' beginnings that were made before.
#[derive(Debug)]
pub(super) struct Library {
    /// Tokens of each document.
    passages: Vec<u32>,
    /// Each topic's documents, the most fitting first.
    rankings: Vec<[usize; RANKED]>,
    popularity: Popularity,
    /// The instructions followed by these documents.
    made: BTreeMap<Vec<usize>, Text>,
}

impl Library {
    pub(super) fn new(draws: &mut Draws, ids: &mut BlockIds) -> Self {
        let passages = (0..DOCUMENTS).map(|_| draws.length(PASSAGE)).collect();
        let ranking = |_| std::array::from_fn(|_| draws.tokens(0, DOCUMENTS - 1) as usize);
        let rankings = (0..TOPICS).map(ranking).collect();
        let made = BTreeMap::from([(Vec::new(), Text::new(SYSTEM_TOKENS, ids))]);
        Self {
            passages,
            rankings,
            popularity: Popularity::of(TOPICS),
            made,
        }
    }

    /// Returns the instructions and these documents: for the same ones in the same order the same text.
    fn text(&mut self, documents: &[usize], ids: &mut BlockIds) -> Text {
        if let Some(text) = self.made.get(documents) {
            return text.clone();
        }
        let (last, before) = documents
            .split_last()
            .expect("the text without documents is made at the start");
        let text = self.text(before, ids).and(self.passages[*last], ids);
        self.made.insert(documents.to_vec(), text.clone());
        text
    }
}

impl Author for Library {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let ranking = self.rankings[draws.popular(&self.popularity)];
        let found = draws.tokens(FOUND.0, FOUND.1) as usize;
        let documents: Vec<usize> = ranking
            .into_iter()
            .filter(|_| !draws.chance(LEFT_OUT))
            .take(found)
            .collect();
        let prompt = self.text(&documents, ids).and(draws.length(QUESTION), ids);
        let turn = Turn::request(&prompt, draws.length(ANSWER), 0.0, ids);
        Session {
            wait: draws.wait(),
            turns: vec![turn],
        }
    }
}
