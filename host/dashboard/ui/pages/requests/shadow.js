// Choices of shadows for a request that differ from the active policy's choice.

import { Empty, Pending } from '../../components/layout.js';
import { Table } from '../../components/table.js';
import { count, seconds } from '../../format.js';
import { html } from '../../html.js';
import { useResource } from '../../resource.js';

const COLUMNS = [
  { name: 'Policy', isHead: true, cell: ({ policy }) => policy },
  { name: 'Choice', cell: ({ pick }) => pick.worker },
  { name: 'Matched tokens', number: true, cell: ({ pick }) => count(pick.matched_tokens) },
  { name: 'Tokens ahead', number: true, cell: ({ pick }) => count(pick.tokens_ahead) },
  { name: 'Predicted TTFT', number: true, cell: ({ pick }) => seconds(predicted(pick)) },
  { name: 'In flight', number: true, cell: ({ pick }) => count(pick.requests) },
];

export function ShadowChoice({ id }) {
  const trials = useResource('/admin/trials');
  if (!trials.data) return html`<${Pending} resource=${trials} what="the shadows" />`;
  const { shadows } = trials.data;
  const found = shadows.flatMap((shadow) => rowsOf(shadow, id));
  if (found.length > 0) {
    return html`<${Table} caption="Choices" columns=${COLUMNS} rows=${found} keyOf=${({ policy }) => policy} />`;
  }
  return shadows.length === 0
    ? html`<${Empty}>No route has a shadow.<//>`
    : html`<${Empty}>No shadow disagreed on this request, as far as the last disagreements of each are kept.<//>`;
}

function rowsOf(shadow, id) {
  const disagreement = shadow.disagreements.find(({ request }) => request === id);
  if (!disagreement) return [];
  return [
    { policy: `${shadow.policy} (shadow)`, pick: disagreement.shadow },
    { policy: 'the active policy', pick: disagreement.active },
  ];
}

function predicted({ predicted_ttft_ms }) {
  return predicted_ttft_ms === null ? null : predicted_ttft_ms / 1e3;
}
