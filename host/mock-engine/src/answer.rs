//! Answer generator: synthetic words, the same for the same seed and prompt. The words are single tokens of
//! `tokens.rs`, including their space, so tokenizing the text gives exactly the generated ids.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aeiu";

/// An answer, generated word by word.
#[derive(Debug)]
pub(crate) struct Answer {
    state: u64,
}

impl Answer {
    /// Creates the answer to a prompt.
    pub(crate) fn new(seed: u64, prompt: &[u32]) -> Self {
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        Self {
            state: xxh3_64_with_seed(&bytes, seed),
        }
    }

    /// Returns the next word: a space, then two or three syllables.
    pub(crate) fn next_word(&mut self) -> String {
        let mut bits = split_mix(&mut self.state);
        let syllables = 2 + bits % 2;
        bits >>= 1;
        let mut word = String::from(" ");
        for _ in 0..syllables {
            word.push(CONSONANTS[(bits % 16) as usize].into());
            word.push(VOWELS[(bits / 16 % 4) as usize].into());
            bits >>= 6;
        }
        word
    }
}

/// Returns the next number of a SplitMix64 sequence (Steele, Lea and Flood, OOPSLA 2014; constants of the public
/// domain version by Vigna).
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokenize;

    fn text(seed: u64, prompt: &[u32]) -> String {
        let mut answer = Answer::new(seed, prompt);
        (0..50).map(|_| answer.next_word()).collect()
    }

    #[test]
    fn an_answer_depends_on_seed_and_prompt_alone() {
        assert_eq!(text(1, &[1, 2]), text(1, &[1, 2]));
        assert_ne!(text(1, &[1, 2]), text(2, &[1, 2]));
        assert_ne!(text(1, &[1, 2]), text(1, &[2, 1]));
    }

    #[test]
    fn every_word_is_one_token() {
        assert_eq!(tokenize(&text(7, &[3])).len(), 50);
    }
}
