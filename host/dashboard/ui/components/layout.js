// Parts of every page: headings, sections, notices, figures.

import { html } from '../html.js';
import { useEffect } from '../vendor/hooks.js';
import { requestKey } from './key_form.js';

/** Heading of a page, which is also the tab's title. `children` are beside the heading. */
export function PageHead({ title, about, children }) {
  useEffect(() => {
    document.title = `${title} · Conductor`;
  }, [title]);
  return html`
    <header class="page-head">
      <div>
        <h1>${title}</h1>
        ${about && html`<p class="muted">${about}</p>`}
      </div>
      ${children && html`<div class="page-head-side">${children}</div>`}
    </header>`;
}

/** Section of a page with a title. */
export function Section({ title, about, side, children }) {
  return html`
    <section class="section">
      <div class="section-head">
        <h2>${title}</h2>
        ${side && html`<div class="section-side">${side}</div>`}
      </div>
      ${about && html`<p class="muted section-about">${about}</p>`}
      ${children}
    </section>`;
}

/** Message in the text flow of the page. `kind` is `info`, `good`, `warn` or `bad`. */
export function Notice({ kind = 'info', children }) {
  return html`<div class=${`notice notice-${kind}`} role=${kind === 'bad' ? 'alert' : 'status'}>${children}</div>`;
}

/** Placeholder for content that is not available: the error of its request, or a loading message. */
export function Pending({ resource, what }) {
  const { data, error } = resource;
  if (error) {
    return html`
      <${Notice} kind="bad">Failed to read ${what}: ${error.message}
        ${error.needsKey && html` <button type="button" onClick=${requestKey}>Enter a key</button>`}<//>`;
  }
  return data ? null : html`<p class="muted">Reading ${what}…</p>`;
}

/** Text in place of an empty list. */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** Row of figures. A figure is `[label, value, hint]`. */
export function Figures({ figures }) {
  return html`
    <dl class="figures">
      ${figures.map(
        ([label, value, hint]) => html`
        <div key=${label} title=${hint}><dt>${label}</dt><dd>${value}</dd></div>`,
      )}
    </dl>`;
}

/** Vertical list of facts. A fact is `[label, content]`. Facts without content are omitted. */
export function Facts({ facts }) {
  const known = facts.filter(([, content]) => content !== null && content !== undefined && content !== '');
  return html`
    <dl class="facts">
      ${known.map(([label, content]) => html`<div key=${label}><dt>${label}</dt><dd>${content}</dd></div>`)}
    </dl>`;
}
