// Figures of a simulation: a row for each figure, a column for each policy, and the better policy.

import { Share } from '../../components/bars.js';
import { Notice } from '../../components/layout.js';
import { Table } from '../../components/table.js';
import { change, count, number, percent, seconds } from '../../format.js';
import { html } from '../../html.js';

/** Figures: name, format, true if less is better (null for neither), and the value of a row. */
const FIGURES = [
  ['Time to first token, mean', seconds, true, (row) => row['ttft-s'].mean],
  ['Time to first token, p50', seconds, true, (row) => row['ttft-s'].p50],
  ['Time to first token, p90', seconds, true, (row) => row['ttft-s'].p90],
  ['Time to first token, p99', seconds, true, (row) => row['ttft-s'].p99],
  ['Longest times between tokens, p50', fromMilliseconds, true, (row) => row['tbt-ms'].p50],
  ['Longest times between tokens, p99', fromMilliseconds, true, (row) => row['tbt-ms'].p99],
  ['Cached share of prompt tokens', percent, false, (row) => row['token-hit-ratio']],
  ['Served within both limits', percent, false, (row) => row.effective],
  ['Such requests a second', number, false, (row) => row['goodput-per-s']],
  ['Most loaded worker over the mean', number, true, (row) => row.imbalance],
  ['Served', count, false, (row) => row.served],
  ['Rejected', count, true, (row) => row.rejected],
  ['Lost', count, true, (row) => row.lost],
  ['Decisions of the fallback', count, true, (row) => row.fallbacks],
];

function fromMilliseconds(value) {
  return seconds(typeof value === 'number' ? value / 1e3 : null);
}

export function SimulationResult({ result }) {
  const [first, ...others] = result.rows;
  if (!first) return html`<${Notice} kind="warn">The simulation made no run.<//>`;
  const known = FIGURES.filter(([, , , of]) => result.rows.some((row) => Number.isFinite(of(row))));
  const columns = [
    { name: 'Figure', isHead: true, cell: ([name]) => name },
    { name: first.policy, number: true, cell: ([, format, , of]) => format(of(first)) },
    ...others.flatMap((row) => [
      { name: row.policy, number: true, cell: ([, format, , of]) => format(of(row)) },
      {
        name: `Difference of ${row.policy}`,
        number: true,
        cell: (figure) => html`<${Difference} figure=${figure} first=${first} other=${row} />`,
      },
    ]),
  ];
  return html`
    ${result.rows
      .filter(({ fault }) => fault)
      .map(
        ({ policy, fault }) => html`
      <${Notice} key=${policy} kind="bad"><strong>${policy}</strong> failed, and its figures are not valid: ${fault}<//>`,
      )}
    ${(result.comparisons ?? []).map((comparison) => html`<${Verdict} key=${comparison.policy} comparison=${comparison} />`)}
    <${Table} caption="Figures of the policies" columns=${columns} rows=${known} keyOf=${([name]) => name} />
    <p class="muted">
      ${count(first.requests)} requests on ${count(result.workers)} workers. The figures come from a model of the workers:
      compare them with each other, not with a clock.
    </p>`;
}

/** Difference of a figure, with a word and a sign for better or worse. */
function Difference({ figure, first, other }) {
  const [, , isLessBetter, of] = figure;
  const [before, after] = [of(first), of(other)];
  if (!Number.isFinite(before) || !Number.isFinite(after) || before === 0) return '';
  const difference = (after - before) / Math.abs(before);
  if (Math.abs(difference) < 0.0005) return html`<span class="muted">same</span>`;
  const isBetter = difference < 0 === isLessBetter;
  return html`<span class=${isBetter ? 'text-good' : 'text-bad'}>${change(difference)} ${isBetter ? 'better' : 'worse'}</span>`;
}

/** Comparison by pairs of requests, in the same words as the output of `conductor simulate`. */
function Verdict({ comparison }) {
  const { words, paired, policy, baseline } = comparison;
  return html`
    <div class="card">
      <p>${words}</p>
      <ul class="shortages">
        <li><${Share} value=${paired.faster.mean} /><span>of the requests are faster with ${policy} than with ${baseline}</span></li>
        <li><${Share} value=${paired.slower.mean} /><span>are slower</span></li>
      </ul>
    </div>`;
}
