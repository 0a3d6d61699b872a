//! Admin pages that explore what the router has.

mod index;
