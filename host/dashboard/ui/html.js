// Markup in template strings, without a build step. Values become text nodes or properties, never markup.

import htm from './vendor/htm.js';
import { h } from './vendor/preact.js';

export const html = htm.bind(h);
