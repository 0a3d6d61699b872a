//! The conductor binary: composition root, command line, reload, signals, admin.
