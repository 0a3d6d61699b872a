// Live state of the router for all pages of the tab, from one stream of server-sent events with updates each second.
//
// The stream is open only while the tab is visible and not paused. After each connection the first event of a topic is
// complete, so the client needs no earlier events.

import { read } from './api.js';
import { onKeyChange } from './key.js';
import { readEvents } from './stream.js';
import { useEffect, useState } from './vendor/hooks.js';

const STREAM = '/admin/stream?topics=fleet,requests,changes';
const RETRY_MS = 2000;
const KEPT_SAMPLES = 600;
/** Number of samples of a worker (two minutes), for the sparklines of the table. */
const KEPT_WORKER_SAMPLES = 120;
const KEPT_REQUESTS = 200;
const KEPT_CHANGES = 256;

/** Keys of a pool's figures in the events and in the history. */
const FIGURES = [
  'requests_per_s',
  'tokens_per_s',
  'errors_per_s',
  'ttft_s',
  'tpot_s',
  'queue_waiting',
  'in_flight',
  'hit_ratio',
];

/** Keys of a worker's figures over time. */
const WORKER_FIGURES = ['in_flight', 'tokens_per_s'];

const state = {
  /** `connecting`, `live`, `paused`, `hidden`, or `lost` with the error. */
  status: 'connecting',
  error: null,
  fleet: null,
  history: { at: [], pools: {}, workers: {} },
  requests: [],
  changes: [],
};

const listeners = new Set();
let connection = null;
let isPaused = false;

function notify() {
  for (const listener of listeners) listener();
}

function setStatus(status, error = null) {
  Object.assign(state, { status, error });
  notify();
}

/** Starts the event stream. */
export function startLive() {
  document.addEventListener('visibilitychange', update);
  onKeyChange(() => {
    disconnect();
    update();
  });
  update();
}

/** Pauses or resumes the updates. */
export function setPaused(paused) {
  isPaused = paused;
  update();
}

/** Returns false while the tab is hidden or paused. The dashboard then sends only requests that the user starts. */
export function isUpdating() {
  return !isPaused && document.visibilityState === 'visible';
}

function update() {
  if (isUpdating()) {
    if (!connection) connect();
  } else {
    disconnect();
    setStatus(isPaused ? 'paused' : 'hidden');
  }
}

function disconnect() {
  connection?.abort();
  connection = null;
}

async function connect() {
  const own = new AbortController();
  connection = own;
  setStatus('connecting');
  try {
    state.history = newestOfWorkers(await read('/admin/history', own.signal));
    // Discards the old entries, since the numbers of requests and changes start at 1 after a restart of the router. The
    // first event of a topic is complete.
    state.requests = [];
    state.changes = [];
    await readEvents(STREAM, take, own.signal);
    setStatus('lost');
  } catch (error) {
    if (own.signal.aborted) return;
    setStatus('lost', error);
  }
  // Every attempt without the key would fail too. The next attempt follows a change of the key.
  if (state.error?.needsKey) return;
  setTimeout(() => {
    if (connection !== own) return;
    connection = null;
    update();
  }, RETRY_MS);
}

function take(topic, data) {
  if (topic === 'fleet') takeFleet(data);
  else if (topic === 'requests') takeRequests(data.requests);
  else if (topic === 'changes') state.changes = latest(data.changes, state.changes, KEPT_CHANGES);
  setStatus('live');
}

/** Merges an event of the topic `fleet`. A partial event has only the workers that changed. */
function takeFleet(event) {
  const before = event.full ? [] : (state.fleet?.workers ?? []);
  const workers = new Map(before.map((worker) => [workerKey(worker), worker]));
  for (const worker of event.workers) workers.set(workerKey(worker), worker);
  for (const gone of event.gone ?? []) {
    workers.delete(gone);
  }
  state.fleet = { ...event, workers: [...workers.values()] };
  appendSample(event);
}

export function workerKey(worker) {
  return `${worker.pool}/${worker.name}`;
}

/** Returns the history with only the newest samples of each worker. */
function newestOfWorkers(history) {
  const workers = {};
  for (const [key, series] of Object.entries(history.workers)) {
    const figures = WORKER_FIGURES.map((figure) => [figure, (series[figure] ?? []).slice(-KEPT_WORKER_SAMPLES)]);
    workers[key] = Object.fromEntries(figures);
  }
  return { ...history, workers };
}

/** Returns the series of the workers with their current figures appended. */
function appendWorkers(before) {
  const workers = {};
  for (const worker of state.fleet.workers) {
    const key = workerKey(worker);
    const series = {};
    for (const figure of WORKER_FIGURES) {
      series[figure] = [...(before[key]?.[figure] ?? []), worker[figure]].slice(-KEPT_WORKER_SAMPLES);
    }
    workers[key] = series;
  }
  return workers;
}

function appendSample(event) {
  const { at, pools } = state.history;
  if (at.length > 0 && event.at <= at.at(-1)) return;
  const length = at.length;
  const rates = new Map(event.pools.map((pool) => [pool.name, pool.rates]));
  const history = { ...state.history, at: [...at, event.at].slice(-KEPT_SAMPLES), pools: {} };
  for (const name of rates.keys()) {
    const series = {};
    for (const figure of FIGURES) {
      const earlier = pools[name]?.[figure] ?? new Array(length).fill(null);
      series[figure] = [...earlier, rates.get(name)?.[figure] ?? null].slice(-KEPT_SAMPLES);
    }
    history.pools[name] = series;
  }
  history.workers = appendWorkers(state.history.workers);
  state.history = history;
}

/** Merges an event of the topic `requests`. The newest report of a request replaces its earlier reports. */
function takeRequests(rows) {
  const bySeq = new Map(state.requests.map((row) => [row.seq, row]));
  for (const row of rows) bySeq.set(row.seq, row);
  state.requests = [...bySeq.values()].sort((a, b) => b.seq - a.seq).slice(0, KEPT_REQUESTS);
}

/** Returns the newest entries of both lists by id, newest first. */
function latest(added, kept, limit) {
  const byId = new Map([...kept, ...added].map((entry) => [entry.id, entry]));
  return [...byId.values()].sort((a, b) => b.id - a.id).slice(0, limit);
}

/** Returns the live state. Each event renders the component again. */
export function useLive() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((drawn) => drawn + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}
