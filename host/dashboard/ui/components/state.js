// States by word, shape and colour: each of the three alone is enough to tell them apart.

import { html } from '../html.js';

/** The states of the router's parts by what they mean for an operator. */
const KINDS = {
  // workers, feeds, circuits, versions; then results, verdicts and outcomes
  good: [
    'ok', 'ready', 'live', 'closed', 'active', 'current', 'control',
    'applied', 'passed', 'done', 'complete', 'no-worse', 'better',
  ],
  busy: [
    'pending', 'returning', 'connecting', 'rebuilding', 'half-open', 'before', 'compiling', 'running', 'undecided',
    'too-few',
  ],
  warn: [
    'draining', 'busy', 'held-back', 'stale', 'rejected', 'rejected-early', 'limited', 'client-left', 'invalid',
    'unauthorized', 'cancelled',
  ],
  bad: ['ejected', 'unhealthy', 'not-ready', 'broken', 'open', 'stopped', 'worse', 'refused', 'failed'],
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

/** Returns what the outcome of a request means. Outcomes that are not listed are failures. */
export function kindOfOutcome(outcome) {
  return outcome === null ? 'busy' : (kindOfState.get(outcome) ?? 'bad');
}

/** The outcome of a request, or that it is still open. */
export function Outcome({ row }) {
  return html`<${State} state=${row.outcome ?? 'open'} kind=${kindOfOutcome(row.outcome)} title=${row.error_code} />`;
}
