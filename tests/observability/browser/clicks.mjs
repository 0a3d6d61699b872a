// What an operator does on each page, and what must then be seen.

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
  claim(true, 'a filter is part of the address');
  const before = await rows.first().innerText();
  await tab.waitForFunction(
    (old) => document.querySelector('main tbody tr')?.innerText !== old, before);
  claim(true, 'new requests come in while the page is open');
  await tab.getByRole('button', { name: 'Follow' }).click();
  await rows.first().getByRole('link').first().click();
  await tab.getByRole('table', { name: 'Candidates' }).first().waitFor();
  await claimSeen(tab.getByText('✓ answers'), 'a request shows the chosen worker among the candidates');
  await claimSeen(tab.locator('.waterfall tbody tr', { hasText: 'connect' }), 'a request shows its stages');
  await tab.getByLabel('Policy').selectOption('round-robin');
  await tab.getByRole('button', { name: 'Replay' }).click();
  await tab.locator('.notice', { hasText: 'round-robin' }).waitFor();
  claim(await tab.locator('.notice-bad').count() === 0, 'a call is replayed with another policy');
  await ended({ tab });
}

/** Requests that ended after the page was read: the stream alone has their end. */
async function ended({ tab }) {
  const page = await tab.evaluate(async () => (await fetch('/admin/requests?outcome=complete&limit=1')).json());
  const open = { ...page.requests[0], outcome: null, status: null, ttft_s: null, duration_s: null };
  const requests = [{ ...open, seq: 1e9, id: 'still-open' }, open];
  await tab.route(/\/admin\/requests\?/, (route) => route.fulfill({ json: { ...page, requests } }));
  await goTo(tab, 'Fleet');
  await goTo(tab, 'Requests');
  await tab.getByLabel('Outcome').selectOption('open');
  await claimSeen(tab.getByRole('link', { name: 'still-open' }), 'open requests are selected');
  // The stream may have its end a second later.
  await tab.getByRole('link', { name: open.id }).waitFor({ state: 'detached' });
  claim(true, 'a request that ended is open no more');
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
  await claimCount(tab.locator('.funnel tbody tr'), 4, 'the reuse funnel has four steps');
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
  claim(true, 'a promoted canary decides for its route');
  await goTo(tab, 'Fleet');
  await tab.getByRole('table', { name: 'Changes' }).getByText('route-changed').first().waitFor();
  claim(true, 'the promotion is in the list of changes');
  await goTo(tab, 'Policies');
  const { policy_dir: folder } = await tab.evaluate(async () => (await fetch('/admin/policies')).json());
  fs.writeFileSync(path.join(folder, 'no name.wasm'), '');
  await claimSeen(tab.getByText(/no name.wasm is not loaded: \S/), 'a file that is not loaded has its reason');
  await claimCount(tab.getByText(/differs from the file/), 1, 'the page shows the lines that make it permanent');
  await confirm(decides, 'Retract');
  await decides.locator('strong', { hasText: before }).waitFor();
  claim(true, 'the canary is rolled back');
  await upload(tab, component);
}

async function upload(tab, component) {
  const field = tab.getByLabel(/Drop a .wasm component here/);
  const section = tab.locator('section', { hasText: 'A component is checked' });
  await field.setInputFiles({ name: 'mine.wasm', mimeType: 'application/wasm', buffer: Buffer.from('no component') });
  await confirm(section, 'Upload');
  await section.locator('.notice-bad').waitFor();
  claim(true, 'what is no component is refused');
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
  await claimSeen(section.locator('.notice-bad', { hasText: 'choose it again' }), 'a file that was built again is chosen again');
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
  claim(fs.readFileSync(file, 'utf8') === onDisk, 'a refused edit changes nothing');

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
  claim(true, 'the history shows what the edit changed');
  await overlap({ tab, file, area });
  await hidden({ tab });
}

/** A file that is no TOML, at a router without a key: its text is null. */
async function hidden({ tab }) {
  const page = { path: '/etc/conductor/conductor.toml', text: null, sha256: null, writable: false, reason: 'no key' };
  await tab.route('**/admin/config/file', (route) => route.fulfill({ json: page }));
  await goTo(tab, 'Fleet');
  await goTo(tab, 'Configuration');
  await claimSeen(tab.getByText(/The file is no TOML/), 'a text that cannot be shown has its reason');
  await claimSeen(tab.locator('.history > li'), 'the history is shown without the text');
  await tab.unroute('**/admin/config/file');
  await tab.getByRole('button', { name: 'Read again' }).click();
  await claimSeen(tab.locator('textarea.code'), 'the editor is there as soon as the text is');
}

