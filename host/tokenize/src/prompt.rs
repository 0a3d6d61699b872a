//! Prompts on their way to tokens: cut, looked up in the cache, and tokenized where they are new.

use std::ops::Range;
use std::sync::Arc;

use crate::boundary::TextBoundary;
use crate::budget::Budget;
use crate::cache::TokenizationCache;
use crate::conversation::{ConversationStart, Mark, Marks, NewState};
use crate::error::EncodeError;
use crate::kept_hashes::KnownBeginning;
use crate::model::Model;
use crate::node_table::{NewNode, Node};
use crate::rendered::Rendered;
use crate::token_ids::TokenIds;

/// Shorter pieces have no node of their own, in bytes: the node would be larger than its savings.
const SHORTEST_PIECE: usize = 128;
/// Longer pieces are cut between words, in bytes.
const SEAM_EVERY: usize = 1024;
/// First of these cuts in a piece near the beginning of a prompt: many short prompts begin alike.
const FIRST_SEAM: usize = 512;
/// Pieces near the beginning of a prompt start before this byte.
const BEGINNING: usize = 2048;
/// Longest end of a prompt that is cached by itself, in bytes.
const LONGEST_END: usize = 256;
/// Marks ends in cache keys, to separate them from prefixes. The lower bits are the id of the boundary before the end,
/// or a seam's, which no token has.
const ENDS: u64 = 1 << 32;
const SEAM: u32 = u32::MAX;

/// A prompt, and its known tokens.
#[derive(Debug)]
pub struct Prepared {
    /// The prompt; of a continued conversation, what follows its beginning.
    rendered: Rendered,
    start: Option<ConversationStart>,
    cuts: Vec<TextCut>,
    /// Number of cuts covered by `known`.
    covered: usize,
    known: Option<Arc<Node>>,
    /// Cuts and places after earlier messages.
    inner: Vec<(usize, Mark)>,
    /// Boundary and place after the last message.
    last: Option<(TextBoundary, Mark)>,
    is_sampled: bool,
}

/// Cuts of a text, and the known tokens up to one of them.
struct LaidOut {
    cuts: Vec<TextCut>,
    covered: usize,
    known: Option<Arc<Node>>,
}

/// Part of a text that is cut.
struct CutRange {
    from: usize,
    to: usize,
    /// End of the last boundary that is a cut.
    boundaries_to: usize,
    /// End of the prompt's beginning.
    beginning_to: usize,
    /// Space of the cache's keys.
    space: u64,
}

#[derive(Debug, Clone, Copy)]
struct TextCut {
    at: TextBoundary,
    hash: u64,
}

/// Keeper of the beginnings of a prompt as states of conversations.
struct StateKeeper<'a> {
    text: &'a str,
    /// Length of the rendering before the text, in bytes.
    rendered: usize,
    cache: &'a TokenizationCache,
    /// The longest beginning that is kept so far.
    state: Option<Arc<Node>>,
}

/// Tokens of a prompt.
#[derive(Debug)]
pub struct Tokens {
    /// Their ids.
    pub ids: TokenIds,
    /// Number of tokens from the cache.
    pub cached: usize,
    /// Set if a known conversation was continued.
    pub is_continued: bool,
    /// Set if the tokens are to be compared with [`Model::check_chat`].
    pub is_sampled: bool,
    /// The longest beginning that is kept as the state of a conversation.
    pub beginning: Option<KnownBeginning>,
}

impl Model {
    /// Looks up the known tokens of a prompt. Costs at most one scan of its bytes.
    #[must_use]
    pub fn prepare(&self, rendered: Rendered, cache: &TokenizationCache) -> Prepared {
        self.prepare_marked(rendered, Marks::default(), cache)
    }

    /// Looks up the known tokens of a prompt that is the beginning of conversations.
    pub(crate) fn prepare_marked(
        &self,
        rendered: Rendered,
        marks: Marks,
        cache: &TokenizationCache,
    ) -> Prepared {
        if !rendered.literals.is_empty() {
            return Prepared::uncut(rendered);
        }
        let found: Vec<_> = self.boundaries.find(&rendered.text).collect();
        self.prepare_found(rendered, None, &found, &marks, cache)
    }

