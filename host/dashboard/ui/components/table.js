// Tables with a caption and scoped headers. Rows have keys, so that an update does not move the focus.

import { html } from '../html.js';

/**
 * Table. A column has `name` and `cell(row)`, and optionally `number` (right-aligned), `isHead` (row header), `hint`
 * (tooltip) and `hides` (hidden on narrow screens).
 */
export function Table({ caption, columns, rows, keyOf, classOf, isCaptionShown = false }) {
  return html`
    <div class="table-scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class=${isCaptionShown ? '' : 'visually-hidden'}>${caption}</caption>
        <thead>
          <tr>
            ${columns.map(
              (column) => html`
              <th key=${column.name} scope="col" class=${cellClass(column)} title=${column.hint}>${column.name}</th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) => html`
            <tr key=${keyOf(row)} class=${classOf?.(row)}>
              ${columns.map((column) => html`<${Cell} key=${column.name} column=${column} row=${row} />`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>`;
}

function Cell({ column, row }) {
  const content = column.cell(row);
  return column.isHead
    ? html`<th scope="row" class=${cellClass(column)}>${content}</th>`
    : html`<td class=${cellClass(column)}>${content}</td>`;
}

function cellClass({ number, hides }) {
  return [number && 'number', hides && 'hides'].filter(Boolean).join(' ');
}
