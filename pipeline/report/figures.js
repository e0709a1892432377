// What a report's figures look like: each a Vega-Lite specification with its data in it.

const REPORT = JSON.parse(document.getElementById('data').textContent);
const MOST_SERIES = 8, MOST_NAMES = 20, MOST_STEPS = 60, MOST_CHOICES = 60;
const OTHERS = 'others';
// From which ratio of two values on only a logarithmic axis shows both.
const WIDE = 150;
const DASHES = [[], [6, 2], [2, 2], [8, 2, 2, 2], [4, 1.5], [1.2, 1.5], [8, 2, 2, 2, 2, 2], [10, 3]];
const SHAPES = ['circle', 'diamond', 'triangle-up', 'square', 'triangle-down', 'cross', 'stroke', 'circle'];
// Words that jobs have for what became of a message, and the colour that says the same everywhere.
const MEANING = {
  delivered: 'good', arrived: 'good', sent: 'good', settled: 'good', 'to be sent': 'good',
  waiting: 'calm', 'given back': 'calm', removed: 'calm', unclaimed: 'calm', 'not transferred': 'calm', others: 'calm',
  late: 'late', expired: 'late', redelivered: 'late', reordered: 'late',
  'in doubt': 'doubt', doubled: 'doubt', altered: 'doubt',
  lost: 'bad', dead: 'dead', buried: 'dead',
};
const TROUBLE = ['bad', 'dead', 'late', 'doubt'];

// --- data and filters

// Columns by name; texts are numbers into a list of those that there are.
class Data {
  constructor(raw) {
    this.length = raw.length;
    this.columns = new Map(raw.columns.map((column) => [column.name, {
      kind: column.kind,
      values: column.codes ? column.codes.map((code) => column.values[code]) : column.values,
    }]));
    const times = raw.columns.filter((column) => column.kind === 'time');
    this.time = times.length ? times[0].name : null;
  }
  has(name) { return this.columns.has(name); }
  get(name, row) { return this.columns.get(name).values[row]; }
  kind(name) { return this.columns.get(name).kind; }
}

const DATA = REPORT.datasets.map((raw) => new Data(raw));
const chosen = {by: new Map(), from: null, to: null};

// The rows that are chosen, and by what they cannot be told apart.
function select(data, figure) {
  const tests = [], not = [];
  for (const [name, value] of chosen.by) {
    if (data.has(name)) tests.push((row) => name_of(data.get(name, row)) === value);
    else not.push(name);
  }
  if (chosen.from !== null || chosen.to !== null) {
    const every = figure.every || 0;
    if (data.time === null || figure.kind === 'timeline') not.push('time');
    else tests.push((row) => {
      const at = data.get(data.time, row);
      return at !== null && (chosen.from === null || at + every > chosen.from) && (chosen.to === null || at < chosen.to);
    });
  }
  const rows = [];
  for (let row = 0; row < data.length; row++) if (tests.every((test) => test(row))) rows.push(row);
  return {rows, not};
}

function name_of(value) { return value === null ? '(none)' : String(value); }

// Of values with weights, in any order: those of these ranks.
function quantiles(weighted, shares) {
  const sorted = [...weighted].sort((one, other) => one[0] - other[0]);
  const total = sorted.reduce((sum, [, count]) => sum + count, 0);
  return shares.map((share) => {
    let sum = 0;
    for (const [value, count] of sorted) if ((sum += count) >= share * total - 1e-9) return value;
    return null;
  });
}

const SHARES = {p50: 0.5, p90: 0.9, p99: 0.99};

