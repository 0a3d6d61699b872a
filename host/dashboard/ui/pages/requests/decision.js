// Decision of a policy: its verdict, and the candidates with their columns.

import { Table } from '../../components/table.js';
import { count, number, seconds, short, UNKNOWN } from '../../format.js';
import { html } from '../../html.js';
import { useState } from '../../vendor/hooks.js';

/** Number of columns that are shown initially, since more do not fit on the page. */
const FIRST_COLUMNS = 6;

export function DecisionCall({ call }) {
  return html`
    <article class="card">
      <h3>${title(call)}</h3>
      <p>${verdict(call)}</p>
      ${call.parts?.map((part) => html`<p key=${part} class="muted">${part}</p>`)}
      <${Candidates} candidates=${call.candidates} columns=${call.columns} />
      <${RequestNumbers} numbers=${call.request_numbers} />
    </article>`;
}

function title({ policy, manifest_version, version, attempt, phase, fallback }) {
  const name = `${policy} ${manifest_version ?? short(version)}`;
  const about = [attempt > 0 && `attempt ${attempt + 1}`, phase !== 'mixed' && phase].filter(Boolean).join(', ');
  return html`${name}${fallback && html` <span class="tag tag-warn">fallback</span>`}${about && html` <span class="muted">${about}</span>`}`;
}

/** Returns the verdict of a decision as a sentence. */
export function verdict({ decided, detail, fault, refused, score, took_us, candidates }) {
  const took = typeof took_us === 'number' ? ` It took ${seconds(took_us / 1e6)}.` : '';
  if (fault) return `It failed (${fault.kind}: ${fault.detail ?? 'no detail'}), and the fallback decided.${took}`;
  if (refused) return `Its verdict was not applied: ${refused}.${took}`;
  if (decided === 'route') {
    const chosen = candidates.filter((candidate) => candidate.chosen === 'answers').map(({ worker }) => worker);
    const prefills = candidates.filter((candidate) => candidate.chosen === 'prefills').map(({ worker }) => worker);
    const pair = prefills.length > 0 ? ` after prefill on ${prefills.join(', ')}` : '';
    const scored = score === null || score === undefined ? '' : ` with a score of ${number(score)}`;
    return `It chose ${chosen.join(', ') || 'a worker'}${pair}${scored}.${took}`;
  }
  if (decided === 'queue') return `It held the request in the queue for at most ${count(detail)} ms.${took}`;
  if (decided === 'reject') return `It rejected the request with status ${detail}.${took}`;
  return `It passed: the next call decides.${took}`;
}

/** Table of the candidates. Initially it shows only columns with different values, which determined the decision. */
export function Candidates({ candidates, columns }) {
  const [isWhole, setWhole] = useState(false);
  const telling = columns.filter((column) => new Set(candidates.map(({ numbers }) => numbers[column])).size > 1);
  const first = (telling.length > 0 ? telling : columns).slice(0, FIRST_COLUMNS);
  const shown = isWhole ? columns : first;
  const table = [
    {
      name: 'Candidate',
      isHead: true,
      cell: ({ worker, role }) => html`${worker}${role !== 'mixed' && html`<span class="sub">${role}</span>`}`,
    },
    { name: 'Verdict', cell: ({ chosen }) => (chosen ? html`<span class="tag tag-good">✓ ${chosen}</span>` : '') },
    { name: 'Matched tokens', number: true, cell: ({ matched_tokens }) => value(matched_tokens) },
    ...shown.map((column) => ({ name: column, number: true, cell: ({ numbers }) => value(numbers[column]) })),
  ];
  return html`
    <${Table} caption="Candidates" columns=${table} rows=${candidates} keyOf=${({ worker }) => worker}
      classOf=${({ chosen }) => (chosen ? 'is-chosen' : '')} />
    ${
      columns.length > first.length &&
      html`
      <button type="button" class="quiet" aria-pressed=${isWhole} onClick=${() => setWhole(!isWhole)}>
        ${isWhole ? 'Only columns that differ' : `All ${columns.length} columns`}
      </button>`
    }`;
}

function RequestNumbers({ numbers }) {
  const entries = Object.entries(numbers ?? {});
  if (entries.length === 0) return null;
  return html`
    <details>
      <summary>Numbers of the request</summary>
      <dl class="facts">${entries.map(
        ([name, shown]) => html`
        <div key=${name}><dt><code>${name}</code></dt><dd>${value(shown)}</dd></div>`,
      )}</dl>
    </details>`;
}

/** Formats a number. Unknown numbers are null, and infinite numbers are texts. */
function value(shown) {
  return typeof shown === 'number' ? number(shown) : (shown ?? UNKNOWN);
}
