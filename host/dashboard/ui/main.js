// Entry point of the dashboard.

import { html } from './html.js';
import { takeKeyFromAddress } from './key.js';
import { startLive } from './live.js';
import { RightsProvider } from './rights.js';
import { Shell } from './shell.js';
import { render } from './vendor/preact.js';

takeKeyFromAddress();
// The browser does not reload the page if only the fragment of the address changes.
addEventListener('hashchange', takeKeyFromAddress);
startLive();
const place = document.getElementById('app');
place.replaceChildren();
render(html`<${RightsProvider}><${Shell} /><//>`, place);
