// Replay of a recorded decision with another policy.

import { address, change, RequestError } from '../../api.js';
import { Command } from '../../components/action.js';
import { Choice } from '../../components/form.js';
import { Notice } from '../../components/layout.js';
import { curl } from '../../command.js';
import { number } from '../../format.js';
import { html } from '../../html.js';
import { useResource } from '../../resource.js';
import { useDisabled } from '../../rights.js';
import { useState } from '../../vendor/hooks.js';
import { policyNames } from '../policies/names.js';
import { Candidates } from './decision.js';

export function Replay({ id, call }) {
  const policies = useResource('/admin/policies');
  const names = policyNames(policies.data);
  const [chosen, setChosen] = useState('');
  const [result, setResult] = useState(null);
  const disabled = useDisabled('replay');
  const policy = chosen || names.find((name) => name !== call?.policy) || names[0] || '';
  const path = address(['admin', 'explain', id, 'replay']);

  const run = async (event) => {
    event.preventDefault();
    try {
      setResult({ page: await change(path, { policy }) });
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      setResult({ error });
    }
  };
  return html`
    <form class="filters" onSubmit=${run}>
      <${Choice} label="Policy" value=${policy} choices=${names} onChange=${setChosen} />
      <button type="submit" class="primary" disabled=${disabled !== null || !policy} title=${disabled}>Replay</button>
      ${disabled && html`<p class="muted">${disabled}</p>`}
    </form>
    ${result?.error && html`<${Notice} kind="bad">${result.error.message}<//>`}
    ${result?.page && html`<${ReplayResult} page=${result.page} columns=${call.columns} />`}
    <${Command} command=${curl('POST', path, { policy })} />`;
}

function ReplayResult({ page, columns }) {
  const { policy, version, agrees, original, candidates } = page;
  return html`
    <${Notice} kind=${agrees ? 'info' : 'good'}>
      <strong>${policy}</strong> <code>${version}</code> ${choice(page)}.
      ${agrees ? ' That is the same.' : ` ${original.policy} ${choice(original)}.`}
    <//>
    ${candidates.length > 0 && html`<${Candidates} candidates=${candidates} columns=${columns} />`}`;
}

/** Returns the verdict of a decision as the end of a sentence. */
function choice({ verdict, detail, worker, prefill_worker, score }) {
  if (verdict !== 'route') return `ends with ${verdict}${detail ? ` (${detail})` : ''}`;
  const pair = prefill_worker && prefill_worker !== worker ? ` after prefill on ${prefill_worker}` : '';
  const scored = typeof score === 'number' ? ` with a score of ${number(score)}` : '';
  return `chooses ${worker}${pair}${scored}`;
}
