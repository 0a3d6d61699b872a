// Reports keys that a page of the dashboard reads from a response without them. The router may have renamed such a key.

/** Paths of optional keys, which some responses lack. */
const OPTIONAL = [
  // Maps whose keys are names.
  /^\/admin\/me\.disabled\./, /^\/admin\/history\.(pools|workers)\./, /\.numbers\./, /\.canaries\./,
  // Keys that only some states have.
  /^\/admin\/config\.warnings$/, /\.pipeline$/, /\.compiling$/, /\.parts$/, /\.comparisons$/, /\.fault$/, /\.own$/,
  /\.isOwn$/, /\.problems$/, /\.error$/, /\.gone$/, /\.listed$/, /\.configured$/, /\.original\.(detail|score)$/,
];

/** Makes a tab report reads of missing keys as errors on its console. */
export async function watchKeys(tab) {
  const sources = OPTIONAL.map(({ source }) => source);
  await tab.addInitScript(watch, sources);
}

/** Runs in the page, before its scripts. */
function watch(sources) {
  const optional = sources.map((source) => new RegExp(source));
  const proxies = new WeakMap();
  const reported = new Set();
  // Promises and JSON.stringify read these keys of any object.
  const languageKeys = new Set(['then', 'toJSON']);

  const report = (place) => {
    if (reported.has(place) || optional.some((pattern) => pattern.test(place))) return;
    reported.add(place);
    console.error(`a response has no key ${place}`);
  };
  const watched = (value, place) => {
    if (value === null || typeof value !== 'object') return value;
    if (!proxies.has(value)) proxies.set(value, new Proxy(value, { get: (target, key) => get(target, key, place) }));
    return proxies.get(value);
  };
  const get = (target, key, place) => {
    const found = target[key];
    if (typeof key === 'symbol' || typeof found === 'function' || languageKeys.has(key)) return found;
    if (Array.isArray(target)) return watched(found, `${place}[]`);
    if (!(key in target)) report(`${place}.${key}`);
    return watched(found, `${place}.${key}`);
  };

  const { json } = Response.prototype;
  Response.prototype.json = async function () {
    return watched(await json.call(this), new URL(this.url).pathname);
  };
  const { parse } = JSON;
  JSON.parse = (text, reviver) => watched(parse(text, reviver), 'event');
}
