// Comparison of a canary with the policy of its route: measures with their confidence, and missing evidence.

import { address, change } from '../../api.js';
import { Action } from '../../components/action.js';
import { Interval, Share } from '../../components/bars.js';
import { Notice } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { curl } from '../../command.js';
import { change as signed, count, dateTime, percent, seconds } from '../../format.js';
import { html } from '../../html.js';
import { Promote, Retract } from './routes.js';

const EVIDENCE = {
  requests: 'requests that ended',
  'first-tokens': 'streamed answers with a first token',
  'session-groups': 'groups of sessions',
};

const COLUMNS = [
  { name: 'Policy', isHead: true, cell: ({ policy, version }) => html`<span title=${version}>${policy}</span>` },
  { name: 'State', cell: ({ state }) => html`<${State} state=${state} />` },
  { name: 'Share', number: true, cell: ({ share }) => percent(share) },
  { name: 'Requests', number: true, cell: ({ requests }) => count(requests) },
  { name: 'Failed', number: true, cell: ({ error_share }) => percent(error_share) },
  { name: 'TTFT p50', number: true, cell: ({ ttft }) => milliseconds(ttft?.p50_ms) },
  { name: 'p95', number: true, cell: ({ ttft }) => milliseconds(ttft?.p95_ms) },
  { name: 'p99', number: true, hides: true, cell: ({ ttft }) => milliseconds(ttft?.p99_ms) },
  {
    name: 'Between tokens',
    number: true,
    hides: true,
    cell: ({ between_tokens }) => milliseconds(between_tokens?.mean_ms),
  },
  { name: 'Cached', number: true, cell: ({ cached_share }) => percent(cached_share) },
];

function milliseconds(value) {
  return seconds(typeof value === 'number' ? value / 1e3 : null);
}

export function TrialCard({ trial, routes, onChange }) {
  const route = routes.find(({ route: number }) => number === trial.route_number);
  const canaries = trial.arms.filter(({ state }) => state !== 'control');
  return html`
    <article class="card">
      <div class="card-head"><h3>Pool ${trial.pool}</h3>
        <span class="muted">route ${trial.route_number}, <code>${trial.route}</code>, since ${dateTime(trial.since_unix_ms / 1e3)}</span></div>
      <${Table} caption=${`Policies of the pool ${trial.pool}`} columns=${COLUMNS} rows=${trial.arms} keyOf=${({ policy }) => policy} />
      ${canaries.map(
        (arm) => html`
        <${CanaryVerdict} key=${arm.policy} arm=${arm} rule=${trial.rule} route=${route} onChange=${onChange} />`,
      )}
    </article>`;
}

function CanaryVerdict({ arm, rule, route, onChange }) {
  const looks = [
    ['Time to first token', arm.ttft_look, rule.ttft_margin],
    ['Failures', arm.errors_look, rule.error_margin],
  ].filter(([, look]) => look);
  return html`
    <div class="verdict">
      <h4>${arm.policy} <${State} state=${arm.verdict} /></h4>
      <p class="muted">With a confidence of ${percent(rule.confidence)}, over repeated looks.</p>
      ${looks.length > 0 && html`<${Looks} looks=${looks} />`}
      ${arm.waits_for.length > 0 && html`<${Shortages} shortages=${arm.waits_for} />`}
      ${arm.stopped && html`<${Stopped} stopped=${arm.stopped} />`}
      <div class="buttons">
        ${
          route &&
          html`
          <${Promote} route=${route} policy=${arm.policy} onChange=${onChange} />
          <${Retract} route=${route} policy=${arm.policy} onChange=${onChange} />`
        }
        <${ResumeCanary} arm=${arm} onChange=${onChange} />
      </div>
    </div>`;
}

/** Confidence intervals of both measures, on an axis around 0, which means no difference. */
function Looks({ looks }) {
  return html`
    <div class="table-scroll" tabindex="0" role="region" aria-label="Comparison with the route's policy">
    <table class="looks">
      <caption class="visually-hidden">Comparison with the policy of the route</caption>
      <thead><tr>
        <th scope="col">Measure</th><th scope="col">Verdict</th><th scope="col">Better … worse</th>
        <th scope="col" class="number">Worse by</th><th scope="col" class="number">At least</th>
        <th scope="col" class="number">At most</th><th scope="col" class="number">Margin</th>
        <th scope="col" class="number">Samples</th>
      </tr></thead>
      <tbody>
        ${looks.map(
          ([name, look, margin]) => html`
          <tr key=${name}>
            <th scope="row">${name}</th>
            <td><${State} state=${look.verdict} /></td>
            <td><${Interval} low=${look.at_least} high=${look.at_most} estimate=${look.worse_by} margin=${margin}
              label=${`${name}: worse by ${signed(look.worse_by)}, between ${signed(look.at_least)} and ${signed(look.at_most)}`} /></td>
            <td class="number">${signed(look.worse_by)}</td>
            <td class="number">${signed(look.at_least)}</td>
            <td class="number">${signed(look.at_most)}</td>
            <td class="number">${signed(margin)}</td>
            <td class="number">${count(look.samples)} / ${count(look.control_samples)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    </div>`;
}

function Shortages({ shortages }) {
  return html`
    <p>A comparison waits for:</p>
    <ul class="shortages">
      ${shortages.map(
        ({ measure, policy, of, have, need }) => html`
        <li key=${`${measure}/${policy}/${of}`}>
          <${Share} value=${need > 0 ? have / need : 1} label=${`${count(have)} of ${count(need)}`} />
          <span>${EVIDENCE[of] ?? of} of <strong>${policy}</strong> <span class="muted">(${measure})</span></span>
        </li>`,
      )}
    </ul>`;
}

function Stopped({ stopped }) {
  return html`<${Notice} kind="bad">Stopped at ${dateTime(stopped.at_unix_ms / 1e3)}: ${stopCause(stopped)}.
    Its share goes to the route's policy.<//>`;
}

function stopCause({ reason, failures, look, router }) {
  if (reason === 'consecutive-failures') return `${failures} requests in a row failed`;
  if (reason === 'agreed') return `the router ${router} stopped it, and has the evidence`;
  return `${look?.measure ?? 'a measure'} is worse by at least ${signed(look?.at_least)}`;
}

function ResumeCanary({ arm, onChange }) {
  const path = address(['admin', 'canaries', arm.policy, 'resume']);
  const run = async () => {
    await change(path);
    await onChange();
    return `${arm.policy} decides again.`;
  };
  return html`
    <${Action} label="Resume" run=${run} command=${curl('POST', path, {})}
      unavailable=${arm.stopped ? null : 'this canary is not stopped'}
      effect=${html`<strong>${arm.policy}</strong> gets ${percent(arm.share)} of the sessions again.`} />`;
}