    /// Looks up the known tokens of a text that continues a conversation. The text begins with the added token before
    /// it, if there is one.
    pub(crate) fn prepare_continued(
        &self,
        text: String,
        start: ConversationStart,
        marks: &Marks,
        cache: &TokenizationCache,
    ) -> Option<Prepared> {
        let found: Vec<_> = self.boundaries.find(&text).collect();
        if start.at.id.is_some() && found.first() != Some(&start.at) {
            return None;
        }
        let rendered = Rendered::text(text, false);
        Some(self.prepare_found(rendered, Some(start), &found, marks, cache))
    }

    /// Cuts a text with these boundaries, and looks up its known tokens.
    fn prepare_found(
        &self,
        rendered: Rendered,
        start: Option<ConversationStart>,
        found: &[TextBoundary],
        marks: &Marks,
        cache: &TokenizationCache,
    ) -> Prepared {
        let text = &*rendered.text;
        let last = marks.last.as_ref();
        let fixed = last.map(|mark| self.boundary_of(text, mark, found));
        let to = last.map_or(text.len(), |mark| mark.end);
        let range = CutRange {
            from: start.as_ref().map_or(0, |start| start.at.end),
            to,
            boundaries_to: fixed.map_or(to, |at| at.map_or(0, |at| at.end)),
            beginning_to: if start.is_some() { 0 } else { BEGINNING },
            space: self.space(start.as_ref()),
        };
        let LaidOut { cuts, covered, known } = self.lay_out(text, &range, found, cache);
        let mut inner = self.inner_marks(text, &cuts, marks);
        let fixed = fixed.flatten();
        let is_at_cut = cuts
            .last()
            .is_some_and(|cut| fixed.is_none_or(|at| at.end <= cut.at.end));
        if let (true, Some(mark)) = (is_at_cut, last) {
            inner.push((cuts.len() - 1, *mark));
        }
        Prepared {
            last: fixed.zip(last.copied()).filter(|_| !is_at_cut),
            rendered,
            start,
            cuts,
            covered,
            known,
            inner,
            is_sampled: false,
        }
    }

    /// Returns the space of the cache's keys for the beginning of a text.
    fn space(&self, start: Option<&ConversationStart>) -> u64 {
        start.map_or(self.id, |start| self.space_behind(start.at))
    }

    /// Returns the space of the cache's keys after a boundary. Tokens depend only on the token before them.
    fn space_behind(&self, at: TextBoundary) -> u64 {
        self.id | ENDS | u64::from(at.id.unwrap_or(SEAM))
    }

    /// Returns the last cut before each inner place after which the tokens are independent, whatever follows the place.
    fn inner_marks(&self, text: &str, cuts: &[TextCut], marks: &Marks) -> Vec<(usize, Mark)> {
        let cut_of = |mark: &Mark| {
            let text = &text[..mark.end];
            let ends = |cut: &TextCut| {
                cut.at.end <= mark.end
                    // Nothing behind a seam changes it.
                    && (cut.at.id.is_none() || self.boundaries.is_fixed(text, cut.at.start))
            };
            Some((cuts.iter().rposition(ends)?, *mark))
        };
        marks.inner.iter().filter_map(cut_of).collect()
    }

    /// Returns the last boundary of a place after which the tokens are independent, whatever follows the place.
    fn boundary_of(&self, text: &str, mark: &Mark, found: &[TextBoundary]) -> Option<TextBoundary> {
        let text = &text[..mark.end];
        let mut found = found.iter().rev().filter(|at| at.end <= mark.end);
        found.find(|at| self.boundaries.is_fixed(text, at.start)).copied()
    }