// What is drawn: {x, series, y}, those of one place and series added up.
function points(figure, by) {
  const data = DATA[figure.data], {rows, not} = select(data, figure);
  const along = data.kind(figure.x);
  const place = (row) => {
    const value = data.get(figure.x, row);
    return along === 'text' ? label(value) : value;
  };
  const found = new Map();
  const add = (x, series, y) => {
    if (x === null || y === null || y === undefined) return;
    if (!found.has(series)) found.set(series, new Map());
    found.get(series).set(x, (found.get(series).get(x) || 0) + y);
  };
  if (figure.measure) {
    const of = rows.filter((row) => data.get('measure', row) === figure.measure);
    if (figure.kind === 'range' || figure.kind === 'line') {
      const weighted = new Map();
      for (const row of of) {
        const value = data.get('value', row), x = place(row);
        if (value === null || x === null || (along === 'text' && x === '(none)' && figure.x === 'link')) continue;
        if (!weighted.has(x)) weighted.set(x, []);
        weighted.get(x).push([value, data.get('messages', row)]);
      }
      const size = (x) => weighted.get(x).reduce((sum, [, count]) => sum + count, 0);
      const places = [...weighted.keys()].sort((one, other) => along === 'text' ? size(other) - size(one) : one - other);
      for (const x of places) quantiles(weighted.get(x), Object.values(SHARES)).forEach((y, place) => add(x, Object.keys(SHARES)[place], y));
    } else {
      for (const row of of) add(place(row), by ? label(data.get(by, row)) : figure.y[0], data.get('messages', row));
    }
  } else {
    for (const row of rows) for (const name of figure.y) {
      const of = figure.unit && name.endsWith(`_${figure.unit}`) ? name.slice(0, -figure.unit.length - 1) : name;
      const series = by ? (figure.y.length > 1 ? `${label(data.get(by, row))}, ${label(of)}` : label(data.get(by, row))) : label(of);
      const y = data.get(name, row);
      add(place(row), series, typeof y === 'number' ? y : null);
    }
  }
  let series = [...found].map(([name, each]) => ({name, points: each, total: [...each.values()].reduce((sum, y) => sum + y, 0)}));
  const says = [];
  if (by) series.sort((one, other) => (one.name === OTHERS) - (other.name === OTHERS) || other.total - one.total);
  if (series.length > MOST_SERIES) {
    says.push(`The ${MOST_SERIES} largest of ${series.length} are drawn; all are among the rows.`);
    series = [...series].sort((one, other) => other.total - one.total).slice(0, MOST_SERIES);
  }
  let places = [...new Set(series.flatMap((each) => [...each.points.keys()]))];
  if (along === 'text') {
    if (figure.measure && figure.kind === 'bar') {
      const sum = (x) => series.reduce((total, each) => total + (each.points.get(x) || 0), 0);
      places.sort((one, other) => sum(other) - sum(one));
    }
    if (places.length > MOST_NAMES) {
      says.push(`The first ${MOST_NAMES} of ${places.length} are drawn; all are among the rows.`);
      places = places.slice(0, MOST_NAMES);
    }
  } else places.sort((one, other) => one - other);
  const kept = new Set(places);
  const values = series.flatMap((each) => [...each.points].filter(([x]) => kept.has(x)).map(([, y]) => y));
  return {along, series, places, values, says, not};
}

function colours(names) {
  const meant = names.filter((name) => name !== OTHERS);
  if (meant.length && meant.every((name) => Object.hasOwn(MEANING, name)) && new Set(meant.map((name) => MEANING[name])).size > 1)
    return separate(names);
  return names.map((name, place) => name === OTHERS ? 'var(--series-0)' : `var(--series-${place % 8 + 1})`);
}

// Words of one meaning are shades of its colour.
function separate(names) {
  const met = new Map();
  return names.map((name) => {
    const meaning = MEANING[name], times = met.get(meaning) || 0;
    met.set(meaning, times + 1);
    return times ? `color-mix(in srgb, var(--${meaning}) ${Math.max(30, 100 - 28 * times)}%, var(--paper))` : `var(--${meaning})`;
  });
}

// --- axes

const ROUND = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200];

function round_up(value, seconds) {
  if (seconds && value > 1 && value <= 43200) return ROUND.find((each) => each >= value);
  const size = seconds && value > 43200 ? 86400 : 1;
  const power = 10 ** Math.floor(Math.log10(value / size));
  return [1, 2, 2.5, 5, 10, 20].map((step) => size * power * step).find((each) => each >= value * (1 - 1e-9));
}

// The axis of values: logarithmic where they differ much, also where some are 0.
function measure(values, unit, room, most) {
  const positive = values.filter((value) => value > 0), low = Math.min(0, ...values), high = Math.max(0, ...values);
  const least = Math.min(...positive), scale = FROM[unit] || 0;
  const logarithmic = positive.length > 0 && low === 0 && Math.max(...positive) > WIDE * least;
  const text = `quantity(datum.value, '${OCTETS.has(unit) ? 'octets' : scale ? Object.keys(FROM).find((name) => FROM[name] === scale) : ''}')`;
  if (logarithmic) {
    const zero = values.includes(0), marks = zero ? [0] : [];
    const first = Math.floor(Math.log10(least)), last = Math.ceil(Math.log10(high));
    const every = Math.max(1, Math.ceil((last - first) / Math.max(2, most)));
    for (let power = first; power <= last; power += every) {
      const mark = Number(`1e${power}`);
      if (mark >= least / 1.3 && mark <= high * 1.3 && (!zero || mark >= least)) marks.push(mark);
    }
    return {
      scale: zero ? {type: 'symlog', constant: least, domain: [0, high * 1.15], nice: false} : {type: 'log', domain: [least / 1.3, high * 1.3], nice: false},
      axis: {values: marks, labelExpr: text}, logarithmic,
    };
  }
  const from = low * room, to = high * room || (low ? 0 : 1);
  const axis = {labelExpr: text, tickCount: Math.min(5, most)};
  if (high > low) {
    const whole = !scale && !OCTETS.has(unit) && values.every(Number.isInteger);
    let step = scale ? round_up((high - low) * scale / Math.min(5, most), true) / scale : round_up((high - low) / Math.min(5, most), false);
    if (whole) step = Math.max(1, Math.round(step));
    if (step > 0 && Number.isFinite(step)) {
      axis.values = [];
      for (let mark = Math.ceil(from / step) * step; mark <= to && axis.values.length < 40; mark += step) axis.values.push(mark);
    }
  }
  return {scale: {domain: [from, to], nice: false, zero: true}, axis, logarithmic: false};
}

