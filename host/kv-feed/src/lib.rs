//! ZMQ subscriptions to the engines' KV events, with replay.
