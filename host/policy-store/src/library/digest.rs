//! Hash and maximum size of a component.

/// Size limit of a component, in bytes. The largest real one, Python's, has 18 MB.
pub const MAX_COMPONENT: u64 = 64 << 20;

/// SHA-256.
pub(super) type Digest = [u8; 32];
