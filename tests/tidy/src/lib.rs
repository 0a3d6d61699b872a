//! The repository's rules, as tests.
