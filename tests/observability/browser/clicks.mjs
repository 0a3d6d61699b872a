// Tests of each page: the actions of an operator, and the expected content after them.

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { claim, claimCount, claimSeen, confirm, goTo } from './browser.mjs';

export async function fleet({ tab }) {
  await goTo(tab, 'Fleet');
  await tab.locator('.live .state').getByText('live').waitFor();
  const workers = tab.getByRole('table', { name: /Workers of the pool/ }).locator('tbody tr');
  await claimCount(workers, 4, 'the fleet has four workers');
  await claimCount(tab.locator('.chart canvas'), 6, 'a pool has six charts');
  await tab.locator('.chart summary').first().click();
  await claimSeen(tab.locator('.chart-table tbody tr'), 'a chart has a table with its numbers');
  await claimSeen(workers.getByRole('img', { name: /^Tokens\/s/ }), 'a worker has a chart of its last minutes');

  const row = workers.filter({ hasText: 'mock-3' });
  await confirm(row, 'Drain');
  await row.locator('.state', { hasText: 'draining' }).waitFor();
  claim(true, 'a drained worker stays visible as draining');
  await confirm(row, 'Resume');
  await row.locator('.state', { hasText: /^.ok/ }).waitFor();
  claim(true, 'a resumed worker is in service again');

  await tab.getByRole('button', { name: 'Pause updates' }).click();
  await tab.locator('.live .state').getByText('paused').waitFor();
  await tab.getByRole('button', { name: 'Resume updates' }).click();
  await tab.locator('.live .state').getByText('live').waitFor();
  claim(true, 'updates are paused and resumed');
}

export async function requests({ tab }) {
  await goTo(tab, 'Requests');
  const rows = tab.getByRole('table', { name: 'Requests' }).locator('tbody tr');
  await rows.first().waitFor();
  await tab.getByLabel('Outcome').selectOption('complete');
  await tab.waitForURL(/outcome=complete/);
  claim(true, 'a filter is in the address of the page');
  const before = await rows.first().innerText();
  await tab.waitForFunction(
    (old) => document.querySelector('main tbody tr')?.innerText !== old, before);
  claim(true, 'new requests appear while the page is open');
  await tab.getByRole('button', { name: 'Follow' }).click();
  await rows.first().getByRole('link').first().click();
  await tab.getByRole('table', { name: 'Candidates' }).first().waitFor();
  await claimSeen(tab.getByText('✓ answers'), 'a request shows the chosen worker among the candidates');
  await claimSeen(tab.locator('.waterfall tbody tr', { hasText: 'connect' }), 'a request shows its stages');
  await tab.getByLabel('Policy').selectOption('round-robin');
  await tab.getByRole('button', { name: 'Replay' }).click();
  await tab.locator('.notice', { hasText: 'round-robin' }).waitFor();
  claim(await tab.locator('.notice-bad').count() === 0, 'a decision is replayed with another policy');
  await endOfRequest({ tab });
}

/** Checks a request that ends after the page was read, so that only the stream of events has its end. */
async function endOfRequest({ tab }) {
  const page = await tab.evaluate(async () => (await fetch('/admin/requests?outcome=complete&limit=1')).json());
  const open = { ...page.requests[0], outcome: null, status: null, ttft_s: null, duration_s: null };
  const requests = [{ ...open, seq: 1e9, id: 'still-open' }, open];
  await tab.route(/\/admin\/requests\?/, (route) => route.fulfill({ json: { ...page, requests } }));
  await goTo(tab, 'Fleet');
  await goTo(tab, 'Requests');
  await tab.getByLabel('Outcome').selectOption('open');
  await claimSeen(tab.getByRole('link', { name: 'still-open' }), 'the filter selects open requests');
  // The stream may report the end a second later.
  await tab.getByRole('link', { name: open.id }).waitFor({ state: 'detached' });
  claim(true, 'a request that ended is not listed as open');
  await tab.unroute(/\/admin\/requests\?/);
}

