// Client-side router. Each page with its filters has its own address, which can be shared.

import { html } from './html.js';
import { useEffect, useMemo, useState } from './vendor/hooks.js';

const listeners = new Set();

function announce() {
  for (const listener of listeners) listener();
}

addEventListener('popstate', announce);

/** Navigates to an address. `replace` adds no entry to the history, for filters that change while the user types. */
export function navigate(to, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  announce();
}

/** Returns the path segments after `/ui`, and the query. */
export function useAddress() {
  const [address, setAddress] = useState(location.pathname + location.search);
  useEffect(() => {
    const listener = () => setAddress(location.pathname + location.search);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return useMemo(() => {
    const { pathname, searchParams } = new URL(address, location.origin);
    const segments = pathname.split('/').filter(Boolean).slice(1);
    return { segments: segments.map(decoded), query: Object.fromEntries(searchParams) };
  }, [address]);
}

/** Decodes a path segment. Returns a segment with an invalid encoding unchanged; no page has this name. */
function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Returns the query and a function that replaces some of its values in the address. */
export function useQuery() {
  const { query } = useAddress();
  const setQuery = (changes) => {
    const merged = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value) merged.set(name, value);
      else merged.delete(name);
    }
    const text = merged.toString();
    navigate(location.pathname + (text ? `?${text}` : ''), { replace: true });
  };
  return [query, setQuery];
}

/** Link to another page of the dashboard. The browser handles clicks that open a new tab or window. */
export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return html`<a href=${to} onClick=${follow} ...${rest}>${children}</a>`;
}
