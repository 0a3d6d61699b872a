// Hook that reads a JSON page as the state of a component.

import { read } from './api.js';
import { onKeyChange } from './key.js';
import { isUpdating } from './live.js';
import { useCallback, useEffect, useRef, useState } from './vendor/hooks.js';

/**
 * Reads a page, and repeats the read every `everyMs` while the tab is visible and not paused. Returns the newest
 * content, the error of the last attempt, and a function that reads the page immediately. A null path reads nothing.
 */
export function useResource(path, { everyMs = 0 } = {}) {
  const [content, setContent] = useState({ path: null, data: null, error: null });
  const pending = useRef(null);

  const reload = useCallback(async () => {
    pending.current?.abort();
    if (path === null) return;
    const own = new AbortController();
    pending.current = own;
    try {
      const data = await read(path, own.signal);
      setContent({ path, data, error: null });
    } catch (error) {
      if (error.name === 'AbortError') return;
      // Keeps the last content of the same page along with the error.
      setContent((before) => ({ path, data: before.path === path ? before.data : null, error }));
    }
  }, [path]);

  useEffect(() => {
    reload();
    const timer = everyMs > 0 ? setInterval(() => isUpdating() && reload(), everyMs) : null;
    const endKey = onKeyChange(reload);
    return () => {
      clearInterval(timer);
      endKey();
      pending.current?.abort();
    };
  }, [reload, everyMs]);

  const isCurrent = content.path === path;
  return { data: isCurrent ? content.data : null, error: isCurrent ? content.error : null, reload };
}
