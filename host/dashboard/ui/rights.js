// Permissions of the user from the page /admin/me, read once for the tab and after each change of the key.

import { html } from './html.js';
import { useResource } from './resource.js';
import { createContext } from './vendor/preact.js';
import { useContext } from './vendor/hooks.js';

const Rights = createContext(null);

/** Context provider of the user's permissions. */
export function RightsProvider({ children }) {
  const me = useResource('/admin/me');
  return html`<${Rights.Provider} value=${me}>${children}<//>`;
}

/** Returns the page /admin/me as a resource. */
export function useMe() {
  return useContext(Rights);
}

/** Returns the reason why a change is not permitted, or null if it is permitted. */
export function useDisabled(feature = 'changes') {
  const { data, error } = useMe();
  if (error) return `the rights of this page are unknown: ${error.message}`;
  if (!data) return 'the rights of this page are being read';
  const off = data.disabled[feature] ?? data.disabled.changes;
  if (off) return off;
  if (data.role === 'admin') return null;
  return data.key === 'wrong' ? 'the key of this tab is not the admin key' : 'it needs the admin key';
}
