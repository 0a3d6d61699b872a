//! Which worker holds which prefix, on which tier.
