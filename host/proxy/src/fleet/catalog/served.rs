//! Entry of a model catalog: the members of a pool that serve one model, as bits, so that a candidate costs a bit test.

use std::sync::{Arc, OnceLock};

/// Members that serve a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServedModel {
    /// Bit set of the pool's members, in their order.
    members: Box<[u64]>,
    /// Name of the LoRA adapter, if it is one. An adapter's blocks match only themselves.
    pub(super) adapter: Option<Box<str>>,
    /// Base models of the adapter, as the serving members list them.
    pub(super) parents: Vec<Box<str>>,
}

impl ServedModel {
    /// Makes an entry without a member, for a pool of that size.
    pub(super) fn of(members: usize) -> Self {
        Self {
            members: vec![0; members.div_ceil(64)].into(),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, member: usize) {
        self.members[member / 64] |= 1 << (member % 64);
    }

    /// Returns `true` if the member at that place serves it.
    pub(crate) fn has(&self, member: usize) -> bool {
        let word = self.members.get(member / 64).copied().unwrap_or_default();
        word >> (member % 64) & 1 == 1
    }

    /// Returns `true` if no member serves it.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.iter().all(|word| *word == 0)
    }

    /// Returns the name of its LoRA adapter, which distinguishes its blocks from the base model's.
    pub(crate) fn adapter(&self) -> Option<&str> {
        self.adapter.as_deref()
    }
}

/// Members that serve a request's model, as the catalog had it when the request came. A worker's answer that it does
/// not serve the model replaces them.
#[derive(Debug, Default)]
pub(crate) struct RequestModel {
    first: Arc<ServedModel>,
    /// Replacement entry, set at most once.
    again: OnceLock<Arc<ServedModel>>,
}

impl RequestModel {
    pub(crate) fn new(first: Arc<ServedModel>) -> Self {
        Self {
            first,
            again: OnceLock::new(),
        }
    }

    /// Returns the members that serve the model, as last known.
    pub(crate) fn now(&self) -> &ServedModel {
        self.again.get().unwrap_or(&self.first)
    }

    /// Stores the catalog's present entry, the first time.
    pub(super) fn renew(&self, served: Arc<ServedModel>) {
        // A second worker's answer ends the request: nothing would read a third entry.
        let _ = self.again.set(served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_members_it_was_given() {
        let mut served = ServedModel::of(130);
        assert!(served.is_empty());
        for member in [0, 63, 64, 129] {
            served.add(member);
        }
        let has: Vec<usize> = (0..200).filter(|member| served.has(*member)).collect();
        assert_eq!(has, [0, 63, 64, 129]);
        assert!(!served.is_empty());
    }

    #[test]
    fn a_request_renews_its_entry_once() {
        let entry = |member| {
            let mut served = ServedModel::of(3);
            served.add(member);
            Arc::new(served)
        };
        let model = RequestModel::new(entry(0));
        model.renew(entry(1));
        model.renew(entry(2));
        assert!(model.now().has(1) && !model.now().has(2));
    }
}