export async function cache({ tab }) {
  await goTo(tab, 'Cache');
  await tab.getByLabel('Prompt', { exact: true }).fill('The quick brown fox jumps over the lazy dog. '.repeat(20));
  await tab.getByRole('button', { name: 'Look up' }).click();
  const found = tab.getByRole('table', { name: 'Cached share of the prompt by worker' }).locator('tbody tr');
  await found.first().waitFor();
  await claimCount(found, 4, 'a prompt is looked up at each worker');
  await tab.getByRole('table', { name: 'Hottest prefixes' }).locator('tbody tr').first().waitFor();
  await claimCount(tab.locator('.funnel tbody tr'), 4, 'the funnel of cache reuse has four steps');
}

export async function policies({ tab, component }) {
  await goTo(tab, 'Policies');
  const route = tab.getByRole('table', { name: 'Routes' }).locator('tbody tr').first();
  const decides = route.locator('td').nth(1);
  await route.waitFor();
  const before = await decides.locator('strong').innerText();
  const canaries = route.locator('td').nth(2);
  const canary = await canaries.locator('li strong').first().innerText();
  await confirm(canaries, 'Promote');
  await decides.getByText(canary).waitFor();
  claim(true, 'a promoted canary is the active policy of its route');
  await goTo(tab, 'Fleet');
  await tab.getByRole('table', { name: 'Changes' }).getByText('route-changed').first().waitFor();
  claim(true, 'the promotion is in the list of changes');
  await goTo(tab, 'Policies');
  const { policy_dir: folder } = await tab.evaluate(async () => (await fetch('/admin/policies')).json());
  fs.writeFileSync(path.join(folder, 'no name.wasm'), '');
  await claimSeen(tab.getByText(/no name.wasm is not loaded: \S/), 'a file that is not loaded is shown with the reason');
  const lines = tab.getByText(/differs from the file/);
  await claimCount(lines, 1, 'the page shows the configuration lines that make the change permanent');
  await confirm(decides, 'Retract');
  await decides.locator('strong', { hasText: before }).waitFor();
  claim(true, 'a retracted promotion restores the previous policy');
  await upload(tab, component);
}

async function upload(tab, component) {
  const field = tab.getByLabel(/Drop a .wasm component here/);
  const section = tab.locator('section', { hasText: 'A component is checked' });
  await field.setInputFiles({ name: 'mine.wasm', mimeType: 'application/wasm', buffer: Buffer.from('no component') });
  await confirm(section, 'Upload');
  await section.locator('.notice-bad').waitFor();
  claim(true, 'a file that is not a component is refused');
  await field.setInputFiles({ name: 'mine.wasm', mimeType: 'application/wasm', buffer: fs.readFileSync(component) });
  await confirm(section, 'Upload');
  await section.getByRole('table', { name: 'Scenarios' }).waitFor();
  claim(await section.locator('.state', { hasText: 'failed' }).count() === 0, 'an uploaded policy passes the scenarios');
  await tab.locator('.card', { has: tab.getByRole('heading', { name: 'mine', exact: true }) }).waitFor();
  claim(true, 'the uploaded policy is in the list');
  const built = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'built-')), 'mine.wasm');
  fs.writeFileSync(built, 'no component');
  await field.setInputFiles(built);
  fs.copyFileSync(component, built);
  await confirm(section, 'Upload');
  const notice = section.locator('.notice-bad', { hasText: 'choose it again' });
  await claimSeen(notice, 'a file that changed after it was chosen must be chosen again');
  const [chooser] = await Promise.all([tab.waitForEvent('filechooser'), field.click()]);
  await chooser.setFiles(built);
  await confirm(section, 'Upload');
  await claimSeen(section.locator('.notice-good'), 'the same file can be chosen again');
}