const QUIET = {domain: false, ticks: false, title: null};

function caption(figure, found, logarithmic) {
  const unit = FROM[figure.unit] || OCTETS.has(figure.unit) ? '' : figure.unit;
  const what = unit || (found.series.length === 1 ? found.series[0].name : '');
  return [what ? short(label(what), 40) : '', logarithmic ? 'logarithmic scale' : ''].filter(Boolean).join(', ');
}

// --- drawings: each is a Vega-Lite specification with its data in it

function tips(...pairs) { return pairs.map(([field, title]) => ({field, title, type: 'nominal'})); }

function step_of(figure, found) {
  if (found.along === 'time' && figure.every) return figure.every;
  const gaps = found.places.slice(1).map((place, number) => place - found.places[number]).filter((gap) => gap > 0);
  if (gaps.length) return Math.min(...gaps);
  if (found.along !== 'time') return 1;
  return [86400, 3600, 60, 1].find((each) => found.places[0] % each === 0) || 1;
}

function time_axis(first, last, width) {
  const most = Math.max(2, Math.min(9, Math.floor(width / 90)));
  const span = last - first;
  let step = span / most;
  step = step <= 43200 ? round_up(Math.max(step, 0.001), true) : Math.ceil(step / 86400) * 86400;
  const values = [];
  for (let mark = Math.ceil(first / step) * step; mark <= last && values.length < 40; mark += step) values.push(mark);
  return {values, labelExpr: `clock(datum.value, ${step})`, grid: false, ticks: true, tickSize: 4, domain: true, labelFlush: true, title: null};
}

// Along a time, or a number.
function curve(figure, found, width) {
  const step = step_of(figure, found), timed = found.along === 'time', columns = figure.kind === 'bar';
  const [first, last] = [found.places[0], found.places[found.places.length - 1]];
  const shown = (x) => timed ? moment(x, step < 60 ? 19 : 16) : quantity(x, '');
  const tint = colours(found.series.map((each) => each.name));
  const values = [], heights = new Map();
  found.series.forEach((series, number) => {
    let before = null;
    for (const [x, y] of [...series.points].sort((one, other) => one[0] - other[0])) {
      const said = {when: shown(x), name: series.name, said: columns ? counted_or(y, figure.unit) : quantity(y, figure.unit), colour: tint[number], series: number};
      if (columns) {
        const low = heights.get(x) || 0, left = timed ? x : x - step * 0.43;
        heights.set(x, low + y);
        values.push({...said, x: left, x2: left + step * 0.86, y: low, y2: low + y, place: x});
      } else {
        if (before !== null && x - before > 1.5 * step) values.push({...said, x: before + step, y: null});
        values.push({...said, x, y, place: x});
        before = x;
      }
    }
  });
  const up = measure(columns ? [...heights.values()] : found.values, figure.unit, 1.05, 5);
  const beyond = columns && timed ? step : 0, margin = (columns ? (timed ? 0.15 : 0.6) : 0.5) * step;
  const wide = Math.max(0, 12 * step - (last + beyond - first)) / 2;
  let [from, to] = [first - margin - wide, last + beyond + margin + wide];
  if (timed) [from, to] = [Math.max(from, -62135596800), Math.min(to, 253402300799)];
  const x = {field: 'x', type: 'quantitative', scale: {domain: [from, to], nice: false, zero: false},
    axis: timed ? time_axis(from, to, width) : {...QUIET, labelExpr: "quantity(datum.value, '')", tickCount: Math.floor(width / 90), grid: false}};
  const y = {field: 'y', type: 'quantitative', scale: columns && up.logarithmic ? linear(heights) : up.scale, axis: {...QUIET, ...(columns && up.logarithmic ? plain_axis(heights, figure.unit) : up.axis), grid: true}};
  const colour = {field: 'colour', type: 'nominal', scale: null};
  const tooltip = tips(['when', timed ? 'time' : figure.x_title], ['name', 'of'], ['said', figure.y_title]);
  const layer = columns
    ? [{mark: {type: 'rect', stroke: 'var(--paper)', strokeWidth: values.length <= 120 ? 0.5 : 0, cursor: 'pointer'}, encoding: {x, x2: {field: 'x2'}, y, y2: {field: 'y2'}, fill: colour, tooltip}}]
    : [
      {mark: {type: 'line', strokeWidth: 2, interpolate: 'linear', invalid: 'break-paths-filter-domains'},
        encoding: {x, y, stroke: colour, detail: {field: 'series', type: 'nominal'}, strokeDash: {field: 'series', type: 'nominal', legend: null, scale: {domain: DASHES.map((_, place) => place), range: DASHES}}}},
      {transform: [{filter: 'datum.y !== null'}], mark: {type: 'point', filled: true, size: found.values.length <= 480 ? 28 : 60, opacity: found.values.length <= 480 ? 1 : 0}, encoding: {x, y, fill: colour, tooltip}},
    ];
  return {
    height: 220, layer, data: {values}, caption: caption(figure, found, up.logarithmic && !columns),
    below: timed ? `${moment(first)}${first === last ? '' : ` to ${moment(last)}`} UTC` : '',
    keys: keys(found, tint, !columns),
  };
}

