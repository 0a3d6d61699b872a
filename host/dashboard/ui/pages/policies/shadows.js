// Shadow policy: its agreement rate with the active policy, and its different decisions.

import { address } from '../../api.js';
import { Stack } from '../../components/bars.js';
import { Table } from '../../components/table.js';
import { count, number, percent, seconds, time } from '../../format.js';
import { html } from '../../html.js';
import { Link } from '../../router.js';

/** Number of shown disagreements. */
const SHOWN = 8;

const COLUMNS = [
  { name: 'Time', cell: ({ at_unix_ms }) => time(at_unix_ms / 1e3) },
  {
    name: 'Request',
    isHead: true,
    cell: ({ request }) => html`<${Link} to=${address(['ui', 'requests', request])} class="id">${request}<//>`,
  },
  { name: 'Active', cell: ({ active }) => html`<${Pick} pick=${active} />` },
  { name: 'Shadow', cell: ({ shadow }) => html`<${Pick} pick=${shadow} />` },
];

export function ShadowCard({ shadow }) {
  const { decisions, dropped, disagreements } = shadow;
  const results = Object.entries(decisions).filter(([, made]) => made > 0);
  const total = results.reduce((sum, [, made]) => sum + made, 0);
  return html`
    <article class="card">
      <div class="card-head"><h3>${shadow.policy}</h3>
        <span class="muted">pool ${shadow.pool}, route ${shadow.route_number}, <code>${shadow.route}</code>, version <code>${shadow.version}</code></span></div>
      <p>
        <strong>${total > 0 ? percent((decisions.agreed ?? 0) / total) : 'No decision yet'}</strong>
        ${total > 0 && ` of ${count(total)} decisions agree with the active policy.`}
        ${dropped > 0 && html` <span class="muted">${count(dropped)} were dropped, since the queue was full.</span>`}
      </p>
      ${total > 0 && html`<${Stack} parts=${results} format=${count} />`}
      <${Comparison} shadow=${shadow} />
      ${
        disagreements.length > 0 &&
        html`
        <${Table} caption="Latest disagreements" isCaptionShown columns=${COLUMNS}
          rows=${disagreements.slice(-SHOWN).reverse()} keyOf=${({ request, at_unix_ms }) => `${request}/${at_unix_ms}`} />`
      }
    </article>`;
}

/** Sums over the decisions in which both policies chose a worker. */
function Comparison({ shadow }) {
  const { matched_tokens: matched, tokens_ahead: ahead, predicted_ttft: predicted, decision_us } = shadow;
  const rows = [
    ['Matched tokens, sum', number(matched.active), number(matched.shadow)],
    ['Tokens ahead, sum', number(ahead.active), number(ahead.shadow)],
    predicted && ['Predicted TTFT, mean', seconds(predicted.active_ms / 1e3), seconds(predicted.shadow_ms / 1e3)],
    decision_us && ['Time of a decision', '', seconds(decision_us / 1e6)],
  ].filter(Boolean);
  const columns = [
    { name: 'Figure', isHead: true, cell: ([name]) => name },
    { name: 'Active', number: true, cell: ([, active]) => active },
    { name: 'Shadow', number: true, cell: ([, , ofShadow]) => ofShadow },
  ];
  return html`<${Table} caption="Both policies" columns=${columns} rows=${rows} keyOf=${([name]) => name} />`;
}

function Pick({ pick }) {
  return html`${pick.worker}<span class="sub">${count(pick.matched_tokens)} matched, ${count(pick.tokens_ahead)} ahead</span>`;
}
