// Changes of the router, with their cause and result.

import { Empty } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { dateTime } from '../../format.js';
import { html } from '../../html.js';

const COLUMNS = [
  { name: 'Time', isHead: true, cell: ({ at }) => dateTime(at) },
  { name: 'Change', cell: ({ kind }) => html`<code>${kind}</code>` },
  { name: 'What', cell: ({ summary }) => summary },
  { name: 'Cause', cell: ({ cause, by }) => (by ? `${cause}, ${by}` : cause), hides: true },
  { name: 'Result', cell: ({ result }) => html`<${State} state=${result} />` },
  { name: 'Generation', number: true, hides: true, cell: ({ generation }) => generation },
];

export function ChangeList({ changes }) {
  if (changes.length === 0) return html`<${Empty}>Nothing changed since the start.<//>`;
  return html`<${Table} caption="Changes" columns=${COLUMNS} rows=${changes} keyOf=${({ id }) => id} />`;
}
