//! Policy: every eligible worker in turn.
