//! The bench of the proxy's CPU per request: mock backends, a load generator, and the run that compares systems.
//!
//! Everything speaks HTTP/1.1 over loopback through raw epoll, because the bench must cost far less than what it
//! measures. It depends on none of the host's crates: Conductor is one more binary that it starts, like nginx. Only
//! [`soak`] and [`bare_proxy`] are on tokio; the former has the mock engines of `harness`.
//!
//! * [`backends`]: OpenAI-shaped replies from fixed bytes, many ports in one thread;
//! * [`generate`]: closed or open loop against one address, with latencies and errors;
//! * [`proxy_cpu`]: both of these on one core and the system under test on another, in interleaved rounds;
//! * [`bare_proxy`]: a proxy with nothing but hyper, as the floor of routers that are built on it;
//! * [`figures`]: the same for every figure that a router is measured by, in one table;
//! * [`soak`]: a router over mock engines for as long as wanted, while everything goes wrong or comes and goes.

pub mod affinity;
pub mod backends;
pub mod bare_proxy;
pub mod figures;
pub mod generate;
mod http;
pub mod interrupt;
pub mod loopback;
mod open_files;
pub mod proxy_cpu;
pub mod readiness;
pub mod soak;
pub mod statistics;
