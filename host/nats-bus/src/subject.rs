//! Subjects of a fleet.

use replicas::{FleetSubject, RouterId, SubjectKind};

/// Subjects of one router in a fleet.
#[derive(Debug)]
pub(crate) struct Subjects {
    /// `conductor.FLEET.`
    prefix: String,
    router: RouterId,
}

impl Subjects {
    pub(crate) fn new(fleet: &str, router: RouterId) -> Self {
        Self {
            prefix: format!("conductor.{fleet}."),
            router,
        }
    }

    /// Returns the subject of all messages of the fleet.
    pub(crate) fn all(&self) -> String {
        format!("{}*.*", self.prefix)
    }

    /// Returns the subject of this router's messages of a kind.
    pub(crate) fn name(&self, kind: SubjectKind) -> String {
        format!("{}{}.{}", self.prefix, kind.as_str(), self.router)
    }

    /// Returns the subject of all direct messages to this router.
    pub(crate) fn own_direct(&self) -> String {
        format!("{}direct.{}.*", self.prefix, self.router)
    }

    /// Returns the subject of this router's direct messages to another one.
    pub(crate) fn direct(&self, to: RouterId) -> String {
        format!("{}direct.{to}.{}", self.prefix, self.router)
    }

    /// Reads the sender of a direct message to this router.
    pub(crate) fn parse_direct(&self, subject: &str) -> Option<RouterId> {
        let (to, from) = subject
            .strip_prefix(&self.prefix)?
            .strip_prefix("direct.")?
            .split_once('.')?;
        (RouterId::parse(to)? == self.router).then_some(())?;
        RouterId::parse(from)
    }

    /// Reads a subject of the fleet.
    pub(crate) fn parse(&self, subject: &str) -> Option<FleetSubject> {
        let (kind, router) = subject.strip_prefix(&self.prefix)?.split_once('.')?;
        Some(FleetSubject {
            kind: SubjectKind::parse(kind)?,
            router: RouterId::parse(router)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other_of_main() -> Subjects {
        Subjects::new("main", RouterId(8))
    }

    #[test]
    fn subjects_are_read_back_and_those_of_other_fleets_are_not() {
        let (main, other) = (
            Subjects::new("main", RouterId(7)),
            Subjects::new("main2", RouterId(8)),
        );
        let name = main.name(SubjectKind::Load);
        assert_eq!(name, "conductor.main.load.0000000000000007");
        let subject = FleetSubject {
            kind: SubjectKind::Load,
            router: RouterId(7),
        };
        assert_eq!(main.parse(&name), Some(subject));
        assert_eq!(other.parse(&name), None);
        assert_eq!(main.parse("conductor.main.secret.0000000000000007"), None);
        assert_eq!(main.parse("conductor.main.load.7"), None);
        let direct = other_of_main().direct(RouterId(7));
        assert_eq!(direct, "conductor.main.direct.0000000000000007.0000000000000008");
        assert_eq!(main.parse_direct(&direct), Some(RouterId(8)));
        assert_eq!(other.parse_direct(&direct), None);
        assert_eq!(main.parse(&direct), None, "it is no message to all");
    }
}
