// Funnel of cache reuse in a pool: prompt tokens, best match of all workers, match of the chosen worker, cached tokens.

import { count, percent } from '../../format.js';
import { html } from '../../html.js';

const STEPS = [
  ['prompt_tokens', 'Prompt', 'All tokens of the prompts'],
  ['best_tokens', 'Best match', 'Tokens that some worker had cached'],
  ['matched_tokens', 'Chosen match', 'Tokens that the chosen worker had cached, by the index'],
  ['cached_tokens', 'Reused', 'Tokens that the worker reported as cached'],
];

export function Funnel({ pool, funnel }) {
  const total = funnel.prompt_tokens;
  return html`
    <div class="table-scroll" tabindex="0" role="region" aria-label=${`Reuse in the pool ${pool}`}>
    <table class="funnel">
      <caption>Pool ${pool}</caption>
      <thead><tr>
        <th scope="col">Step</th><th scope="col">Share of the prompts</th>
        <th scope="col" class="number">Tokens</th><th scope="col" class="number">Share</th>
      </tr></thead>
      <tbody>
        ${STEPS.map(([key, name, about]) => html`<${Step} key=${key} name=${name} about=${about} tokens=${funnel[key]} total=${total} />`)}
      </tbody>
    </table>
    </div>`;
}

function Step({ name, about, tokens, total }) {
  const share = total > 0 && Number.isFinite(tokens) ? tokens / total : null;
  return html`
    <tr>
      <th scope="row">${name}<span class="sub">${about}</span></th>
      <td class="funnel-bar">
        <svg class="bar" aria-hidden="true">
          <rect class="bar-track" width="100%" height="100%" rx="2" />
          <rect class="bar-value" width=${`${(share ?? 0) * 100}%`} height="100%" rx="2" />
        </svg>
      </td>
      <td class="number">${count(tokens)}</td>
      <td class="number">${percent(share)}</td>
    </tr>`;
}
