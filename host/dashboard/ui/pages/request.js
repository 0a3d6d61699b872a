// Request page: decision and candidates, stages with their times, differing shadows, and a replay with another policy.

import { address } from '../api.js';
import { Facts, PageHead, Pending, Section } from '../components/layout.js';
import { kindOfOutcome, State } from '../components/state.js';
import { Command } from '../components/action.js';
import { conductor } from '../command.js';
import { count, dateTime, percent, seconds, short } from '../format.js';
import { html } from '../html.js';
import { useResource } from '../resource.js';
import { Link } from '../router.js';
import { DecisionCall } from './requests/decision.js';
import { Replay } from './requests/replay.js';
import { ShadowChoice } from './requests/shadow.js';
import { Waterfall } from './requests/waterfall.js';

export function RequestPage({ id }) {
  const page = useResource(address(['admin', 'explain', id]));
  const { data } = page;
  return html`
    <${PageHead} title=${`Request ${short(id, 24)}`}>
      <${Link} to="/ui/requests">All requests<//>
    <//>
    <${Pending} resource=${page} what="the request" />
    ${
      data &&
      html`
      <${RequestFacts} page=${data} />
      ${
        data.stages?.length > 0 &&
        html`
        <${Section} title="Where the time went"><${Waterfall} stages=${data.stages} outcome=${data.outcome} /><//>`
      }
      <${Section} title="Why this worker" about=${why(data)}>
        ${data.calls.map((call, index) => html`<${DecisionCall} key=${index} call=${call} />`)}
      <//>
      <${Section} title="Shadow" about="What a shadow policy would have chosen for this request.">
        <${ShadowChoice} id=${data.request} />
      <//>
      <${Section} title="Replay" about="Decides the recorded call again with another policy. Nothing is sent anywhere.">
        <${Replay} id=${data.request} call=${data.calls.at(-1)} />
      <//>
      <${Command} command=${conductor('explain', id)} />`
    }`;
}

function RequestFacts({ page }) {
  const { outcome } = page;
  const call = page.calls.at(-1);
  const tokens = outcome?.['prompt-tokens'] ?? null;
  const cached = outcome?.['cached-tokens'] ?? null;
  return html`<${Facts} facts=${[
    ['Request', html`<code>${page.request}</code>`],
    [
      'Outcome',
      outcome ? html`<${State} state=${outcome.outcome} kind=${kindOfOutcome(outcome.outcome)} />` : 'still open',
    ],
    ['Status', outcome?.status],
    ['Decided', call && dateTime(call.unix_us / 1e6)],
    ['Model', call?.model],
    ['Path', call && html`<code>${call.path}</code>`],
    ['Pool', call && `${call.pool}, route ${call.route}`],
    ['Worker', outcome?.worker],
    ['Prefill worker', outcome?.prefill],
    ['First token', ms(outcome?.['ttft-ms'])],
    ['Duration', ms(outcome?.['duration-ms'])],
    [
      'Prompt',
      tokens && `${count(tokens)} tokens, ${cached === null ? 'cached unknown' : `${percent(cached / tokens)} cached`}`,
    ],
    ['Output', outcome?.['output-tokens'] && `${count(outcome['output-tokens'])} tokens`],
    ['Session', call?.session && html`<code>${call.session}</code>`],
  ]} />`;
}

function ms(value) {
  return typeof value === 'number' ? seconds(value / 1e3) : null;
}

function why({ calls, left_out }) {
  const decisions =
    calls.length === 1 ? 'One decision was made.' : `${calls.length} decisions were made, the last one counts.`;
  return left_out > 0 ? `${decisions} ${left_out} more are not kept.` : decisions;
}
