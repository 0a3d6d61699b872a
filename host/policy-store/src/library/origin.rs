//! Origin of a version's bytes.

use std::borrow::Cow;
use std::sync::Arc;

use super::component;
use super::version::LoadedVersion;
use super::wanted_policy::PolicySource;

/// Origin of a version's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComponentOrigin {
    /// Built-in component of this name.
    Builtin(String),
    /// The bytes themselves: their file may have others by now.
    Bytes(Arc<Cow<'static, [u8]>>),
}

impl ComponentOrigin {
    /// Returns the origin of a version: its source while that has its bytes, else the bytes that are kept for a restart
    /// after a rollback. `None` if neither has them. Reads a file.
    pub(super) fn of(version: &LoadedVersion, source: &PolicySource) -> Option<Self> {
        let read = component::read(source).ok();
        match (source, read.filter(|read| read.digest() == version.digest)) {
            (PolicySource::Builtin(name), Some(_)) => Some(Self::Builtin(name.clone())),
            (PolicySource::File(_), Some(read)) => Some(Self::Bytes(Arc::new(read.bytes))),
            (_, None) => version.bytes.clone().map(Self::Bytes),
        }
    }
}
