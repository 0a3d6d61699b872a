// Policy with its versions and their circuits, and with buttons that roll back and resume versions.

import { address, change } from '../../api.js';
import { Action } from '../../components/action.js';
import { Notice } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { conductor } from '../../command.js';
import { count, dateTime, seconds, UNKNOWN } from '../../format.js';
import { html } from '../../html.js';

const COLUMNS = [
  {
    name: 'Version',
    isHead: true,
    cell: ({ id, manifest }) => html`<span title=${manifest}><code>${id}</code></span>`,
  },
  { name: 'State', cell: ({ state }) => html`<${State} state=${state} />` },
  {
    name: 'Circuit',
    cell: ({ circuit }) => html`<${State} state=${circuit.state} title=${`${circuit.openings} openings`} />`,
  },
  { name: 'Calls', number: true, cell: ({ calls }) => count(calls) },
  { name: 'Faults', number: true, cell: ({ faults }) => faultCount(faults) },
  {
    name: 'Since',
    hides: true,
    cell: ({ since_unix_ms }) => (since_unix_ms ? dateTime(since_unix_ms / 1e3) : UNKNOWN),
  },
  {
    name: 'Decision',
    number: true,
    hides: true,
    hint: 'Time of a decision over 256 candidates, measured at load',
    cell: ({ load }) => seconds(load.decided_256_us / 1e6),
  },
];

function faultCount(faults) {
  const kinds = Object.entries(faults).filter(([, number]) => number > 0);
  const total = kinds.reduce((sum, [, number]) => sum + number, 0);
  return html`<span title=${kinds.map(([kind, number]) => `${kind}: ${number}`).join(', ')}>${count(total)}</span>`;
}

export function PolicyCard({ policy, onChange }) {
  return html`
    <article class="card">
      <div class="card-head">
        <h3>${policy.name}</h3>
        ${policy.compiling && html`<${State} state="compiling" />`}
        <span class="muted">${policy.manifest ?? ''} · ${policy.source}</span>
      </div>
      ${policy.problem && html`<${Notice} kind="bad">The newest bytes are not active: ${policy.problem}<//>`}
      ${policy.pipeline && html`<${Pipeline} pipeline=${policy.pipeline} />`}
      ${
        policy.versions.length > 0 &&
        html`
        <${Table} caption=${`Versions of ${policy.name}`} columns=${COLUMNS} rows=${policy.versions} keyOf=${({ id }) => id} />
        <div class="buttons">
          <${RollBack} policy=${policy} onChange=${onChange} />
          <${Resume} policy=${policy} onChange=${onChange} />
        </div>`
      }
    </article>`;
}

function Pipeline({ pipeline }) {
  const { filters, scorers } = pipeline;
  return html`<p class="muted">Pipeline: ${[
    filters.length > 0 && `filters ${filters.map(({ keeps }) => keeps).join(', ')}`,
    // The score comes from a policy or from a column.
    scorers.length > 0 && `scorers ${scorers.map(({ policy, feature }) => policy ?? feature).join(', ')}`,
  ]
    .filter(Boolean)
    .join('; ')}</p>`;
}

function RollBack({ policy, onChange }) {
  const before = policy.versions.find(({ state }) => state === 'before');
  const run = async () => {
    const report = await change(address(['admin', 'policies', policy.name, 'rollback']));
    await onChange();
    return `${policy.name} is back at ${report.version}.`;
  };
  return html`
    <${Action} label="Roll back" isDanger run=${run} command=${conductor('policy', 'rollback', policy.name)}
      unavailable=${before ? null : 'there is no earlier version to go back to'}
      effect=${html`All decisions of <strong>${policy.name}</strong> go back from <code>${policy.version}</code> to
        <code>${before?.id}</code>. The newer bytes are not loaded again until they change or are resumed.`} />`;
}

function Resume({ policy, onChange }) {
  const needsResume = policy.held_back.length > 0 || policy.versions.some(({ circuit }) => circuit.state !== 'closed');
  const run = async () => {
    const report = await change(address(['admin', 'policies', policy.name, 'resume']));
    await onChange();
    return `${policy.name} is at ${report.version}.`;
  };
  return html`
    <${Action} label="Resume" run=${run} command=${conductor('policy', 'resume', policy.name)}
      unavailable=${needsResume ? null : 'nothing is rolled back, and every circuit is closed'}
      effect=${html`<strong>${policy.name}</strong> goes to the newest bytes again, and every circuit of it is closed.`} />`;
}
