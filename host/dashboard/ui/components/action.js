// Button that changes the router. It opens a confirmation with the effect of the change and the equivalent command.

import { RequestError } from '../api.js';
import { html } from '../html.js';
import { useDisabled } from '../rights.js';
import { useEffect, useId, useRef, useState } from '../vendor/hooks.js';
import { requestKey } from './key_form.js';

/** Distances of a confirmation from the edge of the window and from its button, in pixels. */
const EDGE = 16;
const GAP = 6;

/**
 * Button with a confirmation. `label` is the text of the button, `effect` describes the change, and `command` is the
 * equivalent command line. `run` makes the change and may return a message. `unavailable` is the reason why the caller
 * disables the button. `feature` is a kind of change that /admin/me may disable. A disabled button still opens its
 * confirmation, which shows the reason and the command.
 */
export function Action({ label, effect, command, run, feature, unavailable = null, isDanger = false, children }) {
  const [isOpen, setOpen] = useState(false);
  const [result, setResult] = useState(null);
  const button = useRef(null);
  const panel = useId();
  const disabled = useDisabled(feature);
  const reason = unavailable ?? disabled;

  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const confirm = async () => {
    setResult({ kind: 'busy', text: 'The router is working on it…' });
    try {
      const text = await run();
      setResult({ kind: 'good', text: text ?? 'Done.' });
    } catch (error) {
      setResult({ kind: 'bad', text: error.message });
      if (!(error instanceof RequestError)) console.error(error);
    }
    close();
  };
  const toggle = () => {
    setResult(null);
    setOpen(!isOpen);
  };

  return html`
    <div class="action">
      <button type="button" ref=${button} class=${isDanger ? 'danger' : ''} aria-expanded=${isOpen}
        aria-controls=${isOpen ? panel : undefined} aria-disabled=${reason !== null} title=${reason ?? undefined}
        onClick=${toggle}>${label}</button>
      ${
        isOpen &&
        html`
        <${Confirmation} id=${panel} button=${button} label=${label} effect=${effect} command=${command} reason=${reason}
          isNeedingKey=${unavailable === null && disabled !== null} isDanger=${isDanger}
          isBusy=${result?.kind === 'busy'} onConfirm=${confirm} onCancel=${close}>${children}<//>`
      }
      <span class=${`action-result text-${result?.kind ?? 'none'}`} role="status">${result?.text}</span>
    </div>`;
}

function Confirmation(props) {
  const { id, button, label, effect, command, reason, isNeedingKey, isDanger, isBusy, onConfirm, onCancel, children } =
    props;
  const panel = useRef(null);
  const first = useRef(null);
  useEffect(() => {
    showBelow(panel.current, button.current);
    first.current?.focus();
  }, []);
  const onKeyDown = (event) => event.key === 'Escape' && onCancel();
  const hasFirst = reason === null || isNeedingKey;
  return html`
    <div id=${id} ref=${panel} class="confirmation" popover="manual" role="group" aria-label=${`Confirm: ${label}`} onKeyDown=${onKeyDown}>
      ${reason === null ? html`<p>${effect}</p>${children}` : html`<p>Not available here: ${reason}.</p>`}
      ${command && html`<${Command} command=${command} />`}
      <div class="buttons">
        ${
          reason === null &&
          html`
          <button type="button" ref=${first} class=${isDanger ? 'danger primary' : 'primary'} disabled=${isBusy}
            onClick=${onConfirm}>${label}</button>`
        }
        ${isNeedingKey && html`<button type="button" ref=${first} onClick=${requestKey}>Enter a key</button>`}
        <button type="button" ref=${hasFirst ? undefined : first} onClick=${onCancel}>Cancel</button>
      </div>
    </div>`;
}

/** Shows a popover below a button. A popover is in the top layer, so that a scrolled table does not clip it. */
function showBelow(panel, button) {
  panel.showPopover();
  const { left, bottom } = button.getBoundingClientRect();
  const mostLeft = document.documentElement.clientWidth - panel.offsetWidth - EDGE;
  panel.style.left = `${Math.max(EDGE, Math.min(left, mostLeft)) + scrollX}px`;
  panel.style.top = `${bottom + GAP + scrollY}px`;
}

/** Command line that one click selects. */
export function Command({ command, label = 'From a terminal' }) {
  return html`
    <div class="command">
      <span class="muted">${label}</span>
      <code tabindex="0">${command}</code>
    </div>`;
}
