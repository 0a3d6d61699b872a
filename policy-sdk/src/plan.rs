//! Plan: the numbers that a policy requests, and the handles to read them.

use std::borrow::Cow;

/// Numbers that the router lays out for every call. Numbers that are not requested are never computed.
///
/// `wit/README.md` lists the names, units and unknown cases. An unknown name is an error at load that lists
/// the known ones. A name that ends in `?` is optional: its number is NaN if the router does not know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    request: Vec<&'static str>,
    candidate: Vec<Cow<'static, str>>,
    /// Column of the hashes of the candidates' names, if it is requested.
    pub(crate) name_hash: Option<Column>,
}

/// Handle of a number of the request, read by [`crate::Call::number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestNumber(pub(crate) usize);

/// Handle of a column of the matrix, read by [`crate::Row::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column(pub(crate) usize);

/// Handle of columns that are side by side, read by [`Numbers::block`](crate::Numbers::block).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns<const N: usize> {
    pub(crate) first: usize,
}

/// Handle of the column of roles, read by [`crate::Row::role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleColumn(pub(crate) Column);

impl Plan {
    /// Requests a number of the request, such as `request.body-bytes`.
    pub fn request(&mut self, name: &'static str) -> RequestNumber {
        RequestNumber(position(&mut self.request, name, name))
    }

    /// Requests a number of every candidate, such as `load.requests`.
    pub fn column(&mut self, name: &'static str) -> Column {
        Column(position(&mut self.candidate, name, name.into()))
    }

    /// Requests the hash of every candidate's name, by which [`Call::rank`](crate::Call::rank) and ties then rank the
    /// candidates. Ids differ between routers and after a restart, and names do not.
    pub fn name_hash(&mut self) {
        self.name_hash = Some(self.column("worker.name-hash"));
    }

    /// Requests numbers of every candidate, side by side, so that they are read together.
    ///
    /// It requests them once more if they are requested already. So it should be called first.
    pub fn columns<const N: usize>(&mut self, names: [&'static str; N]) -> Columns<N> {
        let first = self.candidate.len();
        self.candidate.extend(names.map(Cow::Borrowed));
        Columns { first }
    }

    /// Requests a label of every candidate as a number: equal for equal texts, NaN if a worker has no such
    /// label.
    pub fn label(&mut self, key: &str) -> Column {
        let name = ["label.", key].concat();
        Column(position(&mut self.candidate, &name, name.clone().into()))
    }

    /// Requests the role of every candidate, and thereby both legs of a request in one call:
    /// [`Verdict::Pair`](crate::Verdict::Pair).
    pub fn roles(&mut self) -> RoleColumn {
        RoleColumn(self.column("worker.role"))
    }

    /// Returns the names of the request's numbers, in layout order.
    #[must_use]
    pub fn request_features(&self) -> &[&'static str] {
        &self.request
    }

    /// Returns the names of the columns, in layout order.
    #[must_use]
    pub fn candidate_features(&self) -> &[Cow<'static, str>] {
        &self.candidate
    }
}

fn position<N: AsRef<str>>(names: &mut Vec<N>, name: &str, new: N) -> usize {
    let known = names.iter().position(|known| known.as_ref() == name);
    known.unwrap_or_else(|| {
        names.push(new);
        names.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_requested_twice_is_one_column() {
        let mut plan = Plan::default();
        let first = plan.column("load.requests");
        let rack = plan.label("rack");
        assert_eq!(plan.column("load.requests"), first);
        assert_eq!(plan.column("label.rack"), rack);
        assert_eq!(plan.candidate_features(), ["load.requests", "label.rack"]);
        assert_eq!(plan.columns(["load.requests", "load.decoding"]).first, 2);
        assert_eq!(plan.column("load.decoding"), Column(3));
        assert_eq!(plan.column("load.requests"), first);
    }
}
