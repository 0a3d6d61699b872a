// Lookup of a prompt in the index: cached tokens of the prompt at each worker, by tier.

import { change, RequestError } from '../../api.js';
import { Share, Stack } from '../../components/bars.js';
import { Choice, TextArea, TextField } from '../../components/form.js';
import { Empty, Notice } from '../../components/layout.js';
import { Table } from '../../components/table.js';
import { count, plural } from '../../format.js';
import { html } from '../../html.js';
import { useLive } from '../../live.js';
import { useResource } from '../../resource.js';
import { useDisabled } from '../../rights.js';
import { useState } from '../../vendor/hooks.js';

const KINDS = [
  ['prompt', 'Text of a completion'],
  ['messages', 'Messages of a chat (JSON, or one user message)'],
  ['tokens', 'Token ids'],
];

export function Lookup() {
  const { fleet } = useLive();
  const [kind, setKind] = useState('prompt');
  const [pool, setPool] = useState('');
  const [model, setModel] = useState(null);
  const [text, setText] = useState('');
  const [result, setResult] = useState(null);
  const disabled = useDisabled('lookup');
  const served = useServedModel();
  const named = model ?? served;

  const run = async (event) => {
    event.preventDefault();
    try {
      const body = { ...(pool && { pool }), model: named, [kind]: content(kind, text) };
      setResult({ page: await change('/admin/index/lookup', body) });
    } catch (error) {
      if (!(error instanceof RequestError || error instanceof SyntaxError)) throw error;
      setResult({ error });
    }
  };
  return html`
    <form onSubmit=${run}>
      <div class="filters">
        <${Choice} label="What is pasted" value=${kind} choices=${KINDS} onChange=${setKind} />
        ${
          fleet?.pools.length > 1 &&
          html`
          <${Choice} label="Pool" any="by the model's route" value=${pool} onChange=${setPool}
            choices=${fleet.pools.map(({ name }) => name)} />`
        }
        <${TextField} label="Model" required value=${named} onChange=${setModel} />
      </div>
      <${TextArea} label="Prompt" rows=${5} required value=${text} onChange=${setText}
        placeholder=${kind === 'tokens' ? '128000, 9906, 1917' : 'Paste it here'} />
      <div class="buttons">
        <button type="submit" class="primary" disabled=${disabled !== null} title=${disabled}>Look up</button>
        ${disabled && html`<p class="muted">${disabled}</p>`}
      </div>
    </form>
    ${result?.error && html`<${Notice} kind="bad">${result.error.message}<//>`}
    ${result?.page && html`<${Found} page=${result.page} />`}`;
}

/** Returns the model of a worker, as the default value of the field. */
function useServedModel() {
  const { data } = useResource('/status');
  const workers = data?.pools.flatMap(({ workers: ofPool }) => ofPool) ?? [];
  const names = workers.flatMap(({ models }) => models.listed?.models ?? models.configured ?? []);
  return names[0] ?? '';
}

/** Returns the pasted text in the format of the request. Throws a SyntaxError if the text is invalid. */
function content(kind, text) {
  if (kind === 'tokens') {
    const tokens = text
      .replace(/[[\]]/g, ' ')
      .split(/[\s,]+/)
      .filter(Boolean)
      .map(Number);
    if (!tokens.every(Number.isInteger))
      throw new SyntaxError('token ids are whole numbers, with commas or spaces between');
    return tokens;
  }
  if (kind === 'messages') {
    return text.trimStart().startsWith('[') ? JSON.parse(text) : [{ role: 'user', content: text }];
  }
  return text;
}

function Found({ page }) {
  const columns = [
    { name: 'Worker', isHead: true, cell: ({ worker }) => worker },
    {
      name: 'Cached',
      cell: ({ matched_tokens }) => html`<${Share} value=${page.tokens > 0 ? matched_tokens / page.tokens : 0} />`,
    },
    { name: 'Tokens', number: true, cell: ({ matched_tokens }) => count(matched_tokens) },
    { name: 'Blocks', number: true, cell: ({ matched_blocks }) => `${count(matched_blocks)} of ${count(page.blocks)}` },
    {
      name: 'Tiers',
      cell: ({ tiers }) =>
        html`<${Stack} parts=${Object.entries(tiers).filter(([, value]) => value > 0)} format=${count} />`,
    },
  ];
  const workers = [...page.workers].sort((a, b) => b.matched_tokens - a.matched_tokens);
  return html`
    <p aria-live="polite">
      ${plural(page.tokens, 'token')} in ${plural(page.blocks, 'block')} of ${page.block_size}, for pool ${page.pool} and
      model ${page.model} <span class="muted">(tokens: ${page.how})</span>
    </p>
    ${
      workers.length === 0
        ? html`<${Empty}>No worker of the pool is in the index.<//>`
        : html`<${Table} caption="Cached share of the prompt by worker" columns=${columns} rows=${workers} keyOf=${({ worker }) => worker} />`
    }`;
}
