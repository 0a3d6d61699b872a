// Waterfall of a request: its stages on one time axis.

import { seconds } from '../../format.js';
import { html } from '../../html.js';

const MEANINGS = {
  read: 'The body of the request was read',
  tokens: 'The prompt was tokenised',
  queue: 'The request waited in the queue of its pool',
  decide: 'The policy decided',
  connect: 'A connection to the worker was opened',
  first_byte: 'The worker computed the prompt',
  stream: 'The answer was relayed',
};

export function Waterfall({ stages, outcome }) {
  const ends = stages.map(({ start_s, duration_s }) => start_s + duration_s);
  const total = Math.max(...ends, (outcome?.['duration-ms'] ?? 0) / 1e3, 1e-6);
  return html`
    <div class="table-scroll" tabindex="0" role="region" aria-label="Stages">
    <table class="waterfall">
      <caption class="visually-hidden">Stages of the request</caption>
      <thead><tr>
        <th scope="col">Stage</th><th scope="col">Time from arrival</th>
        <th scope="col" class="number">Start</th><th scope="col" class="number">Duration</th>
      </tr></thead>
      <tbody>
        ${stages.map(
          ({ stage, start_s, duration_s }, index) => html`
          <tr key=${index}>
            <th scope="row" title=${MEANINGS[stage]}>${stage.replace('_', ' ')}</th>
            <td class="waterfall-bar"><${Span} from=${start_s / total} share=${duration_s / total} stage=${stage} /></td>
            <td class="number">${seconds(start_s)}</td>
            <td class="number">${seconds(duration_s)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    </div>`;
}

function Span({ from, share, stage }) {
  // Minimum width, so that a very short stage is visible.
  const width = Math.max(share * 100, 0.4);
  const x = Math.min(from * 100, 100 - width);
  return html`
    <svg class="span" aria-hidden="true">
      <rect class="bar-track" width="100%" height="100%" rx="2" />
      <rect class=${`span-${stage}`} x=${`${x}%`} width=${`${width}%`} height="100%" rx="2" />
    </svg>`;
}
