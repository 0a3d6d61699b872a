// Routes with their policies, canaries and shadows, and with buttons that start and end trials.

import { address, change } from '../../api.js';
import { Action } from '../../components/action.js';
import { Choice, TextField } from '../../components/form.js';
import { Notice } from '../../components/layout.js';
import { Table } from '../../components/table.js';
import { conductor, curl } from '../../command.js';
import { percent, UNKNOWN } from '../../format.js';
import { html } from '../../html.js';
import { useState } from '../../vendor/hooks.js';
import { policyNames } from './names.js';

/** Changes a route, and returns the message of the router's response. */
async function changeRoute(policy, action, body, onChange) {
  const answer = await change(address(['admin', 'policies', policy, action]), body);
  await onChange();
  return answer.message;
}

export function RouteTable({ page, onChange }) {
  const columns = [
    { name: 'Route', isHead: true, cell: ({ route }) => route },
    { name: 'Pool', cell: ({ pool }) => pool },
    {
      name: 'Policy',
      cell: (route) => html`<${RoutePolicy} route=${route} overrides=${page.overrides} onChange=${onChange} />`,
    },
    {
      name: 'Canaries',
      cell: (route) => html`<${Trials} route=${route} onChange=${onChange}
        trials=${Object.entries(route.canaries).map(([name, share]) => [name, percent(share)])} />`,
    },
    {
      name: 'Shadows',
      cell: (route) => html`<${Trials} route=${route} onChange=${onChange}
        trials=${route.shadows.map((name) => [name, null])} />`,
    },
    { name: 'Change', cell: (route) => html`<${StartTrial} route=${route} page=${page} onChange=${onChange} />` },
  ];
  return html`
    <${Table} caption="Routes" columns=${columns} rows=${page.routes} keyOf=${({ route }) => route} />
    ${page.overrides.map(
      ({ route, toml, kept }) => html`
      <${Notice} key=${route} kind="info">
        Route ${route} differs from the file${kept ? '' : ', until the next restart'}. These lines make it permanent:
        <pre><code>${toml}</code></pre>
      <//>`,
    )}`;
}

function RoutePolicy({ route, overrides, onChange }) {
  const { policy, prefill_policy, decode_policy } = route;
  const isOverridden = overrides.some((override) => override.route === route.route);
  return html`<strong>${policy}</strong>
    ${isOverridden && html` <${Retract} route=${route} policy=${policy} onChange=${onChange} />`}
    ${prefill_policy && html`<span class="sub">prefill ${prefill_policy}</span>`}
    ${decode_policy && html`<span class="sub">decode ${decode_policy}</span>`}`;
}

/** Canaries or shadows of a route, with buttons that promote or retract them. */
function Trials({ route, trials, onChange }) {
  if (trials.length === 0) return UNKNOWN;
  return html`<ul class="trials">
    ${trials.map(
      ([name, share]) => html`
      <li key=${name}>
        <span><strong>${name}</strong> ${share}</span>
        <${Promote} route=${route} policy=${name} onChange=${onChange} />
        <${Retract} route=${route} policy=${name} onChange=${onChange} />
      </li>`,
    )}
  </ul>`;
}

/** Button that makes a canary or a shadow the policy of the route. */
export function Promote({ route, policy, onChange }) {
  return html`
    <${Action} label="Promote" isDanger command=${conductor('policy', 'promote', policy, '--route', route.route)}
      effect=${html`<strong>${policy}</strong> decides for all requests of route ${route.route} (pool ${route.pool}) instead
        of <strong>${route.policy}</strong>.`}
      run=${() => changeRoute(policy, 'promote', { route: route.route }, onChange)} />`;
}

/** Button that reverts the changes over HTTP for this policy. */
export function Retract({ route, policy, onChange }) {
  const effect = retractEffect(route, policy);
  return html`
    <${Action} label="Retract" command=${conductor('policy', 'retract', policy, '--route', route.route)} effect=${effect}
      run=${() => changeRoute(policy, 'retract', { route: route.route }, onChange)} />`;
}

function retractEffect(route, policy) {
  const place = `route ${route.route} (pool ${route.pool})`;
  if (policy === route.policy) return html`The policies of ${place} become those of the file again.`;
  const share = route.canaries[policy];
  return share === undefined
    ? html`<strong>${policy}</strong> is a shadow of ${place} only as far as the file says so.`
    : html`<strong>${policy}</strong> gets only the sessions of ${place} that the file gives it, instead of ${percent(share)}.`;
}

/** Button that starts a canary or a shadow on a route. */
function StartTrial({ route, page, onChange }) {
  const names = policyNames(page).filter((name) => name !== route.policy);
  const [policy, setPolicy] = useState('');
  const [kind, setKind] = useState('canary');
  const [amount, setAmount] = useState('5');
  const chosen = policy || names[0] || '';
  const body =
    kind === 'canary'
      ? { route: route.route, percent: Number(amount) }
      : { route: route.route, sample: Number(amount) / 100 };
  return html`
    <${Action} label="Try a policy" unavailable=${names.length > 0 ? null : 'no other policy is loaded'}
      effect=${
        kind === 'canary'
          ? html`<strong>${chosen}</strong> decides for ${amount} % of the sessions of route ${route.route}.`
          : html`<strong>${chosen}</strong> is called beside, for ${amount} % of the requests of route ${route.route}, without effect.`
      }
      command=${curl('POST', address(['admin', 'policies', chosen, kind]), body)}
      run=${() => changeRoute(chosen, kind, body, onChange)}>
      <div class="filters">
        <${Choice} label="Policy" value=${chosen} choices=${names} onChange=${setPolicy} />
        <${Choice} label="As" value=${kind} choices=${['canary', 'shadow']} onChange=${setKind} />
        <${TextField} label="Per cent" inputmode="decimal" size="5" value=${amount} onChange=${setAmount} />
      </div>
    <//>`;
}
