// Charts of a pool over the last ten minutes.

import { Chart } from '../../components/chart.js';
import { number, percent, seconds } from '../../format.js';
import { html } from '../../html.js';
import { useMemo } from '../../vendor/hooks.js';

/** Charts: title, format of the values, and figures with their names. */
const CHARTS = [
  [
    'Requests per second',
    number,
    [
      ['requests', 'requests_per_s'],
      ['errors', 'errors_per_s'],
    ],
  ],
  ['Output tokens per second', number, [['tokens', 'tokens_per_s']]],
  ['Time to first token', seconds, [['TTFT', 'ttft_s']]],
  ['Time per output token', seconds, [['TPOT', 'tpot_s']]],
  [
    'In flight and queued',
    number,
    [
      ['in flight', 'in_flight'],
      ['queued', 'queue_waiting'],
    ],
  ],
  ['Cached share of prompts', percent, [['cached', 'hit_ratio']]],
];

export function PoolCharts({ pool, history, changes }) {
  const figures = history.pools[pool];
  const marks = useMemo(() => changes.map(({ at }) => at), [changes]);
  if (!figures || history.at.length === 0) return null;
  return html`
    <div class="charts">
      ${CHARTS.map(
        ([title, format, series]) => html`
        <${Chart} key=${`${pool}/${title}`} title=${title} at=${history.at} format=${format} marks=${marks}
          series=${series.map(([name, figure]) => ({ name, values: figures[figure] ?? [] }))} />`,
      )}
    </div>`;
}