function linear(heights) { return {domain: [0, Math.max(...heights.values()) * 1.05 || 1], nice: false}; }
function plain_axis(heights, unit) {
  const high = Math.max(...heights.values()), step = Math.max(1, round_up(high / 5, false) || 1), values = [];
  for (let mark = 0; mark <= high * 1.05 && values.length < 40; mark += step) values.push(mark);
  return {values, labelExpr: `quantity(datum.value, '${OCTETS.has(unit) ? 'octets' : ''}')`};
}

function counted_or(value, unit) { return FROM[unit] || OCTETS.has(unit) || !Number.isInteger(value) ? quantity(value, unit) : counted(value); }

function keys(found, tint, dashed) {
  if (found.series.length < 2) return [];
  return found.series.map((series, number) => ({name: series.name, colour: tint[number], dash: dashed ? DASHES[number].join(' ') : null}));
}

// A name stands above what it names, where the whole width is its own; the number at its right.
const NAME = 18, BAR = 12, GAP = 12;

function upper(y, width, name, said, tone) {
  // The ends of the axis' numbers take some of the width.
  const room = width - 30, right = fit(said, room * 0.58, 12), left = fit(name, room - 14 - measured(right, 12), 12.5);
  return {kind: 'name', y, name: left, whole: name, said: right, tone: tone || 'var(--muted)'};
}

function upper_text() {
  return [
    {mark: {type: 'text', align: 'left', baseline: 'bottom', fontSize: 12.5, color: 'var(--ink)'},
      transform: [{filter: 'datum.kind === "name"'}],
      encoding: {x: {value: 0}, y: {field: 'y', type: 'quantitative', scale: null, axis: null}, text: {field: 'name', type: 'nominal'}, tooltip: tips(['whole', 'name'])}},
    {mark: {type: 'text', align: 'right', baseline: 'bottom', fontSize: 12},
      transform: [{filter: 'datum.kind === "name"'}],
      encoding: {x: {value: 'width'}, y: {field: 'y', type: 'quantitative', scale: null, axis: null}, text: {field: 'said', type: 'nominal'}, fill: {field: 'tone', type: 'nominal', scale: null}}},
  ];
}

