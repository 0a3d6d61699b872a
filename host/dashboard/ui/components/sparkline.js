// Sparkline: a small chart without axes for a table cell. It is an SVG, since the content security policy allows no
// inline style.

import { html } from '../html.js';

const WIDTH = 120;
const HEIGHT = 20;

/** Sparkline of values over time, newest last. Unknown values are null. `format` formats a value for the label. */
export function Sparkline({ values, label, format }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return html`<span class="muted">–</span>`;
  const high = Math.max(...known, 1e-9);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const point = (value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 1 - (value / high) * (HEIGHT - 2)).toFixed(1)}`;
  const points = values.map((value, index) => (value === null ? null : point(value, index))).filter(Boolean);
  const about = `${label}: ${format(Math.min(...known))} to ${format(Math.max(...known))}`;
  return html`
    <svg class="sparkline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${about}>
      <title>${about}</title>
      <polyline points=${points.join(' ')} />
    </svg>`;
}
