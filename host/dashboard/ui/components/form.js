// Form fields with labels.

import { html } from '../html.js';
import { useId } from '../vendor/hooks.js';

/** Text field of one line. */
export function TextField({ label, value, onChange, ...rest }) {
  const id = useId();
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <input id=${id} type="text" value=${value ?? ''} onInput=${(event) => onChange(event.currentTarget.value)} ...${rest} />
    </div>`;
}

/** Selection list. `choices` are texts or `[value, text]`. `any` is the text of the empty choice. */
export function Choice({ label, value, onChange, choices, any }) {
  const id = useId();
  const pairs = choices.map((choice) => (Array.isArray(choice) ? choice : [choice, choice]));
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <select id=${id} value=${value ?? ''} onChange=${(event) => onChange(event.currentTarget.value)}>
        ${any && html`<option value="">${any}</option>`}
        ${pairs.map(([choice, text]) => html`<option key=${choice} value=${choice}>${text}</option>`)}
      </select>
    </div>`;
}

/** Text field of several lines. */
export function TextArea({ label, value, onChange, rows = 6, inputRef, ...rest }) {
  const id = useId();
  return html`
    <div class="field field-wide">
      <label for=${id}>${label}</label>
      <textarea id=${id} ref=${inputRef} rows=${rows} spellcheck="false" value=${value}
        onInput=${(event) => onChange(event.currentTarget.value)} ...${rest}></textarea>
    </div>`;
}
