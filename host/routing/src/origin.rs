//! Origin of a policy.

/// Origin of a policy. Two policies of the same origin give the same verdict, bit for bit, for the same input and the
/// same answers to their queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the component's bytes, in hexadecimal.
    pub sha256: Box<str>,
    /// Parameters as a JSON object.
    pub params: Box<str>,
    /// The version it gives itself.
    pub version: Box<str>,
}
