//! Policy: the worker with the least priced time to first token, cache and queue summed.
