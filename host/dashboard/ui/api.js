// HTTP client of the admin API.

import { adminKey } from './key.js';

/** Error of a failed request, with the body of the router's error response. */
export class RequestError extends Error {
  constructor(message, { status = 0, code = '', body = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
  }

  /** Problems with their positions, or an empty list if the error response has none. */
  get problems() {
    return this.body?.problems ?? [];
  }

  get needsKey() {
    return this.status === 401 || this.code === 'host_not_allowed';
  }
}

/** Sends a request with the admin key. Returns the response, or throws a RequestError unless its status is 2xx. */
export async function send(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const key = adminKey();
  const sent = new Headers(headers);
  if (key) sent.set('X-API-Key', key);
  let response;
  try {
    response = await fetch(path, { method, body, headers: sent, signal, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new RequestError('the router cannot be reached', { code: 'unreachable' });
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  const error = body?.error ?? {};
  const message = error.message ?? `the router answered with status ${response.status}`;
  return new RequestError(message, { status: response.status, code: error.code ?? '', body });
}

/** Reads a JSON page. */
export async function read(path, signal) {
  const response = await send(path, { signal });
  return response.json();
}

/** Sends a JSON body, and returns the JSON of the response. */
export async function change(path, body = {}, { method = 'POST', headers = {}, signal } = {}) {
  const response = await send(path, {
    method,
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', ...headers },
    signal,
  });
  return response.status === 204 ? null : response.json();
}

/** Returns a path of encoded parts, with a query without empty values. */
export function address(parts, query = {}) {
  const path = `/${parts.map(encodeURIComponent).join('/')}`;
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}
