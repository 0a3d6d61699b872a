// Command lines equivalent to the buttons, for scripts and for users without a key.

/** Quotes an argument for a POSIX shell, if it needs quotes. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Returns a command of the `conductor` binary, which reads the key from ADMIN_API_KEY. */
export function conductor(...args) {
  return ['conductor', ...args.map(String).map(quoted), '--admin', quoted(location.origin)].join(' ');
}

/** Returns the curl command of a request. */
export function curl(method, path, body) {
  const parts = ['curl', '-X', method, quoted(location.origin + path), '-H "X-API-Key: $ADMIN_API_KEY"'];
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", '-d', quoted(JSON.stringify(body)));
  return parts.join(' ');
}

/** Returns the curl command of a file's upload. */
export function curlFile(method, path, file, headers = {}) {
  const parts = ['curl', '-X', method, quoted(location.origin + path), '-H "X-API-Key: $ADMIN_API_KEY"'];
  for (const [name, value] of Object.entries(headers)) parts.push('-H', quoted(`${name}: ${value}`));
  return [...parts, '--data-binary', quoted(`@${file}`)].join(' ');
}
