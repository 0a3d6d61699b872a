// Badges of states with a word, a shape and a colour. Each of the three alone distinguishes the kinds of states.

import { html } from '../html.js';

/** States of the router's parts, grouped by their meaning for an operator. */
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

/** Badge of a state. `kind` overrides the default kind of the state. `title` is the reason of the state. */
export function State({ state, kind, title }) {
  const shown = kind ?? kindOfState.get(state) ?? 'idle';
  return html`
    <span class=${`state state-${shown}`} title=${title}>
      <span class="state-shape" aria-hidden="true">${SHAPES[shown]}</span>${state}
    </span>`;
}

/** Returns the kind of a request's outcome. An outcome that is not in the list is a failure. */
export function kindOfOutcome(outcome) {
  return outcome === null ? 'busy' : (kindOfState.get(outcome) ?? 'bad');
}

/** Badge of a request's outcome, or of an open request. */
export function Outcome({ row }) {
  return html`<${State} state=${row.outcome ?? 'open'} kind=${kindOfOutcome(row.outcome)} title=${row.error_code} />`;
}
