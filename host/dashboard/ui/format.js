// Formats of numbers and times for display. An unknown value is a dash.

export const UNKNOWN = '–';

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** Returns a number with at most three significant digits: 0.0123, 4.56, 78.9, 1,234, 56.7k. */
export function number(value) {
  if (!isNumber(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(3)));
}

/** Returns a whole number with separators. */
export function count(value) {
  return isNumber(value) ? Math.round(value).toLocaleString('en') : UNKNOWN;
}

/** Returns a duration in seconds, formatted in a suitable unit. */
export function seconds(value) {
  if (!isNumber(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (size < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (size < 120) return `${Number(value.toPrecision(3))} s`;
  if (size < 7200) return `${Math.round(value / 60)} min`;
  if (size < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

/** Returns a share of 1 in per cent. */
export function percent(value) {
  if (!isNumber(value)) return UNKNOWN;
  const shown = value * 100;
  return `${Math.abs(shown) < 10 && shown !== 0 ? Number(shown.toPrecision(2)) : Math.round(shown)} %`;
}

/** Returns a signed share of 1 in per cent, as a difference. */
export function change(value) {
  if (!isNumber(value)) return UNKNOWN;
  return value > 0 ? `+${percent(value)}` : percent(value);
}

/** Returns the time of day of a Unix time in seconds. */
export function time(at) {
  if (!isNumber(at)) return UNKNOWN;
  return new Date(at * 1000).toLocaleTimeString('en-GB', { hour12: false });
}

/** Returns date and time of a Unix time in seconds. */
export function dateTime(at) {
  if (!isNumber(at)) return UNKNOWN;
  const date = new Date(at * 1000);
  const day = date.toLocaleDateString('sv-SE');
  return day === new Date().toLocaleDateString('sv-SE') ? time(at) : `${day} ${time(at)}`;
}

/** Returns the first characters of a hash or an id. */
export function short(text, length = 12) {
  if (!text) return UNKNOWN;
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/** Returns a count with its noun. */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}
