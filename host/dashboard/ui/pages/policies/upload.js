// Upload of a component by drag and drop or by choice. The router checks it and writes it to the policy folder.

import { address, RequestError, send } from '../../api.js';
import { Action } from '../../components/action.js';
import { TextField } from '../../components/form.js';
import { Notice } from '../../components/layout.js';
import { State } from '../../components/state.js';
import { Table } from '../../components/table.js';
import { curlFile } from '../../command.js';
import { count } from '../../format.js';
import { html } from '../../html.js';
import { useId, useState } from '../../vendor/hooks.js';

const MAX_BYTES = 16 * 1024 * 1024;
const TYPE = { 'Content-Type': 'application/wasm' };

const COLUMNS = [
  { name: 'Scenario', isHead: true, cell: ({ name }) => name },
  { name: 'Result', cell: ({ passed }) => html`<${State} state=${passed ? 'passed' : 'failed'} />` },
  { name: 'About', hides: true, cell: ({ about }) => about },
  { name: 'Verdict', cell: ({ verdict }) => verdict },
];

export function Upload({ policies, onChange }) {
  const field = useId();
  const [file, setFile] = useState(null);
  const [name, setName] = useState('');
  const [isOver, setOver] = useState(false);
  const [result, setResult] = useState(null);

  const take = (chosen) => {
    if (!chosen) return;
    setFile(chosen);
    setName(chosen.name.replace(/\.wasm$/, ''));
    setResult(null);
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files[0]);
  };
  const over = (event) => {
    event.preventDefault();
    setOver(true);
  };
  const path = address(['admin', 'policies', name]);
  const run = async () => {
    setResult(null);
    try {
      const response = await send(path, { method: 'PUT', body: await contentOf(file), headers: TYPE });
      setResult({ page: await response.json() });
    } catch (error) {
      if (error instanceof RequestError) setResult({ error });
      throw error;
    }
    await onChange();
    return 'Checked and written.';
  };

  return html`
    <div class=${`drop ${isOver ? 'drop-over' : ''}`} onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      <label for=${field}>Drop a .wasm component here, or choose one</label>
      <input id=${field} type="file" accept=".wasm,application/wasm" onClick=${forget}
        onChange=${(event) => take(event.currentTarget.files[0])} />
    </div>
    ${
      file &&
      html`
      <div class="filters">
        <${TextField} label="Name of the policy" value=${name} onChange=${setName} />
        <p>${file.name}, ${count(file.size)} bytes</p>
        <${Action} label="Upload" feature="upload" run=${run} unavailable=${whyNot(file, name)}
          command=${curlFile('PUT', path, file.name, TYPE)} effect=${effect(policies, name)} />
      </div>`
    }
    ${result?.error && html`<${Notice} kind="bad">${result.error.message}<//><${Report} report=${result.error.body} />`}
    ${
      result?.page &&
      html`
      <${Notice} kind=${result.page.active ? 'good' : 'warn'}>
        <strong>${result.page.policy}</strong> <code>${result.page.version}</code> is in ${result.page.file}
        ${result.page.active ? ' and active.' : `. It is not active yet: ${result.page.problem ?? 'it is being loaded'}.`}
      <//>
      <${Report} report=${result.page} />`
    }`;
}

/** Clears the last choice, since browsers send no change event if the same file is chosen again. */
function forget(event) {
  event.currentTarget.value = '';
}

/** Returns the bytes of a file. Browsers do not read a file that changed after it was chosen. */
async function contentOf(file) {
  try {
    return await file.arrayBuffer();
  } catch {
    throw new RequestError(`${file.name} cannot be read, perhaps because it changed after it was chosen: choose it again`, {
      code: 'file_unreadable',
    });
  }
}

function whyNot(file, name) {
  if (name === '') return 'the policy needs a name';
  return file.size > MAX_BYTES ? 'the file has more than 16 MiB' : null;
}

function effect({ policies, routes }, name) {
  const isKnown = policies.some((policy) => policy.name === name);
  const decides = routes.filter(({ policy }) => policy === name).map(({ route }) => route);
  if (decides.length > 0)
    return html`<strong>${name}</strong> decides for route ${decides.join(', ')}: the new version decides at once.`;
  return isKnown
    ? html`<strong>${name}</strong> gets a new version.`
    : html`The policy <strong>${name}</strong> is added. No route uses it yet.`;
}

/** Report of a component's check: problems, warnings, and results of the scenarios. */
function Report({ report }) {
  const { problems = [], warnings = [], scenarios = [] } = report ?? {};
  return html`
    ${[...problems, ...warnings].map(
      ({ code, message, help }, index) => html`
      <p key=${index}><code>${code}</code> ${message} ${help && html`<span class="sub">${help}</span>`}</p>`,
    )}
    ${
      scenarios.length > 0 &&
      html`<${Table} caption="Scenarios" columns=${COLUMNS} rows=${scenarios} keyOf=${({ name }) => name} />`
    }`;
}
