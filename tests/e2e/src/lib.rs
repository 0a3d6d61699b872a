//! End-to-end tests of the router over real sockets.
