//! Which numbers a policy wants, and the handles by which it reads them.

/// The numbers the router lays out for every call. What is not asked for is never computed.
///
/// The names, their units and when they are unknown: `wit/README.md`. A name the router does not know is an
/// error at load that lists the known ones, unless it ends in `?`: then its number is always NaN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    request: Vec<&'static str>,
    candidate: Vec<&'static str>,
}

/// A number of the request, read by [`crate::Call::number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestNumber(pub(crate) usize);

/// A column of the matrix, read by [`crate::Row::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column(pub(crate) usize);

impl Plan {
    /// Asks for a number of the request, such as `request.body-bytes`.
    pub fn request(&mut self, name: &'static str) -> RequestNumber {
        RequestNumber(position(&mut self.request, name))
    }

    /// Asks for a number of every candidate, such as `load.requests`.
    pub fn column(&mut self, name: &'static str) -> Column {
        Column(position(&mut self.candidate, name))
    }

    /// Names of the request's numbers, in their order at the front.
    #[must_use]
    pub fn request_features(&self) -> &[&'static str] {
        &self.request
    }

    /// Names of the columns, in their order.
    #[must_use]
    pub fn candidate_features(&self) -> &[&'static str] {
        &self.candidate
    }
}

fn position(names: &mut Vec<&'static str>, name: &'static str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
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
        plan.column("worker.weight");
        assert_eq!(plan.column("load.requests"), first);
        assert_eq!(plan.candidate_features(), ["load.requests", "worker.weight"]);
    }
}
