// A Chromium that is watched: every message of its console and every failed request is a problem.

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
 * Opens a tab. `expected` are patterns of failed requests that a test makes on purpose: the browser reports a response
 * with an error status on the console.
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

/** Goes to a page by its link, as a reader does. */
export async function goTo(tab, title) {
  await tab.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: title }).click();
  await tab.getByRole('heading', { level: 1, name: title }).waitFor();
}

/** Opens the confirmation of a button, confirms, and waits until it is closed: the router has answered then. */
export async function confirm(place, label) {
  const tab = place.page();
  await place.getByRole('button', { name: label, exact: true }).first().click();
  const panel = tab.getByRole('group', { name: `Confirm: ${label}` });
  await panel.getByRole('button', { name: label, exact: true }).click();
  await panel.waitFor({ state: 'detached' });
}

/** Fails with the claim if it does not hold. */
export function claim(holds, text) {
  if (!holds) throw new Error(`not so: ${text}`);
  console.log(`ok: ${text}`);
}

/** Waits until there is such an element, and claims it. */
export async function claimSeen(locator, text) {
  await locator.first().waitFor();
  claim(true, text);
}

/** Waits until there are so many elements, and claims that there are no more. */
export async function claimCount(locator, count, text) {
  await locator.nth(count - 1).waitFor();
  claim(await locator.count() === count, text);
}
