//! End-to-end tests of the router: see `tests/it`, one binary, so that it links once.
