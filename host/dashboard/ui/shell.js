// Layout of every page: navigation, the state of the event stream, and the admin key.

import { KeyDialog, requestKey } from './components/key_form.js';
import { State } from './components/state.js';
import { html } from './html.js';
import { adminKey } from './key.js';
import { setPaused, useLive } from './live.js';
import { CachePage } from './pages/cache.js';
import { ConfigurationPage } from './pages/configuration.js';
import { FleetPage } from './pages/fleet.js';
import { PoliciesPage } from './pages/policies.js';
import { RequestPage } from './pages/request.js';
import { RequestsPage } from './pages/requests.js';
import { RoutersPage } from './pages/routers.js';
import { SimulatorPage } from './pages/simulator.js';
import { useMe } from './rights.js';
import { Link, useAddress } from './router.js';
import { useEffect, useRef } from './vendor/hooks.js';

const PAGES = [
  ['fleet', 'Fleet', FleetPage],
  ['requests', 'Requests', RequestsPage],
  ['cache', 'Cache', CachePage],
  ['policies', 'Policies', PoliciesPage],
  ['configuration', 'Configuration', ConfigurationPage],
  ['simulator', 'Simulator', SimulatorPage],
  ['routers', 'Routers', RoutersPage],
];

export function Shell() {
  const { segments } = useAddress();
  const [name = 'fleet', id] = segments;
  const content = useRef(null);
  useFocusOnChange(content, `${name}/${id ?? ''}`);
  return html`
    <a class="skip-link" href="#content">Skip to the content</a>
    <header class="shell-head">
      <${Link} to="/ui/fleet" class="brand">Conductor<//>
      <nav aria-label="Pages">
        ${PAGES.map(
          ([path, title]) => html`
          <${Link} key=${path} to=${`/ui/${path}`} aria-current=${path === name ? 'page' : undefined}>${title}<//>`,
        )}
      </nav>
      <${LiveState} />
      <${KeyButton} />
    </header>
    <main id="content" tabindex="-1" ref=${content}><${Page} name=${name} id=${id} /></main>
    <${Foot} />
    <${KeyDialog} />`;
}

function Page({ name, id }) {
  if (name === 'requests' && id) return html`<${RequestPage} key=${id} id=${id} />`;
  const found = PAGES.find(([path]) => path === name);
  if (!found) return html`<h1>No such page</h1><p>There is no page <code>${name}</code>.</p>`;
  const [, , Component] = found;
  return html`<${Component} key=${name} />`;
}

/** Moves the focus to the content after a change of the page, as browsers do for a new document. */
function useFocusOnChange(content, page) {
  const shown = useRef(page);
  useEffect(() => {
    if (shown.current === page) return;
    shown.current = page;
    content.current.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [page]);
}

function LiveState() {
  const { status, error } = useLive();
  const isPaused = status === 'paused';
  const state = { live: 'good', lost: 'bad', paused: 'warn' }[status] ?? 'busy';
  return html`
    <div class="live">
      <${State} state=${status} kind=${state} title=${error?.message} />
      <button type="button" class="quiet" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>
        ${isPaused ? 'Resume updates' : 'Pause updates'}
      </button>
    </div>`;
}

function KeyButton() {
  const { data } = useMe();
  const role = data?.role === 'admin' ? 'Admin' : 'Read only';
  const about = adminKey() === null ? 'This tab has no admin key' : 'This tab has a key';
  return html`<button type="button" class="quiet" title=${about} onClick=${requestKey}>${data ? role : 'Key'}</button>`;
}

function Foot() {
  const { data } = useMe();
  const { fleet } = useLive();
  return html`
    <footer class="shell-foot muted">
      <span>Conductor ${data?.version}</span>
      <span>generation ${fleet?.generation ?? data?.generation}</span>
      <a href="/admin">JSON pages</a>
      <a href="/metrics">metrics</a>
    </footer>`;
}
