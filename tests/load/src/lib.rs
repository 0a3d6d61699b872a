//! Load generator and CPU-per-request bench of the proxy.