export async function configuration({ tab, file }) {
  await goTo(tab, 'Configuration');
  const area = tab.locator('textarea.code');
  const text = await area.inputValue();
  const onDisk = fs.readFileSync(file, 'utf8');
  claim(text === onDisk, 'the editor shows the file');

  await area.fill(`${text}\nno-such-key = 1\n`);
  await tab.getByRole('button', { name: 'Check', exact: true }).click();
  const problems = tab.getByRole('table', { name: 'Problems of this text' });
  await problems.waitFor();
  claim(/\d+:\d+/.test(await problems.locator('tbody tr').first().innerText()), 'a problem has a line and a column');
  await confirm(tab.locator('.editor-bar'), 'Apply');
  await tab.locator('.notice-bad').waitFor();
  claim(fs.readFileSync(file, 'utf8') === onDisk, 'a refused edit does not change the file');

  const generation = () => tab.locator('.facts div', { hasText: 'Generation' }).locator('dd').innerText();
  const before = await generation();
  await area.fill(text.replace('shadow-sample = 1.0', 'shadow-sample = 0.5'));
  await tab.getByRole('button', { name: 'Check', exact: true }).click();
  await tab.getByText('The text is valid.').waitFor();
  await tab.locator('.diff-added').first().waitFor();
  claim(true, 'a check shows the difference');
  await tab.getByLabel('Reason (optional)').fill('half is enough');
  await confirm(tab.locator('.editor-bar'), 'Apply');
  await tab.waitForFunction(
    (old) => document.querySelector('.facts dd').innerText !== old, before);
  claim(fs.readFileSync(file, 'utf8').includes('shadow-sample = 0.5'), 'an applied edit is written to the file');
  await tab.locator('.history > li').first().locator('summary').click();
  await tab.locator('.history .diff-added').first().waitFor();
  claim(true, 'the history shows the changes of the edit');
  await concurrentEdit({ tab, file, area });
  await hiddenText({ tab });
}

/** Checks a file that is not valid TOML at a router without a key, which sends null as the text. */
async function hiddenText({ tab }) {
  const page = { path: '/etc/conductor/conductor.toml', text: null, sha256: null, writable: false, reason: 'no key' };
  await tab.route('**/admin/config/file', (route) => route.fulfill({ json: page }));
  await goTo(tab, 'Fleet');
  await goTo(tab, 'Configuration');
  await claimSeen(tab.getByText(/The file is no TOML/), 'the page shows the reason for a hidden text');
  await claimSeen(tab.locator('.history > li'), 'the history is shown without the text');
  await tab.unroute('**/admin/config/file');
  await tab.getByRole('button', { name: 'Read again' }).click();
  await claimSeen(tab.locator('textarea.code'), 'the editor appears after a read with the text');
}

/** Checks an edit of a file that another program changes at the same time. The editor keeps the text of the edit. */
async function concurrentEdit({ tab, file, area }) {
  const own = `${await area.inputValue()}# own line\n`;
  await area.fill(own);
  fs.appendFileSync(file, '# line of somebody else\n');
  await confirm(tab.locator('.editor-bar'), 'Apply');
  await tab.locator('.notice-warn', { hasText: 'The file changed' }).waitFor();
  claim(await area.inputValue() === own, 'the editor keeps an edit of a file that changed on disk');
  await tab.getByRole('button', { name: 'Check', exact: true }).click();
  await tab.locator('.diff-removed', { hasText: 'line of somebody else' }).first().waitFor();
  claim(true, 'the page shows the difference between the edit and the changed file');
  await tab.getByRole('button', { name: 'Revert', exact: true }).click();
  claim(await area.inputValue() === fs.readFileSync(file, 'utf8'), 'a reverted editor shows the changed file');
}

