// Editor of the configuration file: edit, check without applying, and apply.

import { change, RequestError } from '../../api.js';
import { Action } from '../../components/action.js';
import { TextArea, TextField } from '../../components/form.js';
import { Notice, Pending } from '../../components/layout.js';
import { curlFile } from '../../command.js';
import { plural } from '../../format.js';
import { html } from '../../html.js';
import { useResource } from '../../resource.js';
import { useDisabled } from '../../rights.js';
import { useRef, useState } from '../../vendor/hooks.js';
import { Diff } from './diff.js';
import { Problems } from './problems.js';

const FILE = '/admin/config/file';

export function ConfigEditor({ onApplied }) {
  const file = useResource(FILE);
  const [applied, setApplied] = useState(null);
  // Draft of an edit that the router refused because the file had changed.
  const [draft, setDraft] = useState(null);
  const { data } = file;
  if (!data) return html`<${Pending} resource=${file} what="the file" />`;
  if (data.text === null) return html`<${Hidden} onReload=${file.reload} />`;
  const finish = async (outcome) => {
    setApplied(outcome);
    setDraft(null);
    await Promise.all([file.reload(), onApplied()]);
  };
  const keep = async (text) => {
    setApplied(null);
    setDraft(text);
    await Promise.all([file.reload(), onApplied()]);
  };
  // A changed file has a new key, which replaces the editor. The result or the draft of the last edit is state of this
  // component, so it is kept.
  return html`
    ${applied && html`<${Notice} kind="good">${applied}<//>`}
    <${Editor} key=${data.sha256} file=${data} draft=${draft} onApplied=${finish} onRefused=${onApplied} onMoved=${keep} />`;
}

/** Notice in place of a file in which the router cannot redact the secrets. */
function Hidden({ onReload }) {
  return html`
    <${Notice} kind="warn">
      The file is no TOML, so its secrets cannot be replaced. The router shows it only with a configured admin key.
    <//>
    <button type="button" onClick=${onReload}>Read again</button>`;
}

function Editor({ file, draft, onApplied, onRefused, onMoved }) {
  const [text, setText] = useState(draft ?? file.text);
  const [isOverNewFile, setOverNewFile] = useState(draft !== null && draft !== file.text);
  const [reason, setReason] = useState('');
  const [result, setResult] = useState(null);
  const area = useRef(null);
  const checkDisabled = useDisabled('changes');
  const isEdited = text !== file.text;
  const cannotWrite = file.writable ? null : (file.reason ?? 'the file cannot be written');

  const check = async () => {
    try {
      setResult({ check: await change('/admin/config/check', { text }) });
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      setResult({ error });
    }
  };
  const apply = async () => {
    try {
      const body = reason ? { text, reason } : { text };
      const answer = await change(FILE, body, { method: 'PUT', headers: { 'If-Match': `"${file.sha256}"` } });
      const outcome = `Applied: generation ${answer.generation}.`;
      await onApplied(outcome);
      return outcome;
    } catch (error) {
      if (error instanceof RequestError) setResult({ error });
      await (error.status === 412 ? onMoved(text) : onRefused());
      throw error;
    }
  };
  const revert = () => {
    setText(file.text);
    setOverNewFile(false);
    setResult(null);
  };

  return html`
    ${isOverNewFile && html`
      <${Notice} kind="warn">
        The file changed while this text was edited. Check shows the difference of this text from the new file. Revert loads the
        new file.
      <//>`}
    <${TextArea} label=${file.path ?? 'Configuration'} inputRef=${area} rows=${18} value=${text} onChange=${setText} class="code" />
    <div class="editor-bar">
      <button type="button" onClick=${check} disabled=${checkDisabled !== null} title=${checkDisabled}>Check</button>
      <button type="button" onClick=${revert} disabled=${!isEdited}>Revert</button>
      <${TextField} label="Reason (optional)" value=${reason} onChange=${setReason} />
      <${Action} label="Apply" feature="apply" run=${apply} unavailable=${isEdited ? cannotWrite : 'the text is unchanged'}
        command=${curlFile('PUT', FILE, 'body.json', { 'Content-Type': 'application/json', 'If-Match': `"${file.sha256}"` })}
        effect=${html`The file is replaced and reloaded: ${lineChange(file.text, text)}. A mistake in it changes nothing.`} />
    </div>
    ${checkDisabled && html`<p class="muted">${checkDisabled}</p>`}
    ${result?.error && html`<${Refused} error=${result.error} area=${area} />`}
    ${result?.check && html`<${CheckResult} check=${result.check} area=${area} />`}`;
}

/** Returns the difference between the line counts of two texts, as the end of a sentence. */
function lineChange(before, after) {
  const [old, now] = [before, after].map((text) => text.split('\n').length);
  return now === old ? 'lines are changed' : `${plural(Math.abs(now - old), 'line')} ${now > old ? 'more' : 'fewer'}`;
}

/** Moves the cursor of the editor to a problem. */
function selectIn(area, { line, column }) {
  const lines = area.current.value.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  area.current.focus();
  area.current.setSelectionRange(start, start);
}

function Refused({ error, area }) {
  return html`
    <${Notice} kind="bad">${error.message}<//>
    <${Problems} problems=${error.problems} caption="Problems of this text" onSelect=${(problem) => selectIn(area, problem)} />`;
}

function CheckResult({ check, area }) {
  const { valid, problems, changes, needs_restart, diff } = check;
  return html`
    <${Notice} kind=${valid ? 'good' : 'bad'}>
      ${valid ? 'The text is valid. ' : 'The text would be refused. '}
      ${valid && (changes.length > 0 ? `It changes: ${changes.join('; ')}.` : 'It changes nothing.')}
      ${needs_restart.length > 0 && ` A restart is needed for ${needs_restart.join(', ')}.`}
    <//>
    <${Problems} problems=${problems} caption="Problems of this text" onSelect=${(problem) => selectIn(area, problem)} />
    <${Diff} text=${diff ?? ''} />`;
}
