//! Admin pages that explore what the router has.

mod index;
mod replay;
mod simulations;
mod upload;