export async function routers({ tab }) {
  await goTo(tab, 'Routers');
  await claimSeen(tab.getByText(/serves alone/), 'a router without [replicas] is shown as the only one');
  const fleet = {
    sharing: true, fleet: 'main', connected: true,
    own: router('a', 'router-0', 'ready', {}),
    others: [
      router('b', 'router-1', 'ready', { 'same-config': false }),
      router('c', 'router-2', 'silent', { 'silence-ms': 4000 }),
    ],
    agreement: {
      synced: true, problem: null, proposals: 0,
      entries: [{
        key: 'hold.1', kind: 'hold', revision: 7, by: 'a', 'at-unix-ms': 1795000000000,
        value: { policy: 'mine', held: [] }, routers: { a: 'applied', b: 'refused: no such policy' },
      }],
    },
  };
  // The demo has one router, so this test supplies the response for a fleet.
  await tab.route('**/admin/replicas', (route) => route.fulfill({ json: fleet }));
  const members = tab.getByRole('table', { name: 'Routers of the fleet' }).locator('tbody tr');
  await members.first().waitFor();
  await claimCount(members, 3, 'the page has every router of the fleet');
  const warning = tab.getByText('The configuration differs at router-1.');
  await claimSeen(warning, 'the page names a router with another configuration');
  await claimSeen(members.locator('.state', { hasText: 'silent' }), 'a silent router is shown as silent');
  const decisions = tab.getByRole('table', { name: 'Agreed decisions' });
  await claimSeen(decisions.getByText('no such policy'), 'a router that does not follow a decision is shown with its reason');
  await tab.unroute('**/admin/replicas');
}

/** Returns the object of a router in `/admin/replicas`. */
function router(id, name, state, more) {
  return {
    router: id, name, version: '0.1.0', state, 'silence-ms': 20, 'delay-ms': 1, requests: 3, 'same-fleet': true,
    'same-config': true, 'unknown-workers': 0, fill: null, ...more,
  };
}

export async function simulator({ tab }) {
  await goTo(tab, 'Simulator');
  await tab.getByRole('button', { name: 'Simulate' }).click();
  await tab.getByRole('table', { name: 'Figures of the policies' }).waitFor();
  claim(await tab.locator('.notice-bad').count() === 0, 'two policies are simulated with the recorded traffic');
  const verdict = await tab.locator('.card p').first().innerText();
  claim(/first tokens/.test(verdict), 'a sentence compares the two policies');
}

/** Checks the use by keyboard: the skip link, the navigation, and the focus of a confirmation. */
export async function keyboard({ tab, base }) {
  await tab.goto(`${base}/ui/fleet`);
  await tab.getByRole('button', { name: 'Drain' }).first().waitFor();
  const focused = () => tab.evaluate(() => document.activeElement.innerText || document.activeElement.id);
  await tab.keyboard.press('Tab');
  claim(await focused() === 'Skip to the content', 'the first Tab key focuses the skip link');
  await tab.keyboard.press('Enter');
  claim(await tab.evaluate(() => document.activeElement.id) === 'content', 'the skip link focuses the content');
  const drain = tab.getByRole('button', { name: 'Drain' }).first();
  await drain.focus();
  await tab.waitForTimeout(2500);
  claim(await focused() === 'Drain', 'updates of the page do not move the focus');
  await tab.keyboard.press('Enter');
  await tab.keyboard.press('Escape');
  claim(await focused() === 'Drain', 'a cancelled confirmation returns the focus');
}

/** Checks the dashboard without a key: every page is shown, and a button shows the reason why it is disabled. */
export async function reader({ tab, base, address }) {
  await tab.goto(`${base}/`);
  const drain = tab.getByRole('button', { name: 'Drain' }).first();
  await drain.waitFor();
  await tab.locator('[aria-disabled="true"]', { hasText: 'Drain' }).first().waitFor();
  await drain.press('Enter');
  const panel = tab.getByRole('group', { name: 'Confirm: Drain' });
  claim(/Not available here/.test(await panel.innerText()), 'a button without a key shows the reason why it is disabled');
  claim(/curl -X POST/.test(await panel.innerText()), 'a disabled button shows the equivalent command');
  await panel.getByRole('button', { name: 'Cancel' }).click();
  await tab.evaluate((hash) => { location.hash = hash; }, new URL(address).hash);
  await tab.locator('[aria-disabled="false"]', { hasText: 'Drain' }).first().waitFor();
  claim(await tab.evaluate(() => location.hash) === '', 'an open tab reads the key from its address and removes it');
}
