//! Kind of a log, and the beginning of its files.

/// Kind of a log, which decides on the beginning of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// Files begin with a header line, and describe workers and policies.
    Described,
    /// Files have the lines of requests only.
    Plain,
}

impl LogKind {
    /// Returns the first bytes of every file.
    pub(crate) fn beginning(self) -> &'static [u8] {
        match self {
            Self::Described => b"{\"log\":{",
            Self::Plain => b"{\"ts\":\"",
        }
    }

    /// Returns the reason for refusing a file with another beginning.
    pub(crate) fn refusal(self) -> &'static str {
        match self {
            Self::Described => "it is not a decision log; configure another file, or move this one",
            Self::Plain => "it is not an access log; configure another file, or move this one",
        }
    }
}