function bars(figure, found, width) {
  const stacked = Boolean(figure.stacked) && found.series.length > 0, lanes = stacked ? 1 : found.series.length;
  let tint = colours(found.series.map((each) => each.name));
  const values = [];
  let y = GAP / 2;
  const meant = !stacked && found.series.length === 1 && found.places.every((name) => Object.hasOwn(MEANING, name)) ? separate(found.places) : null;
  found.places.forEach((name, row) => {
    y += NAME;
    const total = found.series.reduce((sum, each) => sum + (each.points.get(name) || 0), 0);
    const own = found.series.filter((each) => each.points.has(name));
    const said = stacked || own.length === 1 ? counted_or(stacked ? total : own[0].points.get(name), figure.unit)
      : own.map((each) => `${short(each.name, 16)} ${counted_or(each.points.get(name), figure.unit)}`).join(' · ');
    values.push(upper(y, width, name, said, TROUBLE.includes(MEANING[name]) && total ? `var(--${MEANING[name]})` : ''));
    let right = 0, left = 0;
    found.series.forEach((series, number) => {
      const value = series.points.get(name);
      if (value === undefined) return;
      const top = y + 3 + (stacked ? 0 : number * BAR), start = stacked ? (value >= 0 ? right : left) : 0;
      values.push({kind: 'bar', y: top, y2: top + BAR - (lanes > 1 ? 2 : 0), x: start, x2: start + value, name, series: series.name, said: counted_or(value, figure.unit), colour: meant ? meant[row] : tint[number], place: name});
      if (value >= 0) right += value; else left += value;
    });
    y += 3 + lanes * BAR + GAP;
  });
  const ends = stacked ? found.places.map((name) => found.series.reduce((sum, each) => sum + (each.points.get(name) || 0), 0)) : found.values;
  const low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  let along = measure(low < 0 ? [low, high] : [high], figure.unit, 1.02, Math.floor(width / 80));
  const axis = {...QUIET, ...along.axis, grid: true, orient: 'bottom'};
  return {
    height: y, data: {values}, caption: '', below: caption(figure, found, false),
    layer: [
      {transform: [{filter: 'datum.kind === "bar"'}], mark: {type: 'rect', stroke: 'var(--paper)', strokeWidth: stacked ? 0.5 : 0, cornerRadius: 1.5, cursor: 'pointer'},
        encoding: {x: {field: 'x', type: 'quantitative', scale: along.scale, axis}, x2: {field: 'x2'}, y: {field: 'y', type: 'quantitative', scale: null, axis: null}, y2: {field: 'y2'},
          fill: {field: 'colour', type: 'nominal', scale: null}, tooltip: tips(['name', figure.x_title], ['series', 'of'], ['said', figure.y_title])}},
      ...upper_text(),
    ],
    keys: keys(found, tint, false),
  };
}

function ranges(figure, found, width) {
  const tint = found.series.map((_, number) => `var(--series-${number + 1})`), values = [];
  const along = measure(found.values, figure.unit, 1.05, Math.floor(width / 80));
  let y = GAP / 2;
  for (const name of found.places) {
    y += NAME;
    const there = found.series.map((each, number) => ({number, name: each.name, value: each.points.get(name)})).filter((each) => each.value !== undefined);
    values.push(upper(y, width, name, there.map((each) => `${width < 500 && there.length > 2 ? '' : `${short(each.name, 16)} `}${quantity(each.value, figure.unit)}`).join(' · ')));
    const all = there.map((each) => each.value);
    values.push({kind: 'range', y: y + 3 + BAR / 2, x: Math.min(...all), x2: Math.max(...all)});
    for (const each of there) values.push({kind: 'mark', y: y + 3 + BAR / 2, x: each.value, name, series: each.name, said: quantity(each.value, figure.unit), colour: tint[each.number], shape: SHAPES[each.number], place: name});
    y += 3 + BAR + GAP;
  }
  const x = {field: 'x', type: 'quantitative', scale: along.scale, axis: {...QUIET, ...along.axis, grid: true}}, up = {field: 'y', type: 'quantitative', scale: null, axis: null};
  return {
    height: y, data: {values}, caption: '', below: caption(figure, found, along.logarithmic),
    layer: [
      {transform: [{filter: 'datum.kind === "range"'}], mark: {type: 'rule', strokeWidth: 4, stroke: 'var(--grid)', strokeCap: 'round'}, encoding: {x, x2: {field: 'x2'}, y: up}},
      {transform: [{filter: 'datum.kind === "mark"'}], mark: {type: 'point', filled: true, size: 70, opacity: 1, cursor: 'pointer'},
        encoding: {x, y: up, fill: {field: 'colour', type: 'nominal', scale: null}, shape: {field: 'shape', type: 'nominal', scale: null}, tooltip: tips(['name', figure.x_title], ['series', 'of'], ['said', 'value'])}},
      ...upper_text(),
    ],
    keys: found.series.map((series, number) => ({name: series.name, colour: tint[number], dash: null, round: true})),
  };
}

