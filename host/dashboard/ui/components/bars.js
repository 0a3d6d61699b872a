// Bars and intervals as SVG. Their widths are attributes, since the content security policy allows no inline style.

import { percent } from '../format.js';
import { html } from '../html.js';

/** Bar for a share of 1, with the number as text. The bar is hidden from screen readers. */
export function Share({ value, label = percent(value) }) {
  if (value === null || value === undefined) return html`<span class="muted">–</span>`;
  const width = `${Math.min(1, Math.max(0, value)) * 100}%`;
  const level = value >= 0.95 ? 'full' : value >= 0.8 ? 'high' : 'normal';
  return html`
    <span class="share">
      <svg class=${`bar bar-${level}`} aria-hidden="true"><rect class="bar-track" width="100%" height="100%" rx="2" />
        <rect class="bar-value" width=${width} height="100%" rx="2" /></svg>
      <span class="share-number">${label}</span>
    </span>`;
}

/** Stacked bar of the parts of a whole, with a legend. A part is `[label, value]`. */
export function Stack({ parts, total, format }) {
  const whole = total || parts.reduce((sum, [, value]) => sum + value, 0);
  let start = 0;
  const placed = parts.map(([label, value], index) => {
    const share = whole > 0 ? value / whole : 0;
    const part = { label, value, index, x: `${start * 100}%`, width: `${share * 100}%` };
    start += share;
    return part;
  });
  return html`
    <span class="stack">
      <svg class="bar bar-stack" aria-hidden="true"><rect class="bar-track" width="100%" height="100%" rx="2" />
        ${placed.map(
          ({ label, x, width, index }) => html`
          <rect key=${label} class=${`part-${index}`} x=${x} width=${width} height="100%" />`,
        )}
      </svg>
      <span class="legend">
        ${placed.map(
          ({ label, value, index }) => html`
          <span key=${label}><svg class="swatch" aria-hidden="true"><rect class=${`part-${index}`} width="100%"
            height="100%" rx="2" /></svg>${label} ${format(value)}</span>`,
        )}
      </span>
    </span>`;
}

/**
 * Confidence interval of a difference on an axis around 0, with the non-inferiority margin. All values are relative to
 * the other side: 0.1 means 10 % more.
 */
export function Interval({ low, high, estimate, margin, label }) {
  const ends = [low, high, estimate, margin].filter(Number.isFinite).map(Math.abs);
  const reach = Math.max(...ends, 0.01) * 1.25;
  const x = (value) => `${((Math.min(reach, Math.max(-reach, value)) + reach) / (2 * reach)) * 100}%`;
  const width = `${((Math.min(reach, high) - Math.max(-reach, low)) / (2 * reach)) * 100}%`;
  const isWorse = low > margin;
  return html`
    <svg class="interval" role="img" aria-label=${label}>
      <line class="interval-axis" x1="0" x2="100%" y1="50%" y2="50%" />
      <line class="interval-zero" x1="50%" x2="50%" y1="0" y2="100%" />
      <line class="interval-margin" x1=${x(margin)} x2=${x(margin)} y1="0" y2="100%" />
      <rect class=${isWorse ? 'interval-range worse' : 'interval-range'} x=${x(low)} width=${width} y="30%" height="40%"
        rx="3" />
      <circle class="interval-estimate" cx=${x(estimate)} cy="50%" r="4" />
    </svg>`;
}
