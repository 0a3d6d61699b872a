// States by word, shape and colour: each of the three alone is enough to tell them apart.

import { html } from '../html.js';

/** The states of the router's parts by what they mean for an operator. */
const KINDS = {
  good: [
    'ok',
    'closed',
    'active',
    'live',
    'applied',
    'complete',
    'no-worse',
    'better',
    'done',
    'passed',
    'control',
    'ready',
    'current',
    'up',
    'connected',
    'streaming',
  ],
  busy: [
    'pending',
    'returning',
    'half-open',
    'running',
    'undecided',
    'too-few',
    'compiling',
    'connecting',
    'open-request',
    'before',
    'loading',
    'replaying',
    'catching-up',
  ],
  warn: [
    'draining',
    'busy',
    'held-back',
    'stale',
    'queued',
    'rejected',
    'limited',
    'shed',
    'client-left',
    'silent',
    'paused',
  ],
  bad: ['ejected', 'unhealthy', 'open', 'stopped', 'worse', 'refused', 'failed', 'lost', 'down', 'fault', 'not-ready'],
};

const SHAPES = { good: '●', busy: '◐', warn: '▲', bad: '■', idle: '○' };

const kindOfState = new Map(Object.entries(KINDS).flatMap(([kind, states]) => states.map((state) => [state, kind])));

/** A state. `kind` overrides what its word means elsewhere; `title` is its reason. */
export function State({ state, kind, title }) {
  const shown = kind ?? kindOfState.get(state) ?? 'idle';
  return html`
    <span class=${`state state-${shown}`} title=${title}>
      <span class="state-shape" aria-hidden="true">${SHAPES[shown]}</span>${state}
    </span>`;
}

/** Returns what the outcome of a request means: all that is neither complete nor the client's doing is an error. */
export function kindOfOutcome(outcome) {
  if (outcome === null) return 'busy';
  return kindOfState.get(outcome) ?? (outcome === 'invalid' || outcome === 'unauthorized' ? 'warn' : 'bad');
}

/** The outcome of a request, or that it is still open. */
export function Outcome({ row }) {
  return html`<${State} state=${row.outcome ?? 'open'} kind=${kindOfOutcome(row.outcome)} title=${row.error_code} />`;
}
