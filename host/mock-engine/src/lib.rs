//! A fake inference engine: HTTP and SSE, KV-cache events over ZMQ, deterministic, with scripted faults.
