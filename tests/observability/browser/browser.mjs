// Chromium for tests. Every error and warning on its console, and every failed request, is a problem.

import { chromium } from 'playwright-core';

import { watchKeys } from './keys.mjs';

const ARGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
export const DEADLINE_MS = Number(process.env.CONDUCTOR_RIG_DEADLINE ?? 120) * 1000;

export async function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGS });
}

/**
 * Opens a tab. `expected` are patterns of console messages that are not problems. The browser reports every response
 * with an error status on the console, including responses that a test expects.
 */
export async function openTab(browser, { scheme = 'light', problems, expected = [], bypassCSP = false }) {
  const context = await browser.newContext({
    colorScheme: scheme, viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', bypassCSP,
  });
  const tab = await context.newPage();
  tab.setDefaultTimeout(DEADLINE_MS);
  await watchKeys(tab);
  const isExpected = (text) => expected.some((pattern) => pattern.test(text));
  tab.on('console', (message) => {
    const text = `${message.text()} (${message.location().url})`;
    if (['error', 'warning'].includes(message.type()) && !isExpected(text)) problems.push(`${scheme}: console: ${text}`);
  });
  tab.on('pageerror', (error) => problems.push(`${scheme}: ${error.stack ?? error.message}`));
  return tab;
}

/** Opens a page by its link in the navigation. */
export async function goTo(tab, title) {
  await tab.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: title }).click();
  await tab.getByRole('heading', { level: 1, name: title }).waitFor();
}

/** Opens the confirmation of a button and confirms. Waits until it is closed, which is after the router's response. */
export async function confirm(place, label) {
  const tab = place.page();
  await place.getByRole('button', { name: label, exact: true }).first().click();
  const panel = tab.getByRole('group', { name: `Confirm: ${label}` });
  await panel.getByRole('button', { name: label, exact: true }).click();
  await panel.waitFor({ state: 'detached' });
}

/** Prints the claim, or fails with it if it does not hold. */
export function claim(holds, text) {
  if (!holds) throw new Error(`failed: ${text}`);
  console.log(`ok: ${text}`);
}

/** Waits until the element is visible, and prints the claim. */
export async function claimSeen(locator, text) {
  await locator.first().waitFor();
  claim(true, text);
}

/** Waits until at least `count` elements are visible, and claims that there are exactly `count`. */
export async function claimCount(locator, count, text) {
  await locator.nth(count - 1).waitFor();
  claim(await locator.count() === count, text);
}
