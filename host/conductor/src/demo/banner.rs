//! Banner of the demo: addresses, and things to try.

use std::path::Path;

use anyhow::Result;
use conductor_tools::print;

use crate::app::App;

/// Prints the banner. Without a reader of standard output the demo goes on.
pub(super) fn print(app: &App, file: &Path, workers: usize, admin_key: &str) -> Result<()> {
    let base = format!("http://{}", app.addr());
    let admin = app
        .admin_addr()
        .map(|addr| format!("http://{addr}"))
        .unwrap_or_default();
    let folder = file.parent().unwrap_or(file).display();
    print::write(format!(
        r#"
Conductor is routing {base} over {workers} mock engines. The dashboard, with the demo's admin key:

  {admin}/#key={admin_key}

Try, in another terminal:

  a streamed chat answer
    curl -N {base}/v1/chat/completions -H 'content-type: application/json' \
      -d '{{"model": "mock", "stream": true, "messages": [{{"role": "user", "content": "Where does this go?"}}]}}'

  which worker got it, and how much of the prompt it had cached (send it twice)
    curl -si {base}/v1/completions -H 'content-type: application/json' \
      -d '{{"model": "mock", "max_tokens": 4, "prompt": "{prompt}"}}' | grep -iE '^x-conductor|usage'

  half of the sessions for the canary, live: change the shares 80 and 20 of `split` to 50 and 50 in
    {file}
  a policy of your own: drop a component here and name it in a route
    {folder}/policies/mine.wasm

  the active configuration
    curl -s {admin}/admin/config; curl -s {admin}/admin/policies; curl -s {admin}/admin/feeds

  proof: conductor demo --compare

Ctrl-C stops it.

"#,
        file = file.display(),
        prompt = "The quick brown fox jumps over the lazy dog. "
            .repeat(4)
            .trim_end(),
    ))?;
    Ok(())
}