    /// Cuts a text and looks up the longest known beginning.
    fn lay_out(
        &self,
        text: &str,
        range: &CutRange,
        found: &[TextBoundary],
        cache: &TokenizationCache,
    ) -> LaidOut {
        let mut cuts: Vec<TextCut> = Vec::new();
        let mut cut = |at: TextBoundary| {
            let before = cuts.last();
            let from = before.map_or(range.from, |cut| cut.at.end);
            let hash = cache
                .pieces
                .hash(range.space, before.map(|cut| cut.hash), &text[from..at.end]);
            cuts.push(TextCut { at, hash });
        };
        let mut from = range.from;
        let within = |at: &&TextBoundary| at.end > range.from && at.end <= range.boundaries_to;
        for at in found.iter().filter(within) {
            from = self.seams(text, from..at.start, range.beginning_to, &mut cut);
            if at.end - from >= SHORTEST_PIECE {
                cut(*at);
                from = at.end;
            }
        }
        self.seams(text, from..range.to, range.beginning_to, &mut cut);
        let known = cuts.iter().enumerate().rev().find_map(|(index, cut)| {
            let node = cache
                .pieces
                .get(range.space, cut.hash, &text[range.from..cut.at.end])?;
            Some((index + 1, node))
        });
        let (covered, known) = known.map_or((0, None), |(covered, node)| (covered, Some(node)));
        LaidOut { cuts, covered, known }
    }

    /// Cuts a long piece between words: many prompts may share the beginning of a message. Returns the position of the
    /// last cut.
    fn seams(
        &self,
        text: &str,
        piece: Range<usize>,
        beginning_to: usize,
        cut: &mut impl FnMut(TextBoundary),
    ) -> usize {
        let mut from = piece.start;
        let mut length = if from < beginning_to {
            FIRST_SEAM
        } else {
            SEAM_EVERY
        };
        let seam = |from, length| {
            let fast_path = self.fast_path.as_ref()?;
            let at = from + fast_path.seam(&text[from..piece.end], length)?;
            // A short rest is cheap, and a cut costs every prompt that has it.
            (piece.end - at >= length / 2).then_some(at)
        };
        while let Some(at) = seam(from, length) {
            cut(TextBoundary::seam(at));
            (from, length) = (at, SEAM_EVERY);
        }
        from
    }

    /// Returns the prompt's tokens. New ones are cached, also if the budget does not last to the end.
    ///
    /// # Errors
    /// [`EncodeError`] if the tokenizer fails or the budget is used up.
    pub fn complete(
        &self,
        prepared: Prepared,
        cache: &TokenizationCache,
        budget: &mut Budget<'_>,
    ) -> Result<Tokens, EncodeError> {
        if !prepared.rendered.literals.is_empty() {
            return self.complete_literals(&prepared.rendered, budget);
        }
        let Prepared {
            rendered: Rendered { text, special, .. },
            start,
            cuts,
            covered,
            known,
            inner,
            last,
            is_sampled,
        } = prepared;
        let [before, after] = &self.affix;
        let base = count_of(start.as_ref().map(|start| &start.node));
        let cached = base + count_of(known.as_ref());
        let more = count_of(known.as_ref()) + (text.len() / 3).max(64);
        let mut ids = match &start {
            Some(start) => TokenIds::continuing(&start.node, more),
            None => Vec::with_capacity(more).into(),
        };
        if special {
            ids.rest_mut().extend_from_slice(before);
        }
        if let Some(known) = &known {
            known.tokens_into(ids.rest_mut());
        }
        let mut node = known;
        let mut behind = match covered.checked_sub(1) {
            Some(last) => Some(cuts[last].at),
            None => start.as_ref().map(|start| start.at),
        };
        let space = self.space(start.as_ref());
        for cut in &cuts[covered..] {
            let ids = ids.rest_mut();
            let from = ids.len();
            self.encode_behind(&text[..cut.at.end], behind, ids, budget)?;
            let piece = NewNode {
                before: node,
                text: &text[behind.map_or(0, |at| at.end)..cut.at.end],
                tokens: &ids[from..],
            };
            node = Some(cache.pieces.insert(space, cut.hash, piece));
            behind = Some(cut.at);
        }
        let mut keeper = StateKeeper {
            text: &text,
            rendered: start.as_ref().map_or(0, |start| start.rendered),
            cache,
            state: start.as_ref().map(|start| Arc::clone(&start.node)),
        };
        for (cut, mark) in inner {
            if let Some(known) = mark.known(cache) {
                keeper.state = Some(known);
            } else if let Some(before) = node.as_ref().and_then(|node| node.earlier(cuts.len() - 1 - cut)) {
                keeper.keep(&mark, cuts[cut].at, &ids, base + before.count);
            }
        }
        if let Some((at, mark)) = last {
            if behind.is_none_or(|behind| behind.end < at.end) {
                self.encode_behind(&text[..at.end], behind, ids.rest_mut(), budget)?;
                behind = Some(at);
            }
            if behind == Some(at) {
                keeper.keep(&mark, at, &ids, ids.len());
            }
        }
        self.end(&text, behind, ids.rest_mut(), budget, cache)?;
        if special {
            ids.rest_mut().extend_from_slice(after);
        }
        Ok(Tokens {
            ids,
            cached,
            is_continued: start.is_some(),
            is_sampled,
            beginning: keeper.state.map(KnownBeginning),
        })
    }

