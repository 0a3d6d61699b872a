//! The component's imports and exports, generated from `wit/policy.wit`: the only place where a policy touches
//! raw memory, and nothing else may live here.
//!
//! The generated code is full of `unsafe`. It passes the workspace's `unsafe_code = "forbid"` because rustc does
//! not lint what a foreign macro expands to; no line written by hand here or in a policy may use it.

wit_bindgen::generate!({
    path: "../wit",
    world: "scheduler",
    pub_export_macro: true,
    export_macro_name: "export_scheduler",
    runtime_path: "::wit_bindgen::rt",
});
