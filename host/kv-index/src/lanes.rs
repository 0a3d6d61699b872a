//! Lane numbers and sets of lanes. A lane is the blocks of one cache on one tier in one group. Its number is reused
//! once nothing refers to it.

/// Number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(pub(crate) u32);

/// Returns the word and the bit of a lane in a bit set.
fn place(lane: LaneId) -> (usize, u64) {
    ((lane.0 / 64) as usize, 1 << (lane.0 % 64))
}

/// Set of lanes as bits.
#[derive(Debug, Default, Clone)]
pub(crate) struct LaneBits(Vec<u64>);

impl LaneBits {
    /// Creates an empty set with capacity for lanes below `end`.
    pub(crate) fn with_room(end: usize) -> Self {
        Self(Vec::with_capacity(end.div_ceil(64)))
    }

    pub(crate) fn insert(&mut self, lane: LaneId) {
        let (word, bit) = place(lane);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn remove(&mut self, lane: LaneId) {
        let (word, bit) = place(lane);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(crate) fn contains(&self, lane: LaneId) -> bool {
        let (word, bit) = place(lane);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| bits(at, word))
    }

    /// Replaces the set by `other`.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }

    /// Adds all lanes of `other`.
    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Keeps lanes that are also in `other`, and reports the dropped ones.
    pub(crate) fn keep(&mut self, other: &Self, mut dropped: impl FnMut(LaneId)) {
        for (at, word) in self.0.iter_mut().enumerate() {
            let other = other.0.get(at).copied().unwrap_or(0);
            bits(at, *word & !other).for_each(&mut dropped);
            *word &= other;
        }
    }
}

fn bits(at: usize, word: u64) -> impl Iterator<Item = LaneId> {
    std::iter::successors((word != 0).then_some(word), |&word| {
        let rest = word & (word - 1);
        (rest != 0).then_some(rest)
    })
    .map(move |word| LaneId(at as u32 * 64 + word.trailing_zeros()))
}

/// Set of lanes: a sorted list if small, bits if large. Most runs have few holders, some have all.
#[derive(Debug, Clone)]
pub(crate) enum LaneSet {
    Few { lanes: [LaneId; FEW], len: u8 },
    Many(Box<LaneBits>),
}

const FEW: usize = 5;

impl Default for LaneSet {
    fn default() -> Self {
        Self::Few {
            lanes: [LaneId(0); FEW],
            len: 0,
        }
    }
}

impl LaneSet {
    fn few(&self) -> Option<&[LaneId]> {
        match self {
            Self::Few { lanes, len } => Some(&lanes[..usize::from(*len)]),
            Self::Many(_) => None,
        }
    }

    pub(crate) fn contains(&self, lane: LaneId) -> bool {
        match self {
            Self::Few { lanes, len } => lanes[..usize::from(*len)].contains(&lane),
            Self::Many(bits) => bits.contains(lane),
        }
    }

    /// Adds a lane that is not in the set.
    pub(crate) fn insert(&mut self, lane: LaneId) {
        match self {
            Self::Few { lanes, len } if usize::from(*len) < FEW => {
                lanes[usize::from(*len)] = lane;
                *len += 1;
            }
            Self::Few { lanes, .. } => {
                let mut bits = LaneBits::default();
                lanes.iter().for_each(|&lane| bits.insert(lane));
                bits.insert(lane);
                *self = Self::Many(Box::new(bits));
            }
            Self::Many(bits) => bits.insert(lane),
        }
    }

    /// Removes a lane. Returns `false` if it was not in the set.
    pub(crate) fn remove(&mut self, lane: LaneId) -> bool {
        match self {
            Self::Few { lanes, len } => {
                let last = usize::from(*len).wrapping_sub(1);
                let Some(at) = lanes[..usize::from(*len)].iter().position(|&held| held == lane) else {
                    return false;
                };
                lanes.swap(at, last);
                *len -= 1;
                true
            }
            Self::Many(bits) => {
                let had = bits.contains(lane);
                bits.remove(lane);
                if bits.is_empty() {
                    *self = Self::default();
                }
                had
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Few { len, .. } => *len == 0,
            Self::Many(bits) => bits.is_empty(),
        }
    }

    pub(crate) fn is_many(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    pub(crate) fn to_vec(&self) -> Vec<LaneId> {
        match self {
            Self::Few { .. } => self.few().unwrap_or_default().to_vec(),
            Self::Many(bits) => bits.iter().collect(),
        }
    }

    /// Replaces `out` by the lanes that are in this set and in `among`.
    pub(crate) fn intersect(&self, among: &LaneBits, out: &mut LaneBits) {
        out.clear();
        match self {
            Self::Few { .. } => {
                for &lane in self.few().unwrap_or_default() {
                    if among.contains(lane) {
                        out.insert(lane);
                    }
                }
            }
            Self::Many(bits) => out
                .0
                .extend(among.0.iter().zip(&bits.0).map(|(among, held)| among & held)),
        }
    }
}

/// Allocator of lane numbers.
#[derive(Debug, Default)]
pub(crate) struct LaneNumbers {
    next: u32,
    free: Vec<LaneId>,
}

impl LaneNumbers {
    /// Returns an unused number.
    pub(crate) fn take(&mut self) -> LaneId {
        self.free.pop().unwrap_or_else(|| {
            let lane = LaneId(self.next);
            self.next += 1;
            lane
        })
    }

    /// Returns a number to the allocator.
    pub(crate) fn give_back(&mut self, lane: LaneId) {
        self.free.push(lane);
    }

    /// Returns one more than the highest number in use.
    pub(crate) fn end(&self) -> usize {
        self.next as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_whether_few_or_many() {
        let mut set = LaneSet::default();
        for lane in 0..200 {
            set.insert(LaneId(lane * 3));
        }
        assert!(set.is_many() && set.contains(LaneId(597)) && !set.contains(LaneId(598)));
        let (mut among, mut both) = (LaneBits::default(), LaneBits::default());
        [1, 3, 300, 900]
            .into_iter()
            .for_each(|lane| among.insert(LaneId(lane)));
        set.intersect(&among, &mut both);
        assert_eq!(both.iter().collect::<Vec<_>>(), [LaneId(3), LaneId(300)]);
        for lane in 0..200 {
            assert!(set.remove(LaneId(lane * 3)) && !set.remove(LaneId(lane * 3)));
        }
        assert!(set.is_empty() && !set.is_many());
    }

    #[test]
    fn reports_which_lanes_were_not_kept() {
        let (mut alive, mut other) = (LaneBits::default(), LaneBits::default());
        [0, 70, 140]
            .into_iter()
            .for_each(|lane| alive.insert(LaneId(lane)));
        other.insert(LaneId(70));
        let mut dropped = Vec::new();
        alive.keep(&other, |lane| dropped.push(lane.0));
        assert_eq!(
            (dropped, alive.iter().collect()),
            (vec![0, 140], vec![LaneId(70)])
        );
    }
}