    /// Appends the tokens after the last cut. Templates end many prompts alike, and the tokens of an end depend only
    /// on the boundary before it, so short ends are cached by themselves.
    fn end(
        &self,
        text: &str,
        behind: Option<TextBoundary>,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
        cache: &TokenizationCache,
    ) -> Result<(), EncodeError> {
        let (Some(at), from) = (behind, ids.len()) else {
            return self.encode_behind(text, behind, ids, budget);
        };
        let end = &text[at.end..];
        if end.len() > LONGEST_END {
            return self.encode_behind(text, behind, ids, budget);
        }
        let space = self.space_behind(at);
        let hash = cache.pieces.hash(space, None, end);
        if let Some(known) = cache.pieces.get(space, hash, end) {
            known.tokens_into(ids);
            return Ok(());
        }
        self.encode_behind(text, behind, ids, budget)?;
        let piece = NewNode {
            before: None,
            text: end,
            tokens: &ids[from..],
        };
        drop(cache.pieces.insert(space, hash, piece));
        Ok(())
    }

    /// Appends the tokens of `text` after a boundary.
    pub(crate) fn encode_behind(
        &self,
        text: &str,
        behind: Option<TextBoundary>,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<(), EncodeError> {
        let (from, skipped) = behind.map_or((0, 0), |at| (at.start, usize::from(at.id.is_some())));
        let new = &text[behind.map_or(0, |at| at.end)..];
        if behind.is_some() && new.is_empty() {
            return Ok(());
        }
        if let Some(fast_path) = &self.fast_path
            && fast_path.encode(&self.tokenizer, new, ids, budget)?
        {
            return Ok(());
        }
        budget.long_way(text.len() - from)?;
        let encoding = self
            .tokenizer
            .encode_fast(&text[from..], false)
            .map_err(EncodeError::Failed)?;
        let found = encoding.get_ids();
        debug_assert_eq!(
            found.first().copied().filter(|_| skipped == 1),
            behind.and_then(|at| at.id)
        );
        ids.extend_from_slice(&found[skipped..]);
        Ok(())
    }
}

impl StateKeeper<'_> {
    /// Keeps the first `count` tokens as the state of a place.
    fn keep(&mut self, mark: &Mark, at: TextBoundary, ids: &TokenIds, count: usize) {
        let Some(tokens) = ids.range(count_of(self.state.as_ref()), count) else {
            return;
        };
        let new = NewState {
            text: self.text,
            at,
            rendered: self.rendered,
            tokens,
        };
        if let Some(kept) = mark.keep(self.state.clone(), new, self.cache) {
            self.state = Some(kept);
        }
    }
}

/// Returns the number of tokens up to a node.
fn count_of(node: Option<&Arc<Node>>) -> usize {
    node.map_or(0, |node| node.count)
}

impl Prepared {
    /// Prepares a prompt without cuts, which the cache does not serve.
    fn uncut(rendered: Rendered) -> Self {
        Self {
            rendered,
            start: None,
            cuts: Vec::new(),
            covered: 0,
            known: None,
            inner: Vec::new(),
            last: None,
            is_sampled: false,
        }
    }

    /// Sets whether the tokens are to be compared with [`Model::check_chat`].
    pub(crate) fn sampled(self, is_sampled: bool) -> Self {
        Self { is_sampled, ..self }
    }

    /// Returns the number of bytes that must be tokenized.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        let known = match self.covered.checked_sub(1) {
            Some(last) => self.cuts[last].at.end,
            None => self.start.as_ref().map_or(0, |start| start.at.end),
        };
        self.rendered.text.len() - known
    }

    /// Returns the length of the whole prompt's text in bytes.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let known = self.start.as_ref().map_or(0, |start| start.rendered);
        known + self.rendered.text.len()
    }
}
