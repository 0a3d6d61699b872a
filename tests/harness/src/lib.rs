//! Builders for tests: a fleet of mock engines, a router in front, a client.
