// Problems of a configuration with their positions.

import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { html } from '../../html.js';

/** Table of problems. With `onSelect` a position is a button that moves the cursor there. */
export function Problems({ problems, caption, onSelect }) {
  if (problems.length === 0) return null;
  const place = (problem) => `${problem.line}:${problem.column}`;
  const columns = [
    {
      name: 'Place',
      isHead: true,
      cell: (problem) =>
        onSelect
          ? html`<button type="button" class="quiet" aria-label=${`Line ${problem.line}, column ${problem.column}`}
          onClick=${() => onSelect(problem)}>${place(problem)}</button>`
          : place(problem),
    },
    {
      name: 'Severity',
      cell: ({ severity }) => html`<${State} state=${severity} kind=${severity === 'error' ? 'bad' : 'warn'} />`,
    },
    { name: 'Problem', cell: ({ message, help }) => html`${message}${help && html`<span class="sub">${help}</span>`}` },
    { name: 'Code', hides: true, cell: ({ code }) => html`<code>${code}</code>` },
  ];
  return html`<${Table} caption=${caption} isCaptionShown columns=${columns} rows=${problems}
    keyOf=${(problem) => `${place(problem)}/${problem.code}/${problem.message}`} />`;
}
