// What the model says of the design: headline, parts of totals, bounds, operators, elasticities, intervals.

const machine = new Machine(page.program);
const figures = page.figures;
const STEP = 0.005;
const MOST_LISTED = 12;

/** All figures of a design, and how to read them. */
function figuresOf(values) {
  const found = machine.at(values);
  const bits = found[figures.metrics.infeasible_reason];
  return {
    of: (name) => found[figures.metrics[name]],
    at: (place) => found[place],
    reasons: page.reasons.filter(([bit]) => bits & bit),
    bits,
    hasStep: !(bits & page.noStep),
  };
}
const atStart = figuresOf(START);

// --- why not ----------------------------------------------------------------------------------------------

/** A reason in words, with how much is needed of what there is where that has a degree. */
function reasonText([, name, meaning], now) {
  const over = figures.over[name] === undefined ? NaN : Math.exp(now.at(figures.over[name]));
  const much = over > 1 ? `: ${digits(over)} times what there is` : "";
  return name === "memory" ? `${meaning}: ${quantity(now.of(page.memory), "B")} of ${quantity(now.at(figures.capacity), "B")}` : meaning + much;
}

function tellReasons(now) {
  const place = byId("live-why");
  place.hidden = !now.reasons.length;
  place.replaceChildren(element("b", {}, now.reasons.length > 1 ? "Cannot run, for these reasons:" : "Cannot run: "),
    ...(now.reasons.length > 1 ? [element("ul", {}, ...now.reasons.map((one) => element("li", {}, reasonText(one, now))))] : now.reasons.map((one) => reasonText(one, now))));
}

// --- the headline -----------------------------------------------------------------------------------------

const cards = page.headline.map((name) => {
  const value = element("output", { class: "value" }), change = element("span", { class: "change" }), between = element("span", { class: "between" });
  const card = element("button", { type: "button", class: "card", title: `${page.metrics[name].label}: show in the curve, the map and the elasticities`, onclick: () => show({ metric: name }) },
    element("span", { class: "name" }, page.metrics[name].short), value, between, change);
  byId("live-cards").append(card);
  return { name, value, change, between, card };
});

const holds = new Set(page.holds);

function tellCards(now) {
  for (const { name, value, change: place, card } of cards) {
    const known = now.hasStep || holds.has(name), number = now.of(name), before = atStart.of(name);
    tell(value, known ? metricText(name, number) : "–");
    const ratio = number / before - 1;
    const differs = known && Number.isFinite(ratio) && Math.abs(ratio) > 5e-4;
    const told = ratio > 9 ? `× ${digits(ratio + 1)}` : `${ratio > 0 ? "+" : "−"}${digits(Math.abs(100 * ratio))} %`;
    tell(place, differs ? told : "");
    place.dataset.good = differs ? String(ratio > 0 === page.metrics[name].more) : "";
    card.setAttribute("aria-pressed", String(shown.metric === name));
  }
}

// --- totals by part ---------------------------------------------------------------------------------------

/** A total with a line for each part, each beginning where the one before ends. */
function fall(title, parts, note = "") {
  const whole = element("output"), remark = element("p", { class: "quiet" }, note), mark = element("i", { class: "mark", hidden: true });
  const lines = parts.map((part) => {
    const bar = element("i", { class: "part", style: { background: part.colour } }), value = element("td", { class: "number" }), share = element("td", { class: "number share" });
    const line = element("tr", { hidden: true }, element("th", { scope: "row" }, part.label), element("td", { class: "stairs" }, bar), value, share);
    return { ...part, bar, value, share, line };
  });
  const made = element("section", { class: "fall", "aria-label": title },
    element("h3", {}, element("span", {}, title), whole), element("table", {}, element("tbody", {}, ...lines.map((one) => one.line))), mark, remark);
  return { made, whole, lines, remark };
}

