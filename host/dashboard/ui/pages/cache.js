// Cache page: cached share of a prompt at each worker, hottest prefixes, and the funnel of cache reuse.

import { Stack } from '../components/bars.js';
import { Chart } from '../components/chart.js';
import { Empty, PageHead, Pending, Section } from '../components/layout.js';
import { Table } from '../components/table.js';
import { count, number, percent } from '../format.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { useResource } from '../resource.js';
import { Funnel } from './cache/funnel.js';
import { Lookup } from './cache/lookup.js';

const REFRESH_MS = 5000;

const PREFIX_COLUMNS = [
  {
    name: 'Prefix',
    isHead: true,
    hint: 'Hash of its blocks: the index holds no text',
    cell: ({ prefix }) => html`<code>${prefix}</code>`,
  },
  { name: 'Pool', cell: ({ pool }) => pool },
  {
    name: 'Depth',
    number: true,
    hint: 'Tokens from the beginning of the prompt',
    cell: ({ depth_tokens }) => `${count(depth_tokens)} tokens`,
  },
  {
    name: 'Continuations',
    number: true,
    hint: 'Different blocks that follow it: the measure of popularity',
    cell: ({ continuations }) => count(continuations),
  },
  { name: 'Workers', cell: ({ workers }) => workers.join(', ') },
];

const WORKER_COLUMNS = [
  { name: 'Worker', isHead: true, cell: ({ worker }) => worker },
  { name: 'Pool', cell: ({ pool }) => pool },
  { name: 'Blocks', number: true, cell: ({ blocks }) => count(blocks) },
  {
    name: 'Tiers',
    cell: ({ tiers }) =>
      html`<${Stack} parts=${Object.entries(tiers).filter(([, blocks]) => blocks > 0)} format=${number} />`,
  },
];

export function CachePage() {
  const index = useResource('/admin/index', { everyMs: REFRESH_MS });
  const { history } = useLive();
  const { data } = index;
  return html`
    <${PageHead} title="Cache" about=${data && `The prefix index holds ${count(data.blocks)} blocks.`} />
    <${Section} title="Look up a prompt"
      about="Shows how much of it each worker has cached. The prompt is tokenised by the router, and neither kept nor logged.">
      <${Lookup} />
    <//>
    <${Section} title="Cached share of prompts, over time">
      <div class="charts">
        ${Object.entries(history.pools).map(
          ([pool, figures]) => html`
          <${Chart} key=${pool} title=${`Pool ${pool}`} at=${history.at} format=${percent}
            series=${[{ name: 'cached', values: figures.hit_ratio ?? [] }]} />`,
        )}
      </div>
    <//>
    <${Pending} resource=${index} what="the index" />
    ${
      data &&
      html`
      <${Section} title="Reuse" about="Prompt tokens since the start: what there was to reuse, and what became of it.">
        ${Object.entries(data.funnel).map(([pool, funnel]) => html`<${Funnel} key=${pool} pool=${pool} funnel=${funnel} />`)}
      <//>
      <${Section} title="Hottest prefixes">
        ${
          data.hottest.length === 0
            ? html`<${Empty}>No prefix is shared by requests yet.<//>`
            : html`<${Table} caption="Hottest prefixes" columns=${PREFIX_COLUMNS} rows=${data.hottest}
              keyOf=${({ pool, prefix }) => `${pool}/${prefix}`} />`
        }
      <//>
      <${Section} title="Workers">
        ${
          data.workers.length === 0
            ? html`<${Empty}>No worker publishes KV events.<//>`
            : html`<${Table} caption="Blocks by worker" columns=${WORKER_COLUMNS} rows=${data.workers}
              keyOf=${({ pool, worker }) => `${pool}/${worker}`} />`
        }
      <//>`
    }`;
}
