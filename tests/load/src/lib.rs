//! The bench of the proxy's CPU per request: mock backends, a load generator, and the run that compares systems.
//!
//! Everything speaks HTTP/1.1 over loopback through raw epoll, because the bench must cost far less than what it
//! measures. It knows nothing of the host's crates: Conductor is one more binary that it starts, like nginx.
//!
//! * [`backends`]: OpenAI-shaped replies from fixed bytes, many ports in one thread;
//! * [`generate`]: closed or open loop against one address, with latencies and errors;
//! * [`proxy_cpu`]: both of these on one core and the system under test on another, in interleaved rounds.

pub mod affinity;
pub mod backends;
pub mod generate;
mod http;
pub mod interrupt;
pub mod loopback;
pub mod proxy_cpu;
mod readiness;
pub mod statistics;
