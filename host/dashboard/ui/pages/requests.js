// Requests page: requests in flight, and recent requests with their outcome, duration and worker.

import { address } from '../api.js';
import { Choice, TextField } from '../components/form.js';
import { Empty, PageHead, Pending } from '../components/layout.js';
import { Outcome } from '../components/state.js';
import { Table } from '../components/table.js';
import { count, dateTime, percent, plural, seconds, UNKNOWN } from '../format.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { useResource } from '../resource.js';
import { Link, useQuery } from '../router.js';
import { useEffect, useMemo } from '../vendor/hooks.js';

const LIMIT = 100;
const REFRESH_MS = 5000;
/** Filters by their names in the query of the address. */
const FILTERS = ['pool', 'worker', 'policy', 'outcome', 'model', 'q', 'slower_s'];
const OUTCOMES = [
  'open', 'complete', 'client-left', 'rejected', 'rejected-early', 'shed', 'queue-full', 'queue-timeout',
  'bodies-full', 'limited', 'invalid', 'unauthorized', 'unreachable', 'upstream-error', 'first-byte-timeout',
  'idle-timeout', 'request-timeout', 'shut-down',
];

const COLUMNS = [
  { name: 'Time', cell: ({ at }) => dateTime(at) },
  {
    name: 'Request',
    isHead: true,
    cell: ({ id }) => html`<${Link} to=${address(['ui', 'requests', id])} class="id">${id}<//>`,
  },
  { name: 'Outcome', cell: (row) => html`<${Outcome} row=${row} />` },
  { name: 'Status', number: true, cell: ({ status }) => status ?? UNKNOWN },
  { name: 'Model', hides: true, cell: ({ model, path }) => html`<span title=${path}>${model || UNKNOWN}</span>` },
  { name: 'Worker', cell: (row) => html`<${Placement} row=${row} />` },
  { name: 'Policy', cell: (row) => html`<${Decider} row=${row} />` },
  { name: 'TTFT', number: true, cell: ({ ttft_s }) => seconds(ttft_s) },
  { name: 'Duration', number: true, cell: ({ duration_s }) => seconds(duration_s) },
  { name: 'Prompt', number: true, hint: 'Tokens of the prompt', cell: ({ prompt_tokens }) => count(prompt_tokens) },
  { name: 'Cached', number: true, hint: 'Share of the prompt that the worker had cached', cell: cachedShare },
  {
    name: 'Output',
    number: true,
    hides: true,
    hint: 'Tokens of the answer',
    cell: ({ output_tokens }) => count(output_tokens),
  },
];

export function RequestsPage() {
  const [query, setQuery] = useQuery();
  const { requests, status } = useLive();
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query[name]]));
  const isTail = query.tail !== 'off';
  // Only the page /admin/requests has the end of a request that is older than all live rows.
  const page = useResource(address(['admin', 'requests'], { ...filters, limit: LIMIT }), {
    everyMs: isTail ? REFRESH_MS : 0,
  });
  const rows = useMemo(
    () =>
      isTail ? merged(page.data?.requests ?? [], requests, (row) => fits(row, filters)) : (page.data?.requests ?? []),
    [page.data, isTail && requests, JSON.stringify(filters)],
  );
  useEffect(() => {
    // After a pause, rows from between the last read and the new events are in neither list. The page has them.
    if (status === 'live') page.reload();
  }, [status]);

  return html`
    <${PageHead} title="Requests" about="The latest requests, newest first. Prompts are never kept.">
      <button type="button" aria-pressed=${isTail} onClick=${() => setQuery({ tail: isTail ? 'off' : '' })}>Follow</button>
    <//>
    <${Filters} query=${query} setQuery=${setQuery} rows=${rows} />
    <p class="muted" aria-live="polite">
      ${plural(rows.length, 'request')}${page.data && ` of ${count(page.data.kept)} kept`}
    </p>
    ${page.error && html`<${Pending} resource=${page} what="the requests" />`}
    ${
      rows.length === 0
        ? html`<${Empty}>No kept request fits. <code>explain</code> in [record] is the number of requests that are kept.<//>`
        : html`<${Table} caption="Requests" columns=${COLUMNS} rows=${rows} keyOf=${({ seq }) => seq}
          classOf=${(row) => (row.outcome === null ? 'is-open' : '')} />`
    }`;
}

function Filters({ query, setQuery, rows }) {
  const { fleet } = useLive();
  const set = (name) => (value) => setQuery({ [name]: value });
  const seen = (name) => [...new Set([...rows.map((row) => row[name]), query[name]].filter(Boolean))].sort();
  const pools = fleet?.pools.map(({ name }) => name) ?? [];
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${
        pools.length > 1 &&
        html`
        <${Choice} label="Pool" any="any" value=${query.pool} choices=${pools} onChange=${set('pool')} />`
      }
      <${Choice} label="Worker" any="any" value=${query.worker} choices=${seen('worker')} onChange=${set('worker')} />
      <${Choice} label="Policy" any="any" value=${query.policy} choices=${seen('policy')} onChange=${set('policy')} />
      <${Choice} label="Outcome" any="any" value=${query.outcome} choices=${OUTCOMES} onChange=${set('outcome')} />
      <${Choice} label="Model" any="any" value=${query.model} choices=${seen('model')} onChange=${set('model')} />
      <${TextField} label="Part of the id" value=${query.q} onChange=${set('q')} />
      <${TextField} label="Slower than (s)" inputmode="decimal" size="6" value=${query.slower_s} onChange=${set('slower_s')} />
    </form>`;
}

/**
 * Returns the newest matching rows of both lists. A live row replaces the page's row of the same request, unless only
 * the page's row has ended.
 */
function merged(kept, live, isFitting) {
  const bySeq = new Map(kept.map((row) => [row.seq, row]));
  for (const row of live) {
    if (row.outcome !== null || (bySeq.get(row.seq)?.outcome ?? null) === null) bySeq.set(row.seq, row);
  }
  // An open row of the page may have ended since the read, so that it no longer matches.
  return [...bySeq.values()]
    .filter(isFitting)
    .sort((a, b) => b.seq - a.seq)
    .slice(0, LIMIT);
}

/** Returns true if a row passes the filters, as the page /admin/requests applies them. */
function fits(row, { q, slower_s, worker, outcome, ...exact }) {
  const isEqual = ([name, value]) => !value || row[name] === value;
  return (
    Object.entries(exact).every(isEqual) &&
    (!outcome || (row.outcome ?? 'open') === outcome) &&
    (!worker || row.worker === worker || row.prefill_worker === worker) &&
    (!q || row.id.includes(q)) &&
    (!slower_s || (row.duration_s ?? -1) >= Number(slower_s))
  );
}

function Placement({ row }) {
  if (!row.worker) return UNKNOWN;
  return html`${row.worker}${row.prefill_worker && html`<span class="sub">prefill ${row.prefill_worker}</span>`}`;
}

function Decider({ row }) {
  const about = row.fallback ? 'no policy decided' : row.version;
  return html`<span title=${about}>${row.policy}</span>
    ${row.fallback && html`<span class="tag tag-warn">fallback</span>`}
    ${row.calls > 1 && html`<span class="tag" title="Decisions for this request">${row.calls} calls</span>`}`;
}

function cachedShare({ prompt_tokens, cached_tokens }) {
  return prompt_tokens > 0 && cached_tokens !== null ? percent(cached_tokens / prompt_tokens) : UNKNOWN;
}
