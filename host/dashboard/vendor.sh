#!/usr/bin/env bash
# Fetches the libraries of the dashboard into ui/vendor: the files that the page loads, and nothing else.
#
#     host/dashboard/vendor.sh
#
# Needs npm, sed, gzip and sha256sum. The page has no build step: this script runs only to change a version.
# The result is committed. `tests/tidy` compares it with ui/vendor/MANIFEST.
set -euo pipefail
cd "$(dirname "$0")/ui/vendor"

PREACT=11.2.0
HTM=3.1.1
UPLOT=1.6.32

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

# fetch NAME VERSION: unpacks a package into $packages/NAME.
fetch() {
    (cd "$packages" && npm pack --silent "$1@$2" >/dev/null && mkdir "$1" &&
        tar -xzf "$1-$2.tgz" -C "$1" --strip-components=1)
}

# module SOURCE TARGET BANNER: copies a script without its source map, under a banner. Imports become relative paths,
# since an import map is an inline script, which the page's Content-Security-Policy refuses.
module() {
    {
        printf '/*! %s. See NOTICE. */\n' "$3"
        sed -e '/^\/\/# sourceMappingURL=/d' -e 's|from"preact"|from"./preact.js"|g' "$packages/$1"
    } >"$2"
}

fetch preact "$PREACT"
fetch htm "$HTM"
fetch uplot "$UPLOT"

rm -f -- *.js *.css *.gz MANIFEST
module preact/dist/preact.mjs preact.js "preact $PREACT, MIT, https://preactjs.com"
module preact/hooks/dist/hooks.mjs hooks.js "preact/hooks $PREACT, MIT, https://preactjs.com"
module htm/dist/htm.mjs htm.js "htm $HTM, Apache-2.0, https://github.com/developit/htm"
module uplot/dist/uPlot.iife.min.js uplot.js "uPlot $UPLOT, MIT, https://github.com/leeoniya/uPlot"
# The small form is a script that sets a variable.
printf '\nexport default uPlot;\n' >>uplot.js
module uplot/dist/uPlot.min.css uplot.css "uPlot $UPLOT, MIT, https://github.com/leeoniya/uPlot"

if grep -lE 'sourceMappingURL|from"[^.]' -- *.js; then
    echo "vendor.sh: these files have a source map or an import that is no path" >&2
    exit 1
fi
gzip --best --no-name --keep -- *.js *.css
LC_ALL=C sha256sum -- *.js *.css *.gz >MANIFEST
cat MANIFEST