/** Fill it: values of its parts, their texts, and what is the full width. */
function fill(place, values, text, total, most = total) {
  let begin = 0;
  const width = Math.max(most, values.reduce((sum, value) => sum + Math.max(value, 0), 0)) || 1;
  place.lines.forEach(({ bar, value, share, line }, i) => {
    const number = values[i], isShown = number !== 0 && Number.isFinite(number);
    if (line.hidden === isShown) line.hidden = !isShown;
    if (!isShown) return;
    bar.style.marginLeft = `${(100 * (begin + Math.min(number, 0))) / width}%`;
    bar.style.width = `${(100 * Math.abs(number)) / width}%`;
    tell(value, text(number));
    tell(share, total ? `${((100 * number) / total).toFixed(1)} %` : "");
    begin += number;
  });
  return begin;
}

const falls = page.totals.map(({ name, parts }) => {
  const made = fall(page.metrics[name].short, parts);
  byId("live-falls").append(made.made);
  return { name, ...made };
});
const bounds = page.bounds.length ? fall(`${page.metrics[page.totals[0].name].short} by what bounds it`, page.bounds) : null;
if (bounds) byId("live-falls").insertBefore(bounds.made, falls[1]?.made ?? null);

function tellFalls(now) {
  for (const place of falls) {
    const { name, made, whole, lines } = place, total = now.of(name), isMemory = name === page.memory;
    const known = (now.hasStep || holds.has(name)) && lines.some((line) => now.of(line.name));
    if (made.hidden === known) made.hidden = !known;
    if (!known) continue;
    const capacity = now.at(figures.capacity);
    tell(whole, isMemory ? `${metricText(name, total)} of ${quantity(capacity, "B")}` : metricText(name, total));
    made.classList.toggle("over", isMemory && total > capacity);
    fill(place, lines.map((line) => now.of(line.name)), (value) => metricText(name, value), total, isMemory ? capacity : total);
  }
  if (!bounds) return;
  bounds.made.hidden = !now.hasStep;
  const values = bounds.lines.map((line) => now.at(figures.bounds[line.name]));
  const total = values.reduce((sum, value) => sum + value, 0);
  tell(bounds.whole, "");
  fill(bounds, values, (value) => quantity(value, "s"), total);
}

// --- operators --------------------------------------------------------------------------------------------

const BOUNDS = ["compute", "memory", "kernel floor", "die links"];
const operators = figures.operators.map((one) => {
  const cells = Array.from({ length: 6 }, () => element("td"));
  const line = element("tr", {}, element("th", { scope: "row" }, `${one.section} ${one.name.replaceAll("_", " ")}`), ...cells);
  return { ...one, cells, line };
});
byId("live-operators").tBodies[0].append(...operators.map((one) => one.line));
tell(byId("live-operators-of"), page.operatorsOf);

function tellOperators(now) {
  if (!byId("live-operators").closest("details").open) return;
  const bound = (places) => { const at = [2, 0, 1, 3].find((i) => now.at(places[i]) > 0); return at === undefined ? "" : BOUNDS[at]; };
  for (const one of operators) {
    one.line.hidden = !now.hasStep || !now.at(one.present);
    if (one.line.hidden) continue;
    const backward = now.at(one.backward_time), moved = now.at(one.bytes), flops = now.at(one.flops);
    const said = [quantity(now.at(one.forward_time), "s"), bound(one.forward_bound), backward ? quantity(backward, "s") : "", backward ? bound(one.backward_bound) : "", quantity(flops, "FLOP"), moved ? digits(flops / moved) : ""];
    said.forEach((text, i) => tell(one.cells[i], text));
  }
}

// --- elasticities -----------------------------------------------------------------------------------------