// A journey's steps, one below the other, each as long after the first as its place says.
function time_line(figure, width) {
  const data = DATA[figure.data], {rows, not} = select(data, figure), found = new Map();
  for (const row of rows) {
    const at = data.get(figure.x, row);
    if (at === null) continue;
    const of = figure.by ? label(data.get(figure.by, row)) : '';
    const about = figure.y.slice(1).map((name) => data.get(name, row)).filter((each) => each !== null && each !== '').join(' · ');
    if (!found.has(of)) found.set(of, []);
    found.get(of).push({at, name: label(data.get(figure.y[0], row)), about: about ? short(label(about), 60) : ''});
  }
  const values = [], told = [], all = [...found.values()].reduce((sum, steps) => sum + steps.length, 0);
  let left = MOST_STEPS, drawn = 0, longest = 0, y = GAP / 2;
  for (const [name, unsorted] of found) {
    if (left <= (name ? 1 : 0)) break;
    const steps = [...unsorted].sort((one, other) => one.at - other.at).slice(0, left - (name ? 1 : 0));
    left -= steps.length + (name ? 1 : 0);
    drawn += steps.length;
    const first = steps[0].at;
    if (name) values.push({kind: 'head', y: (y += NAME + 4), name: fit(name, width - 12, 12.5, 600)});
    let before = first, about = '';
    steps.forEach((step, number) => {
      y += NAME;
      const since = step.at - before;
      const said = number ? `+${duration(since)}` : `${moment(first, 23)} UTC`;
      const more = step.about && step.about !== about ? step.about : '';
      about = step.about;
      values.push({...upper(y, width - 12, step.name, more && width > 560 ? `${more} · ${said}` : said), whole: step.about ? `${step.name} · ${step.about}` : step.name});
      values.push({kind: 'step', y: y + 6, x: step.at - first, from: before - first, name: step.name, about: step.about, said, when: moment(step.at, 23),
        colour: `var(--${MEANING[step.name] && MEANING[step.name] !== 'good' ? MEANING[step.name] : 'series-1'})`});
      before = step.at;
      y += 12;
    });
    y += name ? 8 : 0;
    longest = Math.max(longest, before - first);
    told.push(`${name}${name ? ': ' : ''}${steps.map((step, number) => number ? `${step.name} after ${duration(step.at - first)}` : `${step.name} at ${moment(first, 23)} UTC`).join(', ')}`);
  }
  if (!drawn) return null;
  const most = Math.max(2, Math.min(6, Math.floor(width / 90))), step = longest ? round_up(longest / most, true) : 1, marks = [];
  for (let mark = 0; mark <= longest * 1.0001 && marks.length < 40; mark += step) marks.push(mark);
  const x = {field: 'x', type: 'quantitative', scale: {domain: [0, longest || 1], nice: false}, axis: {...QUIET, grid: true, values: marks, labelExpr: "quantity(datum.value, 's')", labelFlush: true}};
  const up = {field: 'y', type: 'quantitative', scale: null, axis: null}, colour = {field: 'colour', type: 'nominal', scale: null};
  return {
    not, values: drawn, says: all > drawn ? [`The first ${drawn} of ${all} steps are drawn; all are among the rows.`] : [],
    told: `Time line of ${told.length} ${told.length === 1 ? 'journey' : 'journeys'}. ${told.join('; ')}.`,
    height: y, data: {values}, caption: '', below: 'since the first step', keys: [],
    layer: [
      {transform: [{filter: 'datum.kind === "step"'}], mark: {type: 'rule', strokeWidth: 3, opacity: 0.45, clip: true}, encoding: {x: {...x, field: 'from'}, x2: {field: 'x'}, y: up, stroke: colour}},
      {transform: [{filter: 'datum.kind === "step"'}], mark: {type: 'point', filled: true, size: 60, opacity: 1}, encoding: {x, y: up, fill: colour, tooltip: tips(['name', 'step'], ['when', 'time'], ['said', 'after the step before'], ['about', 'about'])}},
      ...upper_text(),
      {transform: [{filter: 'datum.kind === "head"'}], mark: {type: 'text', align: 'left', baseline: 'bottom', fontSize: 12.5, fontWeight: 600, color: 'var(--ink)'}, encoding: {x: {value: 0}, y: up, text: {field: 'name', type: 'nominal'}}},
    ],
  };
}

