//! The engines' KV-cache event wire formats, decoded into routing's block events, and sequence tracking.
