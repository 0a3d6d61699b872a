// Chart of the last ten minutes with uPlot. A table with the same numbers is for screen readers.

import { time } from '../format.js';
import { html } from '../html.js';
import { useEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import uPlot from '../vendor/uplot.js';

const HEIGHT = 132;
/** Time span in seconds below which the labels of the time axis include seconds. */
const SHORT_S = 240;
/** Maximum number of rows of the table. */
const TABLE_ROWS = 20;

/** Returns the value of a colour variable of the style sheet as text, since a canvas cannot use CSS variables. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Returns the resolved colours. They are updated when the colour scheme changes. */
function useColours() {
  const scheme = useMemo(() => matchMedia('(prefers-color-scheme: dark)'), []);
  const [isDark, setDark] = useState(scheme.matches);
  useEffect(() => {
    const listener = () => setDark(scheme.matches);
    scheme.addEventListener('change', listener);
    return () => scheme.removeEventListener('change', listener);
  }, [scheme]);
  return useMemo(() => {
    const suffix = isDark ? 'dark' : 'light';
    const series = [1, 2, 3].map((number) => colour(`--series-${number}-${suffix}`));
    return { series, axis: colour(`--axis-${suffix}`), grid: colour(`--grid-${suffix}`) };
  }, [isDark]);
}

function axis(colours, format, size) {
  const line = { stroke: colours.grid, width: 1 };
  const font = '11px system-ui, sans-serif';
  return { stroke: colours.axis, grid: line, ticks: { ...line, size: 4 }, font, size, gap: 4, values: format };
}

function options({ series, format, colours, marks, width }) {
  const times = (plot, splits) => {
    const hasSeconds = plot.scales.x.max - plot.scales.x.min < SHORT_S;
    return splits.map((at) => (hasSeconds ? time(at) : time(at).slice(0, 5)));
  };
  const values = (_, splits) => splits.map(format);
  return {
    width,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] } },
    axes: [axis(colours, times, 24), axis(colours, values, 58)],
    series: [
      {},
      ...series.map(({ name }, index) => ({
        label: name,
        stroke: colours.series[index],
        width: 1.5,
        dash: index === 1 ? [6, 4] : index === 2 ? [2, 3] : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { draw: [(plot) => drawMarks(plot, marks.current, colours.axis)] },
  };
}

/** Draws a vertical line at the time of each change of the router. */
function drawMarks(plot, marks, stroke) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.globalAlpha = 0.5;
  ctx.setLineDash([3, 3]);
  for (const at of marks) {
    const x = Math.round(plot.valToPos(at, 'x', true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/**
 * Chart over time. `at` are Unix times in seconds. A series has `name` and `values`, with null for unknown values.
 * `format` formats a value, and `marks` are the times of changes.
 */
export function Chart({ title, at, series, format, marks = [] }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shownMarks = useRef(marks);
  const [hovered, setHovered] = useState(null);
  const colours = useColours();
  const names = series.map(({ name }) => name).join('|');
  shownMarks.current = marks;

  useEffect(() => {
    const element = place.current;
    const data = [at, ...series.map(({ values }) => values)];
    const made = new uPlot(
      options({ series, format, colours, marks: shownMarks, width: element.clientWidth }),
      data,
      element,
    );
    made.over.addEventListener('mousemove', () => setHovered(made.cursor.idx));
    made.over.addEventListener('mouseleave', () => setHovered(null));
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
    // The effect below updates the data of the plot. Only other series or colours need a new plot.
  }, [colours, names]);

  useEffect(() => {
    plot.current?.setData([at, ...series.map(({ values }) => values)]);
  }, [at]);

  const shown = hovered ?? at.length - 1;
  return html`
    <figure class="chart">
      <figcaption>
        <span class="chart-title">${title}</span>
        ${series.map(
          ({ name, values }, index) => html`
          <span key=${name} class=${`chart-value series-${index + 1}`}>
            ${series.length > 1 && `${name} `}<strong>${format(values[shown])}</strong>
          </span>`,
        )}
        ${hovered !== null && html`<span class="muted">${time(at[shown])}</span>`}
      </figcaption>
      <div class="chart-plot" ref=${place} aria-hidden="true"></div>
      <${DataTable} title=${title} at=${at} series=${series} format=${format} />
    </figure>`;
}

/** Table of every n-th value of a chart in a disclosure element. The rows are rendered only while it is open. */
function DataTable({ title, at, series, format }) {
  const [isOpen, setOpen] = useState(false);
  const step = Math.max(1, Math.ceil(at.length / TABLE_ROWS));
  const rows = isOpen ? at.map((_, index) => index).filter((index) => (at.length - 1 - index) % step === 0) : [];
  return html`
    <details class="chart-table" open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table<span class="visually-hidden">: ${title}</span></summary>
      ${
        isOpen &&
        html`
        <table>
          <caption class="visually-hidden">${title}</caption>
          <thead><tr><th scope="col">Time</th>
            ${series.map(({ name }) => html`<th key=${name} scope="col" class="number">${name}</th>`)}</tr></thead>
          <tbody>${rows.reverse().map(
            (index) => html`
            <tr key=${at[index]}><th scope="row">${time(at[index])}</th>
              ${series.map(({ name, values }) => html`<td key=${name} class="number">${format(values[index])}</td>`)}
            </tr>`,
          )}</tbody>
        </table>`
      }
    </details>`;
}
