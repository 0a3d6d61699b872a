// The admin key of this tab. It lives in sessionStorage, so that it goes with the tab, and travels in a header only.

const NAME = 'conductor-admin-key';
const listeners = new Set();

/** Moves a key from the address (`#key=...`) into storage. A fragment is sent nowhere; here it also leaves history. */
export function takeKeyFromAddress() {
  const found = /^#key=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(history.state, '', location.pathname + location.search);
  setAdminKey(decoded(found[1]));
}

/** Returns a text without its percent encoding, or as it is if that is broken: then the router refuses the key. */
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

/** Stores a key, or forgets it if it is empty. */
export function setAdminKey(key) {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
  for (const listener of listeners) listener();
}

/** Calls the listener after each change. Returns a function that ends it. */
export function onKeyChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
