//! Sets of holders as bits. A holder's slot is a small number that is reused once nothing refers to it any more.

/// A set of slots. The first 64 need no allocation.
#[derive(Debug, Default, Clone)]
pub(crate) struct SlotSet {
    first: u64,
    rest: Vec<u64>,
}

/// Which word of a set, and which bit of it.
fn place(slot: u32) -> (usize, u64) {
    ((slot / 64) as usize, 1 << (slot % 64))
}

impl SlotSet {
    /// Adds a slot; false if it was there.
    pub(crate) fn insert(&mut self, slot: u32) -> bool {
        let (word, bit) = place(slot);
        if word > self.rest.len() {
            self.rest.resize(word, 0);
        }
        let word = match word {
            0 => &mut self.first,
            _ => &mut self.rest[word - 1],
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slot: u32) {
        let (word, bit) = place(slot);
        let word = match word {
            0 => Some(&mut self.first),
            _ => self.rest.get_mut(word - 1),
        };
        if let Some(word) = word {
            *word &= !bit;
        }
    }

    /// The slots `64 * index ..` as bits.
    pub(crate) fn word(&self, index: usize) -> u64 {
        match index {
            0 => self.first,
            _ => self.rest.get(index - 1).copied().unwrap_or(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.iter().all(|&word| word == 0)
    }
}

/// Hands out slots, lowest free one first come.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    next: u32,
    free: Vec<u32>,
}

impl Slots {
    /// A slot that nothing refers to.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.next;
            self.next += 1;
            slot
        })
    }

    /// Gives back a slot that nothing refers to any more.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// How many words a set of all slots in use has.
    pub(crate) fn words(&self) -> usize {
        self.next.div_ceil(64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_slots_beyond_the_first_word() {
        let mut set = SlotSet::default();
        assert!(set.insert(3) && set.insert(200) && !set.insert(200));
        assert_eq!(
            (set.word(0), set.word(1), set.word(3), set.word(9)),
            (1 << 3, 0, 1 << 8, 0)
        );
        set.remove(3);
        set.remove(200);
        set.remove(999);
        assert!(set.is_empty());
    }

    #[test]
    fn reuses_slots_that_came_back() {
        let mut slots = Slots::default();
        assert_eq!((slots.take(), slots.take()), (0, 1));
        slots.give_back(0);
        assert_eq!((slots.take(), slots.take()), (0, 2));
        assert_eq!(slots.words(), 1);
    }
}
