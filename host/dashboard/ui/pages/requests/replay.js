// The recorded call decided again by another policy.

import { address, change, RequestError } from '../../api.js';
import { Command } from '../../components/action.js';
import { Choice } from '../../components/form.js';
import { Notice } from '../../components/layout.js';
import { curl } from '../../command.js';
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
    ${result?.page && html`<${ReplayResult} page=${result.page} original=${call} />`}
    <${Command} command=${curl('POST', path, { policy })} />`;
}

function ReplayResult({ page, original }) {
  const before = original?.candidates.find(({ chosen }) => chosen === 'answers')?.worker ?? null;
  const isSame = page.worker === before;
  return html`
    <${Notice} kind=${isSame ? 'info' : 'good'}>
      <strong>${page.policy}</strong> ${page.version && html`<code>${page.version}</code>`}
      ${
        page.worker
          ? html` chooses <strong>${page.worker}</strong>${isSame ? ', as before' : `, where it was ${before ?? 'undecided'}`}.`
          : html` does not choose a worker: <code>${JSON.stringify(page.verdict)}</code>.`
      }
      ${page.prefill_worker && ` Prefill on ${page.prefill_worker}.`}
    <//>
    ${
      page.candidates?.length > 0 &&
      html`
      <${Candidates} candidates=${page.candidates} columns=${page.columns ?? Object.keys(page.candidates[0].numbers)} />`
    }`;
}
