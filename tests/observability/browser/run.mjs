// Tests the dashboard of a running demo in a browser.
//
//     node run.mjs URL-WITH-KEY CONFIGURATION-FILE COMPONENT SCREENSHOTS-FOLDER
//
// Prints every claim. The exit code is 1 if a claim does not hold, if the browser reported an error, or if axe found a
// violation. Writes screenshots of every page in both colour schemes.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

import { goTo, launch, openTab } from './browser.mjs';
import * as clicks from './clicks.mjs';

const PAGES = ['Fleet', 'Requests', 'Cache', 'Policies', 'Configuration', 'Simulator', 'Routers'];
const AXE = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Error statuses of responses that the tests expect. */
const REFUSED = [/status of 422/, /status of 412/];

const [address, file, component, folder] = process.argv.slice(2);
const base = new URL(address).origin;
const problems = [];
fs.mkdirSync(folder, { recursive: true });

async function clickThrough(browser) {
  const tab = await openTab(browser, { problems, expected: REFUSED });
  await tab.goto(address);
  await tab.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor();
  if (new URL(tab.url()).hash !== '') problems.push('the key stays in the address');
  for (const name of ['fleet', 'requests', 'cache', 'policies', 'configuration', 'simulator', 'routers', 'keyboard']) {
    console.log(`-- ${name}`);
    // Tests the other pages after a failure too.
    try {
      await clicks[name]({ tab, base, file, component });
    } catch (error) {
      problems.push(`${name}: ${error.stack}`);
      await tab.screenshot({ path: path.join(folder, `failure-${name}.png`), fullPage: true });
    }
  }
  await tab.context().close();
  const other = await openTab(browser, { problems });
  await clicks.reader({ tab: other, base, address });
  await other.context().close();
}

/** Opens the page of the newest request. */
async function openRequest(tab) {
  await goTo(tab, 'Requests');
  await tab.getByRole('table', { name: 'Requests' }).locator('tbody tr .state-good').first().waitFor();
  await tab.locator('tbody tr', { has: tab.locator('.state-good') }).first().getByRole('link').first().click();
  await tab.getByRole('table', { name: 'Candidates' }).first().waitFor();
}

/**
 * Takes a screenshot of every page in a colour scheme and runs axe on it. The tab bypasses the page's content security
 * policy, which would block the script of axe.
 */
async function auditPages(browser, scheme) {
  const tab = await openTab(browser, { scheme, problems, bypassCSP: true });
  await tab.goto(address);
  for (const title of [...PAGES, 'Request']) {
    if (title === 'Request') await openRequest(tab);
    else await goTo(tab, title);
    await tab.locator('main p.muted', { hasText: /^Reading/ }).first().waitFor({ state: 'detached' });
    await tab.waitForTimeout(1500);
    await tab.screenshot({ path: path.join(folder, `${title.toLowerCase()}-${scheme}.png`) });
    await tab.addScriptTag({ content: AXE });
    const { violations } = await tab.evaluate(() => globalThis.axe.run());
    for (const { id, help, nodes } of violations) {
      problems.push(`${title}, ${scheme}: ${id}: ${help}: ${nodes.map(({ target }) => target.join(' ')).join('; ')}`);
    }
    console.log(`ok: ${title}, ${scheme}: ${violations.length} violations`);
  }
  await tab.context().close();
}

const browser = await launch();
try {
  await clickThrough(browser);
  for (const scheme of ['light', 'dark']) await auditPages(browser, scheme);
} catch (error) {
  problems.push(error.stack);
} finally {
  await browser.close();
}
for (const problem of problems) console.error(`problem: ${problem}`);
process.exitCode = problems.length > 0 ? 1 : 0;
