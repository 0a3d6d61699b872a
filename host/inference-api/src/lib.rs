//! OpenAI-style request and response bodies, SSE framing and error bodies, as bytes.
