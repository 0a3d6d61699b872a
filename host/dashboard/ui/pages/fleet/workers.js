// Table of a pool's workers, with buttons that drain and resume them.

import { change } from '../../api.js';
import { Action } from '../../components/action.js';
import { Share } from '../../components/bars.js';
import { TextField } from '../../components/form.js';
import { Empty } from '../../components/layout.js';
import { Sparkline } from '../../components/sparkline.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { curl } from '../../command.js';
import { count, number, plural, seconds, UNKNOWN } from '../../format.js';
import { html } from '../../html.js';
import { workerKey } from '../../live.js';
import { Link, useQuery } from '../../router.js';

const COLUMNS = [
  { name: 'Worker', isHead: true, cell: (worker) => html`<${WorkerName} worker=${worker} />` },
  { name: 'Role', hides: true, cell: ({ role }) => role },
  { name: 'State', cell: ({ state, reason }) => html`<${WorkerState} state=${state} reason=${reason} />` },
  {
    name: 'In flight',
    number: true,
    hint: 'Requests of this router at the worker',
    cell: ({ in_flight }) => count(in_flight),
  },
  { name: 'Engine', number: true, hint: 'Requests that the engine reports as running + waiting', cell: engine },
  {
    name: 'KV use',
    hint: 'Share of the KV cache in use, as the engine reports it',
    cell: ({ kv_usage }) => html`<${Share} value=${kv_usage} />`,
  },
  { name: 'Requests/s', number: true, cell: ({ requests_per_s }) => number(requests_per_s) },
  { name: 'Tokens/s', number: true, cell: ({ tokens_per_s }) => number(tokens_per_s) },
  {
    name: 'Last 2 min',
    hides: true,
    hint: 'Tokens/s of the last two minutes',
    cell: ({ series }) => html`<${Sparkline} values=${series?.tokens_per_s ?? []} label="Tokens/s" format=${number} />`,
  },
  { name: 'TTFT', number: true, cell: ({ ttft_s }) => seconds(ttft_s) },
  { name: 'TPOT', number: true, hides: true, cell: ({ tpot_s }) => seconds(tpot_s) },
  { name: 'KV events', hint: 'State of the feed, and its lag', cell: ({ feed }) => html`<${Feed} feed=${feed} />` },
  {
    name: 'Blocks',
    number: true,
    hides: true,
    hint: 'Blocks of the worker in the prefix index',
    cell: ({ indexed_blocks }) => count(indexed_blocks),
  },
  { name: 'Change', cell: (worker) => html`<${DrainAction} worker=${worker} />` },
];

export function WorkerTable({ pool, workers, history }) {
  const [query, setQuery] = useQuery();
  const wanted = (query.worker ?? '').toLowerCase();
  const fits = ({ name, state, url }) => `${name} ${state} ${url}`.toLowerCase().includes(wanted);
  const shown = workers.filter(fits).map((worker) => ({ ...worker, series: history.workers[workerKey(worker)] }));
  return html`
    <div class="filters">
      <${TextField} label="Name, address or state" value=${query.worker} onChange=${(worker) => setQuery({ worker })} />
      <p class="muted" aria-live="polite">${plural(shown.length, 'worker')} of ${workers.length}</p>
    </div>
    ${
      shown.length === 0
        ? html`<${Empty}>No worker of the pool fits.<//>`
        : html`
      <${Table} caption=${`Workers of the pool ${pool}`} columns=${COLUMNS} rows=${shown} keyOf=${workerKey} />`
    }`;
}

function WorkerName({ worker }) {
  const to = `/ui/requests?${new URLSearchParams({ worker: worker.name })}`;
  return html`<${Link} to=${to} title="Requests of this worker">${worker.name}<//><span class="sub">${worker.url}</span>`;
}

function WorkerState({ state, reason }) {
  return html`<${State} state=${state} title=${reason} />${reason && html`<span class="sub reason">${reason}</span>`}`;
}

function engine({ running, waiting }) {
  return running === null ? UNKNOWN : `${count(running)} + ${count(waiting ?? 0)}`;
}

function Feed({ feed }) {
  if (!feed) return html`<span class="muted">none</span>`;
  const lag = feed.lag_s === null ? null : `${seconds(feed.lag_s)} behind`;
  const silence = feed.silent_for_s === null ? null : `silent for ${seconds(feed.silent_for_s)}`;
  const about = [lag, silence].filter(Boolean).join(', ');
  return html`<${State} state=${feed.state} title=${about} />`;
}

/** Button that drains a worker, or resumes a drained worker. */
function DrainAction({ worker }) {
  const { pool, name, draining } = worker;
  const verb = draining ? 'resume' : 'drain';
  const path = `/admin/workers/${verb}`;
  const effect = draining
    ? html`<strong>${name}</strong> gets new requests again.`
    : html`<strong>${name}</strong> gets no new requests. Its ${plural(worker.in_flight, 'request')} in flight end as
        usual, and it stays in the fleet.`;
  const run = async () => {
    await change(path, { pool, worker: name });
    return draining ? 'Resumed.' : 'Draining.';
  };
  return html`
    <${Action} label=${draining ? 'Resume' : 'Drain'} effect=${effect} run=${run} isDanger=${!draining}
      command=${curl('POST', path, { pool, worker: name })} />`;
}
