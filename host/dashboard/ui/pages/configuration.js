// Configuration page: the active configuration, the history of changes with their results, and the editor of the file.

import { Facts, PageHead, Pending, Section } from '../components/layout.js';
import { State } from '../components/state.js';
import { html } from '../html.js';
import { useResource } from '../resource.js';
import { ConfigEditor } from './configuration/editor.js';
import { ConfigHistory } from './configuration/history.js';
import { Problems } from './configuration/problems.js';

const REFRESH_MS = 3000;

export function ConfigurationPage() {
  const config = useResource('/admin/config', { everyMs: REFRESH_MS });
  const { data } = config;
  const history = useResource('/admin/config/history', { everyMs: REFRESH_MS });
  return html`
    <${PageHead} title="Configuration" about=${data?.source}>
      ${
        data &&
        html`<${State} state=${data.problems.length === 0 ? 'current' : 'stale'}
        title=${data.problems.length === 0 ? 'The newest text is active' : 'The newest text is refused, an older one is active'} />`
      }
    <//>
    <${Pending} resource=${config} what="the configuration" />
    ${
      data &&
      html`
      <${Facts} facts=${[
        ['Generation', data.generation],
        ['Applied', data.reloads_applied],
        ['Refused', data.reloads_refused],
        ['Pools', data.pools.join(', ')],
        ['Need a restart', data.needs_restart.join(', ')],
        ['Changed over HTTP', overlays(data.overlays)],
      ]} />
      <${Problems} problems=${data.problems} caption="Problems of the newest text" />
      <${Problems} problems=${data.warnings ?? []} caption="Warnings about the active text" />`
    }
    <${Section} title="File" about="It is written by renaming and then reloaded. A refused edit changes nothing.">
      <${ConfigEditor} onApplied=${() => Promise.all([config.reload(), history.reload()])} />
    <//>
    <${Section} title="History" about="The latest texts with what they changed. Secrets are replaced.">
      <${ConfigHistory} history=${history} />
    <//>`;
}

function overlays(list) {
  return list.map(({ kind, pool, name }) => `${pool}/${name} ${kind}`).join(', ');
}
