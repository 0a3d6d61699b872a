// Policies page: active versions with their start, canaries with their confidence, and disagreements of shadows.

import { Empty, PageHead, Pending, Section } from '../components/layout.js';
import { plural } from '../format.js';
import { html } from '../html.js';
import { useResource } from '../resource.js';
import { PolicyCard } from './policies/policy.js';
import { RouteTable } from './policies/routes.js';
import { ShadowCard } from './policies/shadows.js';
import { TrialCard } from './policies/trials.js';
import { Upload } from './policies/upload.js';

const REFRESH_MS = 2000;

export function PoliciesPage() {
  const policies = useResource('/admin/policies', { everyMs: REFRESH_MS });
  const trials = useResource('/admin/trials', { everyMs: REFRESH_MS });
  const reload = () => Promise.all([policies.reload(), trials.reload()]);
  const { data } = policies;
  return html`
    <${PageHead} title="Policies" about=${data && about(data)} />
    <${Pending} resource=${policies} what="the policies" />
    ${
      data &&
      html`
      <${Section} title="Routes"><${RouteTable} page=${data} onChange=${reload} /><//>`
    }
    ${
      trials.data?.trials.length > 0 &&
      html`
      <${Section} title="Canaries" about="Each is compared with the policy of its route.">
        ${trials.data.trials.map(
          (trial) => html`
          <${TrialCard} key=${trial.route_number} trial=${trial} routes=${data?.routes ?? []} onChange=${reload} />`,
        )}
      <//>`
    }
    ${
      trials.data?.shadows.length > 0 &&
      html`
      <${Section} title="Shadows" about="They are called beside the route's policy, without effect.">
        ${trials.data.shadows.map(
          (shadow) => html`
          <${ShadowCard} key=${`${shadow.route_number}/${shadow.policy}`} shadow=${shadow} />`,
        )}
      <//>`
    }
    ${
      data &&
      html`
      <${Section} title="Versions">
        ${data.policies.length === 0 && html`<${Empty}>No policy is configured.<//>`}
        <div class="cards">
          ${data.policies.map(
            (policy) => html`
            <${PolicyCard} key=${policy.name} policy=${policy} onChange=${reload} />`,
          )}
        </div>
        ${data.ignored.map(
          ({ file, why }) => html`
          <p key=${file} class="muted">${file} is not loaded: ${why}</p>`,
        )}
      <//>
      <${Section} title="Upload" about="A component is checked by the built-in scenarios before it is written to the policy folder.">
        <${Upload} policies=${data} onChange=${reload} />
      <//>`
    }`;
}

function about({ policies, routes, policy_dir }) {
  const folder = policy_dir ? `, policy folder ${policy_dir}` : '';
  return `${plural(policies.length, 'policy', 'policies')} on ${plural(routes.length, 'route')}${folder}`;
}