// Sources, links and targets, and between them a strand for each thing that became of messages.
function map(figure, width) {
  const data = DATA[figure.data], {rows, not} = select(data, figure), routes = new Map();
  for (const row of rows) {
    const kind = data.get('measure', row);
    if (kind !== figure.measure && kind !== 'late') continue;
    const ends = [figure.x, ...figure.y].map((name) => label(data.get(name, row)));
    const key = ends.join('\n');
    if (!routes.has(key)) routes.set(key, {ends, states: new Map(), late: 0});
    const route = routes.get(key), count = data.get('messages', row), state = label(data.get(figure.by, row));
    if (kind === 'late') route.late += count;
    else route.states.set(state, (route.states.get(state) || 0) + count);
  }
  const sum = (states) => [...states.values()].reduce((total, count) => total + count, 0);
  const bad = (route) => [...route.states].reduce((total, [state, count]) => total + (TROUBLE.includes(MEANING[state]) ? count : 0), route.late);
  const all = [...routes.values()].sort((one, other) => bad(other) - bad(one) || sum(other.states) - sum(one.states));
  const drawn = all.slice(0, MOST_NAMES);
  if (!drawn.length) return null;
  for (const route of drawn) {
    // What was late has arrived.
    const arrived = ['arrived', 'delivered'].find((state) => route.states.has(state));
    const late = Math.min(route.late, route.states.get(arrived) || 0);
    if (late) route.states.set(arrived, route.states.get(arrived) - late).set('late', late);
  }
  const HIGH = 56, SPACE = 18, third = width * 0.28, lefts = [1, (width - third) / 2, width - third - 3];
  const nodes = [new Map(), new Map(), new Map()], strands = new Map();
  const add = (states, more) => { for (const [state, count] of more) if (count) states.set(state, (states.get(state) || 0) + count); };
  for (const {ends, states} of drawn) {
    ends.forEach((name, place) => {
      // What no target is known of has not come to any.
      if (place === 2 && name === '(none)') return;
      if (!nodes[place].has(name)) nodes[place].set(name, {name, place, states: new Map()});
      add(nodes[place].get(name).states, states);
      if (place === 0) return;
      const key = `${place}\n${ends[place - 1]}\n${name}`;
      if (!strands.has(key)) strands.set(key, {from: nodes[place - 1].get(ends[place - 1]), to: nodes[place].get(name), states: new Map()});
      add(strands.get(key).states, states);
    });
  }
  const high = Math.max(...nodes.map((each) => each.size)) * (HIGH + SPACE), values = [], order = ['delivered', 'arrived', 'waiting', 'late', 'in doubt', 'expired', 'dead', 'buried', 'lost'];
  const rank = (state) => order.indexOf(state) < 0 ? 2.5 : order.indexOf(state);
  nodes.forEach((column, place) => [...column.values()].forEach((node, number) => {
    node.y = (high - column.size * (HIGH + SPACE)) / 2 + number * (HIGH + SPACE) + SPACE / 2;
    const wrong = [...node.states].filter(([state]) => TROUBLE.includes(MEANING[state])).sort((one, other) => rank(other[0]) - rank(one[0]));
    const said = wrong.map(([state, count]) => `${counted(count)} ${state}`).join(', '), count = counted(sum(node.states));
    const colour = wrong.length && place === 1 ? `var(--${MEANING[wrong[0][0]]})` : 'var(--grid)';
    values.push({kind: 'node', x: lefts[place], x2: lefts[place] + third, y: node.y, y2: node.y + HIGH, colour, name: node.name, what: ['source', 'link', 'target'][place], said: count, wrong: said || 'nothing', place: node.name, column: place});
    values.push({kind: 'name', x: lefts[place] + 8, y: node.y + 15, text: fit(node.name, third - 16, 12, 600)});
    values.push({kind: 'count', x: lefts[place] + 8, y: node.y + 31, text: width > 560 ? `${count} messages` : count});
    if (place === 1 && said) values.push({kind: 'wrong', x: lefts[place] + 8, y: node.y + 46, text: fit(said, third - 16, 12, 600), colour});
  }));
  [...strands.values()].forEach(({from, to, states}, number) => {
    const sorted = [...states].sort((one, other) => rank(one[0]) - rank(other[0]));
    sorted.forEach(([state, count], place) => {
      const shift = HIGH / 2 + (place - (sorted.length - 1) / 2) * 7, x0 = lefts[from.place] + third, x1 = lefts[to.place], bend = (x1 - x0) * 0.45;
      const strand = {kind: 'strand', id: `${number}-${place}`, colour: `var(--${MEANING[state] || 'calm'})`, wide: Math.min(6, 1.5 + Math.log10(count)), state, said: counted(count), name: `${from.name} → ${to.name}`};
      [[x0, from.y], [x0 + bend, from.y], [x1 - bend, to.y], [x1, to.y]].forEach(([x, y], order) => values.push({...strand, order, x, y: y + shift}));
    });
  });
  const told = drawn.map(({ends, states}) => `${ends.join(' to ')}: ${[...states].filter(([, count]) => count).map(([state, count]) => `${counted(count)} ${state}`).join(', ')}`);
  const x = {field: 'x', type: 'quantitative', scale: null, axis: null}, up = {field: 'y', type: 'quantitative', scale: null, axis: null}, colour = {field: 'colour', type: 'nominal', scale: null};
  const text = (kind, more) => ({transform: [{filter: `datum.kind === "${kind}"`}], mark: {type: 'text', align: 'left', baseline: 'middle', fontSize: 12, ...more}, encoding: {x, y: up, text: {field: 'text', type: 'nominal'}, ...(kind === 'wrong' ? {fill: colour} : {})}});
  const states = [...new Set(drawn.flatMap((route) => [...route.states].filter(([, count]) => count).map(([state]) => state)))].sort((one, other) => rank(one) - rank(other));
  return {
    not, values: drawn.length, says: all.length > drawn.length ? [`The ${drawn.length} routes with the most trouble of ${all.length} are drawn.`] : [],
    told: `Map of ${drawn.length} ${drawn.length === 1 ? 'route' : 'routes'}. ${told.join('; ')}.`,
    height: high, data: {values}, caption: '', below: '', flat: true,
    keys: states.map((state) => ({name: state, colour: `var(--${MEANING[state] || 'calm'})`, dash: ''})),
    layer: [
      {transform: [{filter: 'datum.kind === "strand"'}], mark: {type: 'line', interpolate: 'basis', strokeCap: 'butt'},
        encoding: {x, y: up, order: {field: 'order', type: 'quantitative'}, detail: {field: 'id', type: 'nominal'}, stroke: colour, strokeWidth: {field: 'wide', type: 'quantitative', scale: null}, tooltip: tips(['name', 'route'], ['state', 'became'], ['said', 'messages'])}},
      {transform: [{filter: 'datum.kind === "node"'}], mark: {type: 'rect', fill: 'var(--raised)', cornerRadius: 6, strokeWidth: 1.5, cursor: 'pointer'},
        encoding: {x, x2: {field: 'x2'}, y: up, y2: {field: 'y2'}, stroke: colour, tooltip: tips(['name', 'name'], ['what', 'what'], ['said', 'messages'], ['wrong', 'in trouble'])}},
      text('name', {fontWeight: 600, color: 'var(--ink)'}), text('count', {color: 'var(--muted)'}), text('wrong', {fontWeight: 600}),
    ],
  };
}

