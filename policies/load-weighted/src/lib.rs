//! Policy: the least loaded worker, by weight.
