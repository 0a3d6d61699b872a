//! HTTP in, HTTP out: the request path of the router.
