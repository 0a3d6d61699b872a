//! conductor.toml into a valid configuration, or every mistake in it at once.
