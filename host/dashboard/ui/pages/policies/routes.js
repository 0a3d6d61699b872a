// The routes with their policies, canaries and shadows, and the buttons of a trial.

import { address, change } from '../../api.js';
import { Action } from '../../components/action.js';
import { Choice, TextField } from '../../components/form.js';
import { Notice } from '../../components/layout.js';
import { Table } from '../../components/table.js';
import { conductor, curl } from '../../command.js';
import { percent, UNKNOWN } from '../../format.js';
import { html } from '../../html.js';
import { useState } from '../../vendor/hooks.js';

/** Changes a route, and returns the router's sentence about it. */
async function changeRoute(policy, action, body, onChange) {
  const answer = await change(address(['admin', 'policies', policy, action]), body);
  await onChange();
  return answer.message;
}

export function RouteTable({ page, onChange }) {
  const columns = [
    { name: 'Route', isHead: true, cell: ({ route }) => route },
    { name: 'Pool', cell: ({ pool }) => pool },
    { name: 'Policy', cell: (route) => html`<${RoutePolicy} route=${route} />` },
    { name: 'Canaries', cell: (route) => html`<${Trials} route=${route} onChange=${onChange}
        trials=${Object.entries(route.canaries).map(([name, share]) => [name, percent(share)])} />` },
    { name: 'Shadows', cell: (route) => html`<${Trials} route=${route} onChange=${onChange}
        trials=${route.shadows.map((name) => [name, null])} />` },
    { name: 'Change', cell: (route) => html`<${StartTrial} route=${route} policies=${page.policies} onChange=${onChange} />` },
  ];
  return html`
    <${Table} caption="Routes" columns=${columns} rows=${page.routes} keyOf=${({ route }) => route} />
    ${page.overrides.map(({ route, toml, kept }) => html`
      <${Notice} key=${route} kind="info">
        Route ${route} differs from the file${kept ? '' : ', until the next restart'}. These lines make it permanent:
        <pre><code>${toml}</code></pre>
      <//>`)}`;
}

function RoutePolicy({ route }) {
  const { policy, prefill_policy, decode_policy } = route;
  return html`<strong>${policy}</strong>
    ${prefill_policy && html`<span class="sub">prefill ${prefill_policy}</span>`}
    ${decode_policy && html`<span class="sub">decode ${decode_policy}</span>`}`;
}

/** Canaries or shadows of a route, with what ends them. */
function Trials({ route, trials, onChange }) {
  if (trials.length === 0) return UNKNOWN;
  return html`<ul class="trials">
    ${trials.map(([name, share]) => html`
      <li key=${name}>
        <span><strong>${name}</strong> ${share}</span>
        <${Promote} route=${route} policy=${name} onChange=${onChange} />
        <${Retract} route=${route} policy=${name} onChange=${onChange} />
      </li>`)}
  </ul>`;
}

/** Makes a canary or a shadow the policy of the route. */
export function Promote({ route, policy, onChange }) {
  return html`
    <${Action} label="Promote" isDanger command=${conductor('policy', 'promote', policy, '--route', route.route)}
      effect=${html`<strong>${policy}</strong> decides for all requests of route ${route.route} (pool ${route.pool}) instead
        of <strong>${route.policy}</strong>.`}
      run=${() => changeRoute(policy, 'promote', { route: route.route }, onChange)} />`;
}

/** Ends what was changed over HTTP for this policy. */
export function Retract({ route, policy, onChange }) {
  const share = route.canaries[policy];
  const effect = share === undefined
    ? html`<strong>${policy}</strong> is no longer called as a shadow of route ${route.route}, as far as the file says so.`
    : html`${percent(share)} of the sessions of route ${route.route} (pool ${route.pool}) go back
        to <strong>${route.policy}</strong>, as far as the file says so.`;
  return html`
    <${Action} label="Retract" command=${conductor('policy', 'retract', policy, '--route', route.route)} effect=${effect}
      run=${() => changeRoute(policy, 'retract', { route: route.route }, onChange)} />`;
}

/** Starts a canary or a shadow on a route. */
function StartTrial({ route, policies, onChange }) {
  const names = policies.map(({ name }) => name).filter((name) => name !== route.policy);
  const [policy, setPolicy] = useState('');
  const [kind, setKind] = useState('canary');
  const [amount, setAmount] = useState('5');
  const chosen = policy || names[0] || '';
  const body = kind === 'canary'
    ? { route: route.route, percent: Number(amount) }
    : { route: route.route, sample: Number(amount) / 100 };
  return html`
    <${Action} label="Try a policy" unavailable=${names.length > 0 ? null : 'no other policy is loaded'}
      effect=${kind === 'canary'
        ? html`<strong>${chosen}</strong> decides for ${amount} % of the sessions of route ${route.route}.`
        : html`<strong>${chosen}</strong> is called beside, for ${amount} % of the requests of route ${route.route}, without effect.`}
      command=${curl('POST', address(['admin', 'policies', chosen, kind]), body)}
      run=${() => changeRoute(chosen, kind, body, onChange)}>
      <div class="filters">
        <${Choice} label="Policy" value=${chosen} choices=${names} onChange=${setPolicy} />
        <${Choice} label="As" value=${kind} choices=${['canary', 'shadow']} onChange=${setKind} />
        <${TextField} label="Per cent" inputmode="decimal" size="5" value=${amount} onChange=${setAmount} />
      </div>
    <//>`;
}
