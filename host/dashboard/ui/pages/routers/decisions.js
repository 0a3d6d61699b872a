// Agreed decisions of the routers of a fleet, with the state of each decision at every router.

import { Empty } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { dateTime, short } from '../../format.js';
import { html } from '../../html.js';

export function Decisions({ entries, names }) {
  if (entries.length === 0) return html`<${Empty}>No decision was made yet.<//>`;
  const columns = [
    { name: 'Decision', isHead: true, cell: ({ kind, value }) => `${kind} ${subjectOf(value)}`.trim() },
    { name: 'By', cell: ({ by }) => names.get(by) ?? short(by) },
    { name: 'At', hides: true, cell: (row) => dateTime(row['at-unix-ms'] / 1e3) },
    { name: 'Revision', number: true, hint: '0: not stored yet', cell: ({ revision }) => revision },
    { name: 'Routers', cell: ({ routers }) => html`<${States} routers=${routers} names=${names} />` },
  ];
  return html`<${Table} caption="Agreed decisions" columns=${columns} rows=${entries} keyOf=${({ key }) => key} />`;
}

function States({ routers, names }) {
  return html`
    <ul>
      ${Object.entries(routers).map(([router, text]) => {
        const [state, ...reason] = text.split(': ');
        return html`
        <li key=${router}>${names.get(router) ?? short(router)}${' '}<${State} state=${state} kind=${kindOf(state)} title=${reason.join(': ') || undefined} />${reason.length > 0 && html`<span class="sub">${reason.join(': ')}</span>`}
        </li>`;
      })}
    </ul>`;
}

function kindOf(state) {
  return { applied: 'good', staged: 'busy', working: 'busy', elsewhere: 'warn', refused: 'bad' }[state];
}

/** Policy, route or instance of a decision. */
function subjectOf(value) {
  return value?.policy ?? value?.route ?? value?.name ?? '';
}
