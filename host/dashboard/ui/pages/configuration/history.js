// History of the configuration, newest first. Each entry has its result and the diff to the entry before.

import { address } from '../../api.js';
import { Empty, Pending } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { dateTime, plural, short } from '../../format.js';
import { html } from '../../html.js';
import { useResource } from '../../resource.js';
import { useState } from '../../vendor/hooks.js';
import { Diff } from './diff.js';
import { Problems } from './problems.js';

export function ConfigHistory({ history }) {
  const { data } = history;
  if (!data) return html`<${Pending} resource=${history} what="the history" />`;
  if (data.generations.length === 0) return html`<${Empty}>No configuration was read from a file.<//>`;
  return html`<ol class="history">${data.generations.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} />`)}</ol>`;
}

function Entry({ entry }) {
  const [isOpen, setOpen] = useState(false);
  const { id, at, generation, cause, by, result, sha256, problems } = entry;
  return html`
    <li>
      <details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <${State} state=${result} />
          <span class="history-time">${dateTime(at)}</span>
          <span>${generation === null ? 'no generation' : `generation ${generation}`}</span>
          <span class="muted">${by ? `${cause}, ${by}` : cause}</span>
          <code class="muted">${short(sha256, 8)}</code>
          ${problems.length > 0 && html`<span class="muted">${plural(problems.length, 'problem')}</span>`}
        </summary>
        ${isOpen && html`<${Detail} id=${id} problems=${problems} />`}
      </details>
    </li>`;
}

function Detail({ id, problems }) {
  const diff = useResource(address(['admin', 'config', 'history', String(id), 'diff']));
  return html`
    <${Problems} problems=${problems} caption="Problems" />
    ${diff.data ? html`<${Diff} text=${diff.data.diff} />` : html`<${Pending} resource=${diff} what="the difference" />`}`;
}
