// Simulator page: compares two policies on the recorded traffic.

import { address, change, RequestError } from '../api.js';
import { Command } from '../components/action.js';
import { Choice, TextField } from '../components/form.js';
import { Empty, Notice, PageHead, Pending, Section } from '../components/layout.js';
import { State } from '../components/state.js';
import { curl } from '../command.js';
import { percent, plural } from '../format.js';
import { html } from '../html.js';
import { useResource } from '../resource.js';
import { useDisabled } from '../rights.js';
import { Link, useQuery } from '../router.js';
import { useState } from '../vendor/hooks.js';
import { policyNames } from './policies/names.js';
import { SimulationResult } from './simulator/result.js';

const REFRESH_MS = 1000;

export function SimulatorPage() {
  const [query, setQuery] = useQuery();
  const list = useResource('/admin/simulations', { everyMs: REFRESH_MS });
  const simulations = list.data?.simulations ?? [];
  const shown = query.id ?? simulations[0]?.id;
  const show = async (id) => {
    await list.reload();
    setQuery({ id: String(id) });
  };
  return html`
    <${PageHead} title="Simulator"
      about="Runs policies on the recorded traffic of this router and a model of its workers, in virtual time." />
    <${Section} title="Compare two policies"><${StartForm} onStarted=${show} /><//>
    <${Pending} resource=${list} what="the simulations" />
    ${simulations.length > 0 && html`<${SimulationList} simulations=${simulations} shown=${shown} />`}
    ${
      shown === undefined
        ? list.data && html`<${Empty}>No simulation was run since the start.<//>`
        : html`<${Simulation} key=${shown} id=${shown} />`
    }`;
}

function StartForm({ onStarted }) {
  const { data } = useResource('/admin/policies');
  const names = policyNames(data);
  const [first, setFirst] = useState('');
  const [second, setSecond] = useState('');
  const [rate, setRate] = useState('1');
  const [error, setError] = useState(null);
  const disabled = useDisabled('simulate');
  const a = first || data?.routes[0]?.policy || names[0] || '';
  const b = second || names.find((name) => name !== a) || '';
  const body = { policies: [a, b], rate: Number(rate) };

  const start = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      const { id } = await change('/admin/simulations', body);
      await onStarted(id);
    } catch (failure) {
      if (!(failure instanceof RequestError)) throw failure;
      setError(failure);
    }
  };
  return html`
    <form class="filters" onSubmit=${start}>
      <${Choice} label="Policy" value=${a} choices=${names} onChange=${setFirst} />
      <${Choice} label="compared with" value=${b} choices=${names} onChange=${setSecond} />
      <${TextField} label="Speed of arrivals" inputmode="decimal" size="5" value=${rate} onChange=${setRate} />
      <button type="submit" class="primary" disabled=${disabled !== null || !a || !b} title=${disabled}>Simulate</button>
      ${disabled && html`<p class="muted">${disabled}</p>`}
    </form>
    ${error && html`<${Notice} kind="bad">${error.message}<//>`}
    <${Command} command=${curl('POST', '/admin/simulations', body)} />`;
}

function SimulationList({ simulations, shown }) {
  return html`
    <ul class="choices" aria-label="Simulations">
      ${simulations.map(
        ({ id, state, policies }) => html`
        <li key=${id}>
          <${Link} to=${`/ui/simulator?id=${id}`} aria-current=${String(id) === String(shown) ? 'true' : undefined}>
            ${policies.join(' and ')}<//> <${State} state=${state} />
        </li>`,
      )}
    </ul>`;
}

/** Simulation: its progress while it runs, then its result. */
function Simulation({ id }) {
  const path = address(['admin', 'simulations', String(id)]);
  const [isDone, setDone] = useState(false);
  const page = useResource(path, { everyMs: isDone ? 0 : REFRESH_MS });
  const { data } = page;
  if (data && data.state !== 'running' && !isDone) setDone(true);
  if (!data) return html`<${Pending} resource=${page} what="the simulation" />`;
  return html`
    <${Section} title=${data.policies.join(' and ')} about=${data.requests > 0 && `${plural(data.requests, 'recorded request')}`}
      side=${html`<${State} state=${data.state} />`}>
      ${
        data.state === 'running' &&
        html`
        <div class="buttons">
          <progress max="1" value=${data.progress} aria-label="Progress of the simulation"></progress>
          <span>${percent(data.progress)}</span>
          <${Cancel} path=${path} onCancel=${page.reload} />
        </div>`
      }
      ${data.error && html`<${Notice} kind="bad">${data.error}<//>`}
      ${data.result && html`<${SimulationResult} result=${data.result} />`}
    <//>`;
}

function Cancel({ path, onCancel }) {
  const disabled = useDisabled('simulate');
  const cancel = async () => {
    await change(path, {}, { method: 'DELETE' });
    await onCancel();
  };
  return html`<button type="button" disabled=${disabled !== null} title=${disabled} onClick=${cancel}>Cancel</button>`;
}
