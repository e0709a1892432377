// What a report's figures write: numbers with units, times and names; and elements that hold them.

const DURATIONS = [[1e-6, 'µs'], [1e-3, 'ms'], [1, 's'], [60, 'min'], [3600, 'h'], [86400, 'd']];
const FROM = {'ms': 1e-3, 'milliseconds': 1e-3, 's': 1, 'seconds': 1, 'us': 1e-6, 'µs': 1e-6, 'microseconds': 1e-6};
// A unit is used until the next one says the same in fewer digits: 119 s, then minutes.
const UNTIL = [999.5e-6, 0.9995, 119.5, 119.5 * 60, 47.95 * 3600, Infinity];
const OCTETS = new Set(['octets', 'bytes', 'B']);

function digits(value) {
  const size = Math.abs(value);
  if (size && (size < 0.001 || size >= 1e6)) return value.toPrecision(2).replace(/\.?0+e/, 'e');
  const places = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString('en-US', {maximumFractionDigits: places});
}

function duration(seconds) {
  if (!seconds) return '0';
  const place = UNTIL.findIndex((until) => Math.abs(seconds) < until);
  return `${digits(seconds / DURATIONS[place][0])} ${DURATIONS[place][1]}`;
}

function quantity(value, unit) {
  if (value === null || value === undefined) return '–';
  if (FROM[unit]) return duration(value * FROM[unit]);
  const [size, suffix] = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([each]) => Math.abs(value) >= each) || [1, ''];
  if (OCTETS.has(unit)) return `${digits(value / size)} ${suffix}B`;
  if (Math.abs(value) < 10000) return Number.isInteger(value) ? value.toLocaleString('en-US') : digits(value);
  return `${digits(value / size)}${suffix}`;
}

function counted(value) { return Math.round(value).toLocaleString('en-US'); }

function moment(seconds, length) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().replace(/^[+]0*/, '').replace('T', ' ').slice(0, length || 16);
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

// A mark of a time axis: no more than tells it from its neighbours, which are `step` seconds away.
function clock(seconds, step) {
  const date = new Date(Math.round(seconds * 1000));
  if (seconds % 86400 === 0) return step >= 300 * 86400 ? String(date.getUTCFullYear()) : `${MONTHS[date.getUTCMonth()]} ${date.getUTCDate()}`;
  return date.toISOString().slice(-13, step < 1 ? -1 : step < 60 ? -5 : -8);
}

function short(text, limit) {
  if (text.length <= limit) return text;
  const front = Math.floor((limit - 1) * 2 / 3);
  return `${text.slice(0, front)}…${text.slice(text.length - (limit - 1 - front))}`;
}

function label(value) {
  if (value === null || value === undefined) return '(none)';
  return short(String(value).split(/\s+/).join(' ').trim(), 120) || '(empty)';
}

// --- widths

const FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
const PAPER = document.createElement('canvas').getContext('2d');

function measured(text, size, weight) {
  PAPER.font = `${weight || 400} ${size}px ${FONT}`;
  return PAPER.measureText(text).width;
}

// The text, without as much of its middle as the room asks for.
function fit(text, room, size, weight) {
  if (measured(text, size, weight) <= room) return text;
  let low = 1, high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measured(short(text, middle), size, weight) <= room) low = middle; else high = middle - 1;
  }
  return short(text, low);
}

// --- elements

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