/** Change in per cent of a metric by one per cent of each continuous leaf; at a limit towards what is possible. */
function elasticities(metric) {
  const { values } = design, moved = page.smooth.filter((i) => values[i] > 0), n = 2 * moved.length + 1;
  const x = new Map(moved.map((i, k) => {
    const column = new Float32Array(n).fill(values[i]), { high } = leaves[i];
    column[2 * k] = Math.min(values[i] * (1 + STEP), high ?? Infinity);
    column[2 * k + 1] = values[i] * (1 - STEP);
    return [i, column];
  }));
  if (!moved.length) return [];
  const [numbers, bits] = machine.over(values, [figures.metrics[metric], figures.metrics.infeasible_reason], { x });
  const here = numbers[n - 1], log = (k) => Math.log(numbers[k] / here), by = (column, k) => Math.log(column[k] / column[n - 1]);
  return moved.map((i, k) => {
    const column = x.get(i), up = 2 * k, down = up + 1, isLimit = column[up] === column[n - 1] || (bits[up] & ~bits[n - 1]);
    const value = isLimit ? log(down) / by(column, down) : (log(up) - log(down)) / (by(column, up) - by(column, down));
    return { leaf: leaves[i], i, value };
  }).filter(({ value }) => Number.isFinite(value) && Math.abs(value) >= 5e-4).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

const elastic = Array.from({ length: MOST_LISTED }, () => {
  const name = element("th", { scope: "row" }), value = element("td", { class: "number" }), bar = element("i", { class: "part" });
  const line = element("tr", { hidden: true }, name, element("td", { class: "stairs both" }, bar), value);
  byId("live-elasticities").tBodies[0].append(line);
  return { line, name, value, bar };
});

function tellElasticities(now) {
  const known = now.hasStep && page.metrics[shown.metric].smooth && now.of(shown.metric) > 0;
  const found = known ? elasticities(shown.metric).slice(0, MOST_LISTED) : [];
  const most = Math.max(...found.map(({ value }) => Math.abs(value)), 1e-9);
  elastic.forEach((place, k) => {
    const one = found[k];
    place.line.hidden = !one;
    if (!one) return;
    tell(place.name, one.leaf.name);
    place.name.title = one.leaf.label;
    tell(place.value, `${one.value < 0 ? "−" : "+"}${Math.abs(one.value).toFixed(3)}`);
    const width = (50 * Math.abs(one.value)) / most;
    place.bar.style.marginLeft = `${one.value < 0 ? 50 - width : 50}%`;
    place.bar.style.width = `${width}%`;
    place.bar.dataset.good = String(one.value > 0 === page.metrics[shown.metric].more);
  });
  tell(byId("live-elasticities-of"), known ? `1 % more of a leaf changes ${page.metrics[shown.metric].short} by so many per cent` : `${page.metrics[shown.metric].short} has no slopes here`);
}

// --- intervals --------------------------------------------------------------------------------------------

/** 80 % intervals of metrics: the model with each unknown leaf a deviation more and less, and the rest as at the start. */
function intervals(values) {
  const { width, steps, metrics } = page.intervals, paths = Object.keys(steps), names = Object.keys(metrics), n = 2 * paths.length + 1;
  const x = new Map(paths.map((path, k) => {
    const i = indexOf.get(path), column = new Float32Array(n).fill(values[i]);
    column[2 * k] = Math.min(values[i] * Math.exp(steps[path]), leaves[i].high ?? Infinity);
    column[2 * k + 1] = values[i] * Math.exp(-steps[path]);
    return [i, column];
  }));
  const found = new Map(), numbers = machine.over(values, names.map((name) => figures.metrics[name]), { x });
  names.forEach((name, j) => {
    const { rest, factors } = metrics[name], log = (k) => Math.log(numbers[j][k]), here = numbers[j][numbers[j].length - 1];
    const slopes = new Map(paths.map((path, k) => [path, (log(2 * k) - log(2 * k + 1)) / 2]));
    const moved = factors.map((shares) => Object.entries(shares).reduce((sum, [path, share]) => sum + share * slopes.get(path), 0));
    const factor = Math.exp(width * Math.hypot(rest, ...moved.filter(Number.isFinite)));
    found.set(name, [here / factor, here * factor]);
  });
  return found;
}

function tellIntervals(now) {
  const found = now.hasStep ? intervals(design.values) : new Map();
  for (const { name, between } of cards) {
    const ends = found.get(name);
    tell(between, ends && ends[1] > ends[0] * 1.0005 ? `${metricText(name, ends[0])} to ${metricText(name, ends[1])}` : "");
  }
}
