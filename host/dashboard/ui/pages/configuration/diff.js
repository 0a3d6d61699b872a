// A unified diff, line by line: the sign tells added from removed lines, colour only repeats it.

import { html } from '../../html.js';

const KINDS = { '+': 'added', '-': 'removed', '@': 'place' };

export function Diff({ text }) {
  const lines = text.split('\n').filter((line, index, all) => line !== '' || index < all.length - 1);
  if (lines.length === 0) return html`<p class="muted">No difference.</p>`;
  return html`
    <pre class="diff" tabindex="0" role="region" aria-label="Difference"><code>${lines.map((line, index) => html`
      <span key=${index} class=${`diff-${KINDS[line[0]] ?? 'same'}`}>${line}${'\n'}</span>`)}</code></pre>`;
}
