// Store of the admin key of this tab. sessionStorage deletes the key with the tab. Requests send it only in a header.

const NAME = 'conductor-admin-key';
const listeners = new Set();

/** Moves a key from the fragment of the address (`#key=...`) to the store. Removes the fragment from the history. */
export function takeKeyFromAddress() {
  const found = /^#key=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(history.state, '', location.pathname + location.search);
  setAdminKey(decoded(found[1]));
}

/** Decodes the percent encoding of a key. Returns a key with an invalid encoding unchanged; the router refuses it. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function adminKey() {
  return sessionStorage.getItem(NAME);
}

/** Stores a key. An empty key deletes the stored key. */
export function setAdminKey(key) {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
  for (const listener of listeners) listener();
}

/** Calls the listener after each change of the key. Returns a function that removes the listener. */
export function onKeyChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
