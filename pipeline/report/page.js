// What a report's page does in the browser: it filters, shows and names its figures.
//
// All that it shows may come from a message. It is only ever put into the page as text: as a text
// node, or as a value of a drawing's data, never as markup, as a name of a field or as an
// expression. The drawings' own expressions are interpreted, not compiled, so the page needs no
// permission to run what is made at run time.
// --- showing

vega.expressionFunction('quantity', (value, unit) => quantity(value, unit));
vega.expressionFunction('clock', (value, step) => clock(value, step));

const CONFIG = {
  background: 'transparent', font: FONT, view: {stroke: null}, aria: false, customFormatTypes: false,
  axis: {labelColor: 'var(--muted)', labelFontSize: 12, titleColor: 'var(--muted)', gridColor: 'var(--grid)', domainColor: 'var(--grid)', tickColor: 'var(--grid)', labelPadding: 6, labelOverlap: 'greedy', labelSeparation: 6},
};

const tip = element('div', {class: 'tip', hidden: '', role: 'tooltip'});
document.body.append(tip);

function show_tip(_, event, item, value) {
  if (value === null || value === undefined || value === '') { tip.hidden = true; return; }
  tip.replaceChildren(...Object.entries(value).filter(([, text]) => text !== 'undefined' && text !== 'null' && text !== '').flatMap(([name, text]) => [element('span', {}, name), element('b', {dir: 'auto'}, String(text))]));
  tip.hidden = false;
  const room = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - room.width - 4))}px`;
  tip.style.top = `${event.clientY + room.height + 24 > innerHeight ? Math.max(4, event.clientY - room.height - 12) : event.clientY + 16}px`;
}

const FIGURES = REPORT.figures.map((figure) => ({...figure, by_now: figure.by, view: null, width: 0}));

function told(figure, found) {
  const kind = {line: 'Line plot', bar: 'Bar chart', range: 'Range plot'}[figure.kind];
  const where = (x) => found.along === 'time' ? `${moment(x)} UTC` : found.along === 'number' ? quantity(x, '') : x;
  const count = found.places.length;
  const span = found.along === 'time' ? (count > 1 ? `${where(found.places[0])} to ${where(found.places[count - 1])}` : `at ${where(found.places[0])}`) : `${count} ${count === 1 ? 'place' : 'places'}`;
  const each = found.series.filter((series) => series.points.size).map((series) => {
    const sorted = [...series.points].sort((one, other) => one[1] - other[1]), [low, high] = [sorted[0], sorted[sorted.length - 1]];
    return `${series.name}: ${low[1] === high[1] ? '' : `${quantity(low[1], figure.unit)} to `}${quantity(high[1], figure.unit)}, highest at ${where(high[0])}`;
  });
  return `${kind} of ${figure.y.map(label).join(', ')}${figure.unit ? ` in ${label(figure.unit)}` : ''} by ${label(figure.x_title)}, ${span}. ${each.join('; ')}.`;
}

function draw(figure) {
  const host = document.getElementById(`${figure.name}-plot`), legend = document.getElementById(`${figure.name}-keys`), note = document.getElementById(`${figure.name}-note`);
  if (figure.view) { figure.view.finalize(); figure.view = null; }
  const width = Math.max(240, Math.floor(host.clientWidth));
  figure.width = width;
  let made = null, found = null;
  if (figure.kind === 'flow') {
    const of = flow(figure);
    host.replaceChildren(of.box);
    of.box.setAttribute('aria-label', of.told);
    of.box.setAttribute('role', 'group');
    say(note, [], of.not, figure);
    host.dataset.points = of.drawn;
    return;
  }
  if (figure.kind === 'timeline') made = time_line(figure, width);
  else if (figure.kind === 'map') made = map(figure, width);
  else {
    found = points(figure, figure.by_now);
    figure.stacked = Boolean(figure.by_now);
    const zero = found.values.length && found.values.every((value) => value === 0);
    if (found.values.length && !(zero && figure.kind === 'bar')) {
      made = found.along === 'text' ? (figure.kind === 'range' || figure.kind === 'line' ? ranges(figure, found, width) : bars(figure, found, width)) : curve(figure, found, width);
      made = {...made, says: found.says, not: found.not, values: found.values.length, told: told(figure, found)};
    } else made = zero ? {zero: found.values.length} : null;
  }
  legend.replaceChildren();
  if (made === null || made.zero) {
    const text = made === null ? 'Nothing of this was chosen.' : made.zero === 1 ? 'It is 0.' : `All ${made.zero} are 0.`;
    host.replaceChildren(element('p', {class: 'empty'}, text));
    host.dataset.points = 0;
    say(note, [], found ? found.not : [], figure);
    return;
  }
  for (const key of made.keys) legend.append(element('li', {}, swatch(key), element('span', {dir: 'auto'}, key.name)));
  const spec = {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json', width: width - 2, height: made.height, autosize: {type: 'fit-x', contains: 'padding'},
    padding: {left: 1, right: 1, top: 2, bottom: 2}, data: made.data, layer: made.layer, config: CONFIG,
  };
  const above = element('p', {class: 'axis'}, made.caption || ''), drawing = element('div', {class: 'drawing'}), below = element('p', {class: 'axis below'}, made.below || '');
  host.replaceChildren(...(made.caption ? [above] : []), drawing, ...(made.below ? [below] : []));
  const view = new vega.View(vega.parse(vegaLite.compile(spec, {logger: quiet}).spec, undefined, {ast: true}), {renderer: 'svg', container: drawing, hover: false, expr: vega.expressionInterpreter, logger: quiet});
  figure.view = view;
  view.tooltip(show_tip);
  view.addEventListener('click', (_, item) => item && item.datum && choose(figure, item.datum));
  view.run();
  // The drawing itself is named, in words that say more than those of the library.
  for (const form of drawing.querySelectorAll('form')) form.remove();
  for (const name of ['role', 'aria-roledescription', 'aria-label']) drawing.removeAttribute(name);
  const svg = drawing.querySelector('svg');
  name_drawing(svg, figure, made.told);
  host.dataset.points = made.values;
  say(note, made.says, made.not, figure);
}

const quiet = {level() { return this; }, error(...said) { throw new Error(said.join(' ')); }, warn() { return this; }, info() { return this; }, debug() { return this; }};

function name_drawing(svg, figure, text) {
  const made = (tag, id, said) => {
    const one = document.createElementNS('http://www.w3.org/2000/svg', tag);
    one.id = id;
    one.textContent = said;
    return one;
  };
  svg.prepend(made('title', `${figure.name}-title`, figure.title), made('desc', `${figure.name}-text`, text));
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-labelledby', `${figure.name}-title ${figure.name}-text`);
  svg.classList.add('plot');
}

function swatch(key) {
  const made = element('i', {class: key.dash === null ? (key.round ? 'dot' : 'area') : 'stroke', 'aria-hidden': 'true'});
  if (key.dash) {
    const [on, off] = key.dash.split(' ').map(Number);
    made.style.background = `repeating-linear-gradient(90deg, ${key.colour} 0 ${on}px, transparent ${on}px ${on + off}px)`;
  } else made.style.background = key.colour;
  return made;
}

function say(note, says, not, figure) {
  const all = [...says];
  if (figure.measure && figure.x === 'time' && figure.kind !== 'flow') all.push(`Each ${figure.kind === 'bar' ? 'column' : 'point'} is of ${duration(figure.every)}.`);
  if (not.length) all.push(`Not told apart by ${not.join(' and ')}: of all.`);
  if (figure.measure && ['range', 'line', 'flow'].includes(figure.kind) && REPORT.nearly) all.push(REPORT.nearly);
  note.textContent = all.join(' ');
}

// A click chooses what was clicked on, and once more gives it up.
function choose(figure, datum) {
  let name = null;
  if (figure.kind === 'map' && datum.kind === 'node') name = [figure.x, ...figure.y][datum.column];
  else if (datum.place !== undefined && SELECTS.has(figure.x)) name = figure.x;
  else if (figure.by_now && SELECTS.has(figure.by_now)) { name = figure.by_now; datum = {place: datum.name}; }
  if (name === null || !SELECTS.has(name)) return;
  const box = SELECTS.get(name);
  const option = [...box.options].find((each) => label(each.value) === String(datum.place) && each.index > 0);
  if (!option) return;
  box.value = box.value === option.value ? '' : option.value;
  box.dispatchEvent(new Event('change'));
}

// --- the filters of the page

const SELECTS = new Map();

function build_filters() {
  const bar = document.getElementById('filters');
  if (!bar) return;
  const form = bar.querySelector('.choices');
  for (const name of REPORT.filters) {
    const counts = new Map();
    for (const data of DATA.filter((each) => each.has(name))) {
      const of = data.columns.get(name).values;
      for (const value of of) if (value !== null || data.has('measure')) counts.set(name_of(value), (counts.get(name_of(value)) || 0) + 1);
    }
    if (counts.size < 2) continue;
    const box = element('select', {name, id: `filter-${name}`}, element('option', {value: ''}, 'all'));
    const names = [...counts.keys()].sort((one, other) => (one === OTHERS) - (other === OTHERS) || one.localeCompare(other, 'en'));
    for (const value of names.slice(0, MOST_CHOICES)) box.append(element('option', {value}, label(value)));
    box.addEventListener('change', () => {
      if (box.selectedIndex === 0) chosen.by.delete(name); else chosen.by.set(name, box.value);
      apply();
    });
    SELECTS.set(name, box);
    form.append(element('label', {}, element('span', {}, name), box));
  }
  const times = new Set();
  let every = 0;
  for (const figure of FIGURES) {
    const data = DATA[figure.data];
    if (data.time === null || figure.kind === 'timeline' || !figure.every) continue;
    every = Math.max(every, figure.every);
    for (const at of data.columns.get(data.time).values) if (at !== null) times.add(at);
  }
  const marks = [...new Set([...times].map((at) => Math.floor(at / every) * every))].sort((one, other) => one - other);
  if (marks.length > 1) {
    const all = marks.length > 400 ? marks.filter((_, place) => place % Math.ceil(marks.length / 400) === 0) : marks;
    const make = (name, values) => {
      const box = element('select', {name, id: `filter-${name}`}, element('option', {value: ''}, 'all'));
      for (const at of values) box.append(element('option', {value: String(at)}, moment(at, every < 60 ? 19 : 16)));
      box.addEventListener('change', () => { chosen[name] = box.value === '' ? null : Number(box.value); apply(); });
      SELECTS.set(name, box);
      form.append(element('label', {}, element('span', {}, name), box));
    };
    make('from', all);
    make('to', all.slice(1).concat(all[all.length - 1] + every));
  }
  if (!SELECTS.size) return;
  bar.querySelector('button').addEventListener('click', () => {
    for (const box of SELECTS.values()) box.value = '';
    chosen.by.clear();
    chosen.from = chosen.to = null;
    apply();
  });
  bar.hidden = false;
}

function apply() {
  FIGURES.forEach(draw);
  filter_tables();
  const active = chosen.by.size || chosen.from !== null || chosen.to !== null;
  document.body.classList.toggle('filtered', Boolean(active));
  const all = REPORT.total;
  if (all) {
    const data = DATA[all.data], {rows} = select(data, {every: all.every});
    const sum = (of) => of.reduce((total, row) => total + (data.get('measure', row) === all.measure ? data.get('messages', row) : 0), 0);
    document.getElementById('chosen').textContent = `${counted(sum(rows))} of ${counted(sum([...Array(data.length).keys()]))} messages`;
  }
}

// Rows of tables go, where they say by their own columns that they are not chosen.
function filter_tables() {
  for (const table of document.querySelectorAll('main table')) {
    const heads = [...table.tHead.rows[0].cells], tests = [];
    heads.forEach((head, place) => {
      const name = head.dataset.column;
      if (chosen.by.has(name)) tests.push((row) => (row.cells[place].textContent || '(none)') === chosen.by.get(name));
      if (head.dataset.time && (chosen.from !== null || chosen.to !== null)) tests.push((row) => {
        const at = Date.parse(`${row.cells[place].textContent.replace(' ', 'T')}Z`) / 1000;
        return !(at < chosen.from) && !(chosen.to !== null && at >= chosen.to);
      });
    });
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !tests.every((test) => test(row));
      shown += row.hidden ? 0 : 1;
    }
    const count = table.closest('section').querySelector('.shown');
    if (count) count.textContent = shown === table.tBodies[0].rows.length ? '' : `${counted(shown)} of them chosen`;
  }
}

function start() {
  build_filters();
  for (const link of document.querySelectorAll('a.rows')) link.addEventListener('click', () => {
    const details = document.getElementById(link.getAttribute('href').slice(1));
    details.open = true;
  });
  for (const figure of FIGURES) {
    const box = document.getElementById(`${figure.name}-by`);
    if (!box) continue;
    for (const button of box.querySelectorAll('button')) button.addEventListener('click', () => {
      figure.by_now = figure.also[Number(button.dataset.by)];
      for (const each of box.querySelectorAll('button')) each.setAttribute('aria-pressed', String(each === button));
      draw(figure);
    });
  }
  apply();
  const resized = new ResizeObserver(() => {
    for (const figure of FIGURES) {
      const host = document.getElementById(`${figure.name}-plot`);
      if (figure.kind !== 'flow' && host.clientWidth && Math.max(240, Math.floor(host.clientWidth)) !== figure.width) draw(figure);
    }
  });
  resized.observe(document.querySelector('main'));
  document.addEventListener('scroll', () => { tip.hidden = true; }, {passive: true, capture: true});
  document.documentElement.dataset.ready = 'yes';
}

start();
