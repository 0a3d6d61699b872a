//! Entry of a model catalog: the members of a pool that serve one model, as bits, so that a candidate costs a bit test.

use std::sync::{Arc, OnceLock};

/// Who serves a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServedModel {
    /// One bit for each member of the pool, in their order.
    members: Box<[u64]>,
    /// The name of the LoRA adapter that it is; its blocks match only themselves.
    pub(super) adapter: Option<Box<str>>,
    /// The base models that serving members say the adapter has.
    pub(super) parents: Vec<Box<str>>,
}

impl ServedModel {
    /// An entry without a member, of a pool that has so many.
    pub(super) fn of(members: usize) -> Self {
        Self {
            members: vec![0; members.div_ceil(64)].into(),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, member: usize) {
        self.members[member / 64] |= 1 << (member % 64);
    }

    /// Whether the member at that place serves it.
    pub(crate) fn has(&self, member: usize) -> bool {
        let word = self.members.get(member / 64).copied().unwrap_or_default();
        word >> (member % 64) & 1 == 1
    }

    /// Whether no member serves it.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.iter().all(|word| *word == 0)
    }

    /// The name of the LoRA adapter that it is, by which its blocks are told from the base model's.
    pub(crate) fn adapter(&self) -> Option<&str> {
        self.adapter.as_deref()
    }
}

/// Who serves a request's model: as its catalog said when the request came, or as it says since a worker answered that it does
/// not serve it.
#[derive(Debug, Default)]
pub(crate) struct RequestModel {
    first: Arc<ServedModel>,
    /// Set at most once.
    again: OnceLock<Arc<ServedModel>>,
}

impl RequestModel {
    pub(crate) fn new(first: Arc<ServedModel>) -> Self {
        Self {
            first,
            again: OnceLock::new(),
        }
    }

    /// Who serves it, as known last.
    pub(crate) fn now(&self) -> &ServedModel {
        self.again.get().unwrap_or(&self.first)
    }

    /// Takes what the catalog says now, the first time.
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
