//! Generated bindings of the component's imports and exports, from `wit/policy.wit`.
//!
//! This is the only module that touches raw memory. It contains generated code only.
//!
//! The generated code uses `unsafe` heavily. It passes the workspace's `unsafe_code = "forbid"` because rustc
//! does not lint expansions of foreign macros. Hand-written code here and in policies must not use it.

wit_bindgen::generate!({
    inline: "package conductor:policy-base; world base { include conductor:policy/imports@0.1.0; export conductor:policy/policy@0.1.0; }",
    path: "../wit",
    world: "conductor:policy-base/base",
    generate_all,
    generate_unused_types: true,
    pub_export_macro: true,
    export_macro_name: "export_base",
    runtime_path: "::wit_bindgen::rt",
});

/// Interface `schedule`, in a world of its own. The world's type is embedded only in components that export
/// the interface.
pub mod schedule {
    wit_bindgen::generate!({
        inline: "package conductor:policy-schedule; world schedule { export conductor:policy/schedule@0.1.0; }",
        path: "../wit",
        world: "conductor:policy-schedule/schedule",
        with: { "conductor:policy/types@0.1.0": crate::bindings::conductor::policy::types },
        pub_export_macro: true,
        export_macro_name: "export_schedule",
        runtime_path: "::wit_bindgen::rt",
    });
}

/// Interface `score`; see [`schedule`].
pub mod score {
    wit_bindgen::generate!({
        inline: "package conductor:policy-score; world score { export conductor:policy/score@0.1.0; }",
        path: "../wit",
        world: "conductor:policy-score/score",
        with: { "conductor:policy/types@0.1.0": crate::bindings::conductor::policy::types },
        pub_export_macro: true,
        export_macro_name: "export_score",
        runtime_path: "::wit_bindgen::rt",
    });
}

/// Interface `parameters`; see [`schedule`].
pub mod parameters {
    wit_bindgen::generate!({
        inline: "package conductor:policy-parameters; world parameters { export conductor:policy/parameters@0.1.0; }",
        path: "../wit",
        world: "conductor:policy-parameters/parameters",
        pub_export_macro: true,
        export_macro_name: "export_parameters",
        runtime_path: "::wit_bindgen::rt",
    });
}

/// Interface `events`; see [`schedule`].
pub mod events {
    wit_bindgen::generate!({
        inline: "package conductor:policy-events; world events { export conductor:policy/events@0.1.0; }",
        path: "../wit",
        world: "conductor:policy-events/events",
        with: { "conductor:policy/types@0.1.0": crate::bindings::conductor::policy::types },
        pub_export_macro: true,
        export_macro_name: "export_events",
        runtime_path: "::wit_bindgen::rt",
    });
}

/// Interface `tick`; see [`schedule`].
pub mod tick {
    wit_bindgen::generate!({
        inline: "package conductor:policy-tick; world tick { export conductor:policy/tick@0.1.0; }",
        path: "../wit",
        world: "conductor:policy-tick/tick",
        pub_export_macro: true,
        export_macro_name: "export_tick",
        runtime_path: "::wit_bindgen::rt",
    });
}
