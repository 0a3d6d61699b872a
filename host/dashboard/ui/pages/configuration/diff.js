// Unified diff. The sign of a line distinguishes added from removed lines, so that the colour is redundant.

import { html } from '../../html.js';

const KINDS = { '+': 'added', '-': 'removed', '@': 'place' };
/** Header lines with the names of the two texts. */
const HEAD_LINES = 2;

function kindOf(line, index) {
  const isHead = index < HEAD_LINES && /^(---|\+\+\+)/.test(line);
  return isHead ? 'place' : (KINDS[line[0]] ?? 'same');
}

export function Diff({ text }) {
  const lines = text.split('\n').filter((line, index, all) => line !== '' || index < all.length - 1);
  if (lines.length === 0) return html`<p class="muted">No difference.</p>`;
  return html`
    <pre class="diff" tabindex="0" role="region" aria-label="Difference"><code>${lines.map(
      (line, index) => html`
      <span key=${index} class=${`diff-${kindOf(line, index)}`}>${line}${'\n'}</span>`,
    )}</code></pre>`;
}
