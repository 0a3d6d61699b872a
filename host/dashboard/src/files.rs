//! The embedded files. A test compares the list with the folder `ui`.

/// An embedded file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path below `ui`.
    pub(crate) path: &'static str,
    /// Content.
    pub(crate) bytes: &'static [u8],
    /// Set if the content is in the gzip form that `vendor.sh` made. Every browser accepts it, so that libraries are
    /// embedded in this form only. Our own files are small.
    pub(crate) is_packed: bool,
}

/// Embeds files by their paths below `ui`.
macro_rules! embed {
    (vendored: $($vendored:literal,)+ own: $($own:literal,)+) => {
        &[
            $(File {
                path: $vendored,
                bytes: include_bytes!(concat!("../ui/", $vendored, ".gz")),
                is_packed: true,
            },)+
            $(File {
                path: $own,
                bytes: include_bytes!(concat!("../ui/", $own)),
                is_packed: false,
            },)+
        ]
    };
}

/// Every file that the page loads.
pub(crate) const FILES: &[File] = embed! {
    vendored:
    "vendor/hooks.js",
    "vendor/htm.js",
    "vendor/preact.js",
    "vendor/uplot.css",
    "vendor/uplot.js",
    own:
    "api.js",
    "command.js",
    "components/action.js",
    "components/bars.js",
    "components/chart.js",
    "components/form.js",
    "components/key_form.js",
    "components/layout.js",
    "components/sparkline.js",
    "components/state.js",
    "components/table.js",
    "favicon.svg",
    "format.js",
    "html.js",
    "key.js",
    "live.js",
    "main.js",
    "pages/cache.js",
    "pages/cache/funnel.js",
    "pages/cache/lookup.js",
    "pages/configuration.js",
    "pages/configuration/diff.js",
    "pages/configuration/editor.js",
    "pages/configuration/history.js",
    "pages/configuration/problems.js",
    "pages/fleet.js",
    "pages/fleet/changes.js",
    "pages/fleet/charts.js",
    "pages/fleet/workers.js",
    "pages/policies.js",
    "pages/policies/names.js",
    "pages/policies/policy.js",
    "pages/policies/routes.js",
    "pages/policies/shadows.js",
    "pages/policies/trials.js",
    "pages/policies/upload.js",
    "pages/request.js",
    "pages/requests.js",
    "pages/requests/decision.js",
    "pages/requests/replay.js",
    "pages/requests/shadow.js",
    "pages/requests/waterfall.js",
    "pages/routers.js",
    "pages/routers/decisions.js",
    "pages/simulator.js",
    "pages/simulator/result.js",
    "resource.js",
    "rights.js",
    "router.js",
    "shell.js",
    "stream.js",
    "style/base.css",
    "style/components.css",
    "style/pages.css",
    "style/shell.css",
};

/// Returns the number of embedded bytes.
pub(crate) fn embedded_bytes() -> usize {
    FILES.iter().map(|file| file.bytes.len()).sum()
}
