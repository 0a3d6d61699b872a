// Dialog for the admin key.

import { html } from '../html.js';
import { adminKey, setAdminKey } from '../key.js';
import { useMe } from '../rights.js';
import { useEffect, useRef, useState } from '../vendor/hooks.js';

let open = () => {};

/** Opens the dialog. */
export function requestKey() {
  open();
}

/** Dialog, once in the page. It opens automatically if reads need a key and the tab has no key. */
export function KeyDialog() {
  const dialog = useRef(null);
  const field = useRef(null);
  const [hasKey, setHasKey] = useState(adminKey() !== null);
  const { error } = useMe();

  open = () => {
    setHasKey(adminKey() !== null);
    if (!dialog.current?.open) dialog.current?.showModal();
  };
  useEffect(() => {
    if (error?.needsKey) requestKey();
  }, [error]);

  const use = (event) => {
    event.preventDefault();
    setAdminKey(field.current.value);
    field.current.value = '';
    dialog.current.close();
  };
  const forget = () => {
    setAdminKey(null);
    dialog.current.close();
  };

  return html`
    <dialog ref=${dialog} aria-labelledby="key-title">
      <form onSubmit=${use}>
        <h2 id="key-title">Admin key</h2>
        <p class="muted">
          Changes need the key of <code>admin-api-key</code> in [server]. It stays in this tab, and travels in the header
          X-API-Key only.
        </p>
        ${error?.needsKey && html`<p class="text-bad" role="alert">${error.message}</p>`}
        <label for="key-field">Key</label>
        <input id="key-field" ref=${field} type="password" autocomplete="off" required />
        <div class="buttons">
          <button type="submit" class="primary">Use this key</button>
          ${hasKey && html`<button type="button" onClick=${forget}>Forget the key</button>`}
          <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        </div>
      </form>
    </dialog>`;
}
