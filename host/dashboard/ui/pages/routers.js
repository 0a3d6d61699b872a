// Routers page: routers of the fleet with their state, delay and configuration, and their agreed decisions.

import { Empty, Facts, Notice, PageHead, Pending, Section } from '../components/layout.js';
import { State } from '../components/state.js';
import { Table } from '../components/table.js';
import { count, plural, seconds, short } from '../format.js';
import { html } from '../html.js';
import { useResource } from '../resource.js';
import { Decisions } from './routers/decisions.js';

const REFRESH_MS = 2000;

const COLUMNS = [
  { name: 'Router', isHead: true, cell: nameOf },
  { name: 'State', cell: ({ state }) => html`<${State} state=${state} kind=${state === 'silent' ? 'bad' : undefined} />` },
  { name: 'Requests', number: true, hint: 'Its requests in flight that count here', cell: ({ requests }) => count(requests) },
  {
    name: 'Last heard',
    number: true,
    hint: 'Time since its newest message was sent',
    cell: (row) => (row.isOwn ? '' : seconds(row['silence-ms'] / 1e3)),
  },
  {
    name: 'Delay',
    number: true,
    hint: 'Delay of its newest message',
    cell: (row) => (row.isOwn ? '' : seconds(row['delay-ms'] / 1e3)),
  },
  { name: 'Configuration', hint: 'Compared with this router, without its addresses and name', cell: configurationOf },
  { name: 'Index', hides: true, hint: 'Fill of its prefix index at its start', cell: fillOf },
  { name: 'Version', hides: true, cell: ({ version }) => version },
];

export function RoutersPage() {
  const replicas = useResource('/admin/replicas', { everyMs: REFRESH_MS });
  const { data } = replicas;
  return html`
    <${PageHead} title="Routers" about=${data?.own && summary(data)}>
      ${data?.sharing && html`<${State} state=${data.connected ? 'connected' : 'not connected'} kind=${data.connected ? 'good' : 'bad'} />`}
    <//>
    <${Pending} resource=${replicas} what="the routers" />
    ${data && !data.sharing && html`<${Empty}>This router serves alone: its configuration has no [replicas].<//>`}
    ${data?.own && html`<${Fleet} page=${data} />`}`;
}

function Fleet({ page }) {
  const rows = [{ ...page.own, isOwn: true }, ...page.others];
  const differing = page.others.filter(differs);
  return html`
    ${!page.connected && html`<${Notice} kind="bad">The bus is away. The loads of the others fade, and this router serves alone.<//>`}
    ${
      differing.length > 0 &&
      html`<${Notice} kind="warn">The configuration differs at ${differing.map(nameOf).join(', ')}.<//>`
    }
    <${Section} title="Members">
      <${Table} caption="Routers of the fleet" columns=${COLUMNS} rows=${rows} keyOf=${({ router }) => router} />
    <//>
    ${page.agreement && html`<${Agreement} agreement=${page.agreement} rows=${rows} />`}`;
}

function Agreement({ agreement, rows }) {
  return html`
    <${Section} title="Decisions" about="Rollbacks, canaries, routes and instances that all routers follow.">
      <${Facts} facts=${[
        ['Store', html`<${State} state=${agreement.synced ? 'ready' : 'away'} kind=${agreement.synced ? 'good' : 'bad'} />`],
        ['Reason', agreement.problem],
        ['Not stored yet', agreement.proposals > 0 ? count(agreement.proposals) : null],
      ]} />
      <${Decisions} entries=${agreement.entries} names=${new Map(rows.map((row) => [row.router, nameOf(row)]))} />
    <//>`;
}

function summary({ fleet, others }) {
  const silent = others.filter(({ state }) => state === 'silent').length;
  const all = `Fleet ${fleet}: ${plural(others.length + 1, 'router')}`;
  return silent > 0 ? `${all}, ${silent} silent` : all;
}

function nameOf({ name, router, isOwn }) {
  const shown = name ?? short(router);
  return isOwn ? `${shown} (this one)` : shown;
}

function differs(row) {
  return row['same-config'] === false || row['same-fleet'] === false;
}

function fillOf({ fill }) {
  if (!fill) return '';
  const parts = [
    fill.unfilled > 0 && `${plural(fill.unfilled, 'feed')} not filled`,
    fill.incomplete > 0 && `older blocks of ${plural(fill.incomplete, 'feed')} unknown`,
    fill['from-routers'] > 0 && `${plural(fill['from-routers'], 'feed')} from another router`,
  ];
  const state = fill.state === 'timed-out' ? 'not filled in time' : fill.state;
  const kind = { filling: 'busy', filled: 'good', 'timed-out': 'warn' }[fill.state];
  return html`<${State} state=${state} kind=${kind} title=${parts.filter(Boolean).join(', ') || undefined} />`;
}

function configurationOf(row) {
  if (row.isOwn) return '';
  if (row['same-config'] === undefined || row['same-config'] === null) return html`<${State} state="unknown" />`;
  if (!differs(row)) return html`<${State} state="same" kind="good" />`;
  const workers = row['unknown-workers'];
  const title = workers > 0 ? `${plural(workers, 'worker')} that this router does not have` : undefined;
  return html`<${State} state=${row['same-fleet'] === false ? 'other workers' : 'differs'} kind="warn" title=${title} />`;
}