// --- the flow of messages, step by step: elements, as cards wrap where a drawing would shrink

function flow(figure) {
  const data = DATA[figure.data], {rows, not} = select(data, figure), found = new Map();
  for (const row of rows) {
    const name = data.get('measure', row);
    if (!found.has(name)) found.set(name, {count: 0, weighted: []});
    const each = found.get(name), count = data.get('messages', row), value = data.get('value', row);
    each.count += count;
    if (value !== null) each.weighted.push([value, count]);
  }
  const from = Math.max(figure.span[0], chosen.from === null ? -Infinity : chosen.from), to = Math.min(figure.span[1], chosen.to === null ? Infinity : chosen.to);
  const seconds = Math.max(1, to - from), box = element('div', {class: 'flow'}), told = [];
  const most = Math.max(0, ...figure.stages.map((stage) => (found.get(stage.measure) || {count: 0}).count));
  let phase = null, list = null, drawn = 0;
  for (const stage of figure.stages) {
    const {count, weighted} = found.get(stage.measure) || {count: 0, weighted: []}, rate = count / seconds;
    const first = stage.phase !== phase, numbered = /^[0-9]/.test(stage.number);
    phase = stage.phase;
    if (list === null || (first && !numbered)) {
      list = element('ol', {class: stage.untimed ? '' : 'loose'});
      if (!numbered) box.append(element('h3', {}, phase));
      box.append(list);
    }
    const [half, high] = weighted.length ? quantiles(weighted, [0.5, 0.99]) : [null, null];
    list.append(element('li', {'data-step': stage.number},
      numbered ? element('h3', {class: first ? '' : 'blank'}, first ? phase : '\u00a0') : null,
      element('div', {class: count ? 'step' : 'step none'},
        element('p', {class: 'head'}, element('span', {class: 'number'}, stage.number), element('span', {class: 'way'}, stage.way)),
        element('p', {class: 'what'}, stage.what),
        element('p', {class: 'count'}, element('b', {}, counted(count)), element('span', {}, rate >= 1 || !count ? `${digits(rate)} a second` : rate * 60 >= 1 ? `${digits(rate * 60)} a minute` : `${digits(rate * 3600)} an hour`)),
        share(count, most),
        element('p', {class: 'times'}, ...(half === null ? [element('span', {}, stage.untimed)] : [element('span', {}, 'p50 ', element('b', {}, quantity(half, 'ms'))), element('span', {}, 'p99 ', element('b', {}, quantity(high, 'ms')))])),
      ),
    ));
    drawn += count;
    told.push(`${stage.number} ${stage.what}: ${counted(count)}${half === null ? '' : `, p50 ${quantity(half, 'ms')}, p99 ${quantity(high, 'ms')}`}`);
  }
  return {box, not, drawn, told: `Flow of messages. ${told.join('; ')}.`};
}

function share(count, most) {
  const filled = element('span', {});
  filled.style.width = `${most ? Math.max(count ? 2 : 0, 100 * count / most) : 0}%`;
  return element('div', {class: 'share', 'aria-hidden': 'true'}, filled);
}