/** An edit of a file that changes meanwhile: the text stays, over the new file. */
async function overlap({ tab, file, area }) {
  const own = `${await area.inputValue()}# own line\n`;
  await area.fill(own);
  fs.appendFileSync(file, '# line of somebody else\n');
  await confirm(tab.locator('.editor-bar'), 'Apply');
  await tab.locator('.notice-warn', { hasText: 'The file changed' }).waitFor();
  claim(await area.inputValue() === own, 'an edit of a file that changed meanwhile is kept');
  await tab.getByRole('button', { name: 'Check', exact: true }).click();
  await tab.locator('.diff-removed', { hasText: 'line of somebody else' }).first().waitFor();
  claim(true, 'its difference from the new file is shown');
  await tab.getByRole('button', { name: 'Revert', exact: true }).click();
  claim(await area.inputValue() === fs.readFileSync(file, 'utf8'), 'the new file can be edited instead');
}

export async function routers({ tab }) {
  await goTo(tab, 'Routers');
  await claimSeen(tab.getByText(/serves alone/), 'a router without [replicas] says that it serves alone');
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
  // The demo is one router: the page of a fleet has an answer of this test.
  await tab.route('**/admin/replicas', (route) => route.fulfill({ json: fleet }));
  const members = tab.getByRole('table', { name: 'Routers of the fleet' }).locator('tbody tr');
  await members.first().waitFor();
  await claimCount(members, 3, 'the page has every router of the fleet');
  await claimSeen(tab.getByText('The configuration differs at router-1.'), 'a router with another configuration is named');
  await claimSeen(members.locator('.state', { hasText: 'silent' }), 'a silent router is shown as silent');
  const decisions = tab.getByRole('table', { name: 'Agreed decisions' });
  await claimSeen(decisions.getByText('no such policy'), 'a router that does not follow is shown with its reason');
  await tab.unroute('**/admin/replicas');
}

/** Returns a router as `/admin/replicas` has it. */
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
  claim(await tab.locator('.notice-bad').count() === 0, 'two policies are simulated on the recorded traffic');
  const verdict = await tab.locator('.card p').first().innerText();
  claim(/first tokens/.test(verdict), 'they are compared in a sentence');
}

/** The keyboard alone: the skip link, the navigation, and a confirmation that takes and returns the focus. */
export async function keyboard({ tab, base }) {
  await tab.goto(`${base}/ui/fleet`);
  await tab.getByRole('button', { name: 'Drain' }).first().waitFor();
  const focused = () => tab.evaluate(() => document.activeElement.innerText || document.activeElement.id);
  await tab.keyboard.press('Tab');
  claim(await focused() === 'Skip to the content', 'the first stop of the keyboard is the skip link');
  await tab.keyboard.press('Enter');
  claim(await tab.evaluate(() => document.activeElement.id) === 'content', 'the skip link leads to the content');
  const drain = tab.getByRole('button', { name: 'Drain' }).first();
  await drain.focus();
  await tab.waitForTimeout(2500);
  claim(await focused() === 'Drain', 'updates leave the focus where it is');
  await tab.keyboard.press('Enter');
  await tab.keyboard.press('Escape');
  claim(await focused() === 'Drain', 'a cancelled confirmation returns the focus');
}

/** A reader without a key: everything is shown, and buttons say why they do nothing. */
export async function reader({ tab, base, address }) {
  await tab.goto(`${base}/`);
  const drain = tab.getByRole('button', { name: 'Drain' }).first();
  await drain.waitFor();
  await tab.locator('[aria-disabled="true"]', { hasText: 'Drain' }).first().waitFor();
  await drain.press('Enter');
  const panel = tab.getByRole('group', { name: 'Confirm: Drain' });
  claim(/Not available here/.test(await panel.innerText()), 'without a key a button says why it is not available');
  claim(/curl -X POST/.test(await panel.innerText()), 'it shows the command that does the same');
  await panel.getByRole('button', { name: 'Cancel' }).click();
  await tab.evaluate((hash) => { location.hash = hash; }, new URL(address).hash);
  await tab.locator('[aria-disabled="false"]', { hasText: 'Drain' }).first().waitFor();
  claim(await tab.evaluate(() => location.hash) === '', 'an open tab takes the key from its address');
}
