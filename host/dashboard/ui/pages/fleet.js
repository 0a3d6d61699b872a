// Fleet page: pools and workers with their health, load and data age.

import { Empty, Figures, Notice, PageHead, Section } from '../components/layout.js';
import { State } from '../components/state.js';
import { number, percent, plural, seconds } from '../format.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { useQuery } from '../router.js';
import { ChangeList } from './fleet/changes.js';
import { PoolCharts } from './fleet/charts.js';
import { WorkerTable } from './fleet/workers.js';

export function FleetPage() {
  const { fleet, history, changes, error } = useLive();
  const [query, setQuery] = useQuery();
  if (!fleet) {
    return html`<${PageHead} title="Fleet" />
      ${
        error
          ? html`<${Notice} kind="bad">The live stream failed: ${error.message}<//>`
          : html`<p class="muted">Connecting to the router…</p>`
      }`;
  }
  const pool = fleet.pools.find(({ name }) => name === query.pool) ?? fleet.pools[0];
  const workers = fleet.workers.filter((worker) => worker.pool === pool?.name);
  return html`
    <${PageHead} title="Fleet" about=${summary(fleet)}>
      <${State} state=${fleet.ready ? 'ready' : 'not-ready'} />
    <//>
    ${
      fleet.pools.length > 1 &&
      html`
      <${PoolChoice} pools=${fleet.pools} chosen=${pool.name} onChoose=${(name) => setQuery({ pool: name })} />`
    }
    ${
      !pool
        ? html`<${Empty}>The configuration has no pool.<//>`
        : html`
      <${PoolFigures} rates=${pool.rates} />
      <${PoolCharts} pool=${pool.name} history=${history} changes=${changes} />
      <${Section} title="Workers">
        <${WorkerTable} pool=${pool.name} workers=${workers} history=${history} />
      <//>`
    }
    <${Section} title="Changes" about="What changed the router, newest first. Charts have a dashed line at each.">
      <${ChangeList} changes=${changes.slice(0, 12)} />
    <//>`;
}

function summary({ workers }) {
  const serving = workers.filter(({ state }) => state === 'ok' || state === 'returning').length;
  return `${plural(workers.length, 'worker')}, ${serving} in service`;
}

function PoolChoice({ pools, chosen, onChoose }) {
  return html`
    <div class="choices" role="group" aria-label="Pool">
      ${pools.map(
        ({ name }) => html`
        <button key=${name} type="button" aria-pressed=${name === chosen} onClick=${() => onChoose(name)}>${name}</button>`,
      )}
    </div>`;
}

function PoolFigures({ rates }) {
  return html`<${Figures} figures=${[
    ['Requests', `${number(rates.requests_per_s)} /s`, 'Requests that ended in the last second'],
    ['Output tokens', `${number(rates.tokens_per_s)} /s`, 'Tokens written by the workers'],
    ['Errors', `${number(rates.errors_per_s)} /s`, 'Failures that are not the client’s'],
    ['TTFT', seconds(rates.ttft_s), 'Mean time to first token of streamed answers'],
    ['TPOT', seconds(rates.tpot_s), 'Mean time per output token'],
    ['Queue', number(rates.queue_waiting), 'Requests that wait for a worker'],
    ['In flight', number(rates.in_flight), 'Requests at workers'],
    ['Cached', percent(rates.hit_ratio), 'Share of the prompt tokens that workers had cached'],
  ]} />`;
}
