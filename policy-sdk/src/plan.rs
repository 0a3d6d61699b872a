//! Which numbers a policy wants, and the handles by which it reads them.

use std::borrow::Cow;

/// The numbers the router lays out for every call. What is not asked for is never computed.
///
/// The names, their units and when they are unknown: `wit/README.md`. A name the router does not know is an
/// error at load that lists the known ones, unless it ends in `?`: then its number is always NaN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    request: Vec<&'static str>,
    candidate: Vec<Cow<'static, str>>,
}

/// A number of the request, read by [`crate::Call::number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestNumber(pub(crate) usize);

/// A column of the matrix, read by [`crate::Row::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column(pub(crate) usize);

/// The column of roles, read by [`crate::Row::role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleColumn(pub(crate) Column);

impl Plan {
    /// Asks for a number of the request, such as `request.body-bytes`.
    pub fn request(&mut self, name: &'static str) -> RequestNumber {
        RequestNumber(position(&mut self.request, name, name))
    }

    /// Asks for a number of every candidate, such as `load.requests`.
    pub fn column(&mut self, name: &'static str) -> Column {
        Column(position(&mut self.candidate, name, name.into()))
    }

    /// Asks for a label of every candidate, as a number: equal for equal texts, NaN where a worker has none.
    pub fn label(&mut self, key: &str) -> Column {
        let name = ["label.", key].concat();
        Column(position(&mut self.candidate, &name, name.clone().into()))
    }

    /// Asks what every candidate does, and so to place both legs of a request in one call:
    /// [`Verdict::Pair`](crate::Verdict::Pair).
    pub fn roles(&mut self) -> RoleColumn {
        RoleColumn(self.column("worker.role"))
    }

    /// Names of the request's numbers, in their order at the front.
    #[must_use]
    pub fn request_features(&self) -> &[&'static str] {
        &self.request
    }

    /// Names of the columns, in their order.
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
    fn a_name_asked_for_twice_is_one_column() {
        let mut plan = Plan::default();
        let first = plan.column("load.requests");
        let rack = plan.label("rack");
        assert_eq!(plan.column("load.requests"), first);
        assert_eq!(plan.column("label.rack"), rack);
        assert_eq!(plan.candidate_features(), ["load.requests", "label.rack"]);
    }
}
