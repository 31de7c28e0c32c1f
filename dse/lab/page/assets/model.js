// The model that computes: controls of its leaves, its figures, and when they are drawn.

const MOST_SLOPES = 12;
const controls = leaves.map(() => null), cards = [], falls = [];
let machine, atStart;
/** The control of a leaf: a slider where its values can be listed, a field, its units. */
function control(i) {
  const leaf = leaves[i], { name, choices, label, units } = leaf, values = valuesOf(leaf, 201), id = `live-leaf-${i}`;
  const title = `${label}; allowed: ${choices ? choices.map(([, said]) => said).join(", ") : leaf.allowed}`;
  const back = `back to ${leafText(leaf, leaf.value)}`, go = (value, isRun) => change([[i, value]], isRun);
  const again = element("button", { type: "button", class: "again", hidden: true, title: back,
    "aria-label": `${name} ${back}`, onclick: () => go(leaf.value) }, "↺");
  const wrong = element("p", { class: "wrong", hidden: true, role: "alert" });
  const options = choices?.map(([value, said]) => element("option", { value }, said)) ?? [];
  const field = choices ? element("select", { id, title, onchange: () => go(Number(field.value)) }, ...options)
    : element("input", { id, title, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
      "aria-description": title, onchange: () => enter(controls[i]), onkeydown: (event) => act(event, {
        ArrowUp: () => go(values.find((value) => value > design.values[i]) ?? design.values[i]),
        ArrowDown: () => go(values.findLast((value) => value < design.values[i]) ?? design.values[i]) }) });
  let isHeld = false, slider = null;
  if (!choices && values.length > 1) slider = element("input", { type: "range", min: 0, max: values.length - 1, title,
    "aria-label": name, onpointerdown: () => { isHeld = true; remember(); }, onchange: () => { isHeld = false; },
    oninput: () => go(values[slider.valueAsNumber], isHeld) });
  const node = element("div", { class: "leaf" }, element("label", { for: id, title }, name), again,
    element("span", { class: "field" }, field, element("span", { class: "units" }, units)), slider ?? "", wrong);
  controls[i] = { i, values, again, field, slider, wrong, node };
  return node;
}
/** Take the value of a field, or say what is wrong with it. */
function enter({ i, field, wrong }) {
  const leaf = leaves[i], typed = field.value.trim();
  let value = Number((Number(typed.replaceAll(",", "")) / leaf.factor).toPrecision(12));
  if (leaf.whole && Math.abs(value - Math.round(value)) < 1e-6) value = Math.round(value);
  const most = leaf.high !== null && leaf.units ? ` (${leafText(leaf, leaf.high)})` : "";
  wrong.hidden = typed !== "" && isAllowed(leaf, value);
  field.ariaInvalid = String(!wrong.hidden);
  if (wrong.hidden) change([[i, value]]);
  else tell(wrong, `${typed || "nothing"} is no value of ${leaf.name}: ${leaf.allowed}${most}`);
}
/** Show the values that the design has. */
function tellControls() {
  for (const { i, field, slider, values, again, wrong, node } of controls.filter(Boolean)) {
    const leaf = leaves[i], value = design.values[i], said = leaf.choices ? String(value) : short(value * leaf.factor);
    if (field.value !== said) field.value = said;
    if (!wrong.hidden) [wrong.hidden, field.ariaInvalid] = [true, "false"];
    if (slider) {
      const nearest = nearestOf(values, (other) => Math.abs(other - value));
      if (slider.valueAsNumber !== nearest) slider.value = nearest;
      if (slider.ariaValueText !== leafText(leaf, value)) slider.ariaValueText = leafText(leaf, value);
    }
    again.hidden = value === START[i];
    node.classList.toggle("changed", !again.hidden);
  }
  byId("live-follows").checked = design.follows;
  for (const [way, id] of Object.entries(CHOICES)) byId(id).value = shown[way];
}
/** Show another metric, or other leaves. */
function show(wanted) {
  remember();
  Object.assign(shown, wanted);
  drawSoon();
}
const CHOICES = { metric: "live-metric", curve: "live-curve-leaf", x: "live-x-leaf", y: "live-y-leaf",
  times: "live-times" };

function prepareControls() {
  const places = [...leaves.keys()].filter((i) => leaves[i].read), first = places.filter((i) => leaves[i].first >= 0);
  byId("live-first").append(...first.toSorted((a, b) => leaves[a].first - leaves[b].first).map(control));
  const groups = Map.groupBy(places.filter((i) => leaves[i].first < 0), (i) => leaves[i].group);
  for (const [name, members] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
    byId("live-rest").append(element("details", { class: "group" },
      element("summary", {}, `${name} (${members.length})`), ...members.map(control)));
  }
  on("live-filter", "input", filterControls);
  byId("live-follow").hidden = !model.follows;
  on("live-follows", "change", ({ target: { checked } }) => {
    remember();
    design.follows = checked;
    if (checked) design.values[model.follows.replicas] = replicas(design.values);
    drawSoon();
  });
  for (const way of ["x", "y"]) byId(CHOICES[way]).append(...byId(CHOICES.curve).cloneNode(true).children);
  for (const [way, id] of Object.entries(CHOICES)) on(id, "change", ({ target }) => show({ [way]: target.value }));
}
/** Controls whose leaf has all the words. */
function filterControls() {
  const asked = byId("live-filter").value.toLowerCase().split(/\s+/).filter(Boolean), isAsked = asked.length > 0;
  const groups = [...byId("live-rest").children], about = ({ path, label }) => `${path} ${label}`.toLowerCase();
  const fits = (leaf) => asked.every((word) => about(leaf).includes(word));
  for (const { i, node } of controls.filter(Boolean)) node.hidden = !fits(leaves[i]);
  for (const group of groups) {
    Object.assign(group, { open: isAsked, hidden: !group.querySelector(".leaf:not([hidden])") });
  }
}
/** All figures of a design, and how to read them. */
function figuresOf(values) {
  const numbers = machine.at(values), of = (name) => numbers[figures.metrics[name]];
  const bits = of("infeasible_reason"), hasStep = !(bits & model.noStep);
  return { of, at: (place) => numbers[place], hasStep,
    has: (name) => hasStep || model.holds.includes(name), reasons: model.reasons.filter(([bit]) => bits & bit) };
}

function prepareFigures() {
  for (const node of byId("live-cards").children) {
    const [, value, change, between] = node.children, { value: name } = node;
    cards.push({ name, node, value, change, between });
    node.onclick = () => show({ metric: name });
  }
  falls.push(...model.totals.map(({ name, parts }) => ({ name, ...fall(model.metrics[name].short, parts) })));
  const first = model.metrics[falls[0].name].short;
  if (model.bounds.length) falls.splice(1, 0, fall(`${first} by what bounds it`, model.bounds));
  byId("live-falls").append(...falls.map(({ node }) => node));
}
/** Why the design cannot run, with how much is needed of what there is where that has a degree. */
function tellReasons({ reasons, of, at }) {
  const said = reasons.map(([, name, meaning]) => {
    const over = figures.over[name] === undefined ? NaN : Math.exp(at(figures.over[name]));
    if (name !== "memory") return over > 1 ? `${meaning}: ${digits(over)} times what there is` : meaning;
    return `${meaning}: ${quantity(of(model.memory), "B")} of ${quantity(at(figures.capacity), "B")}`;
  });
  byId("live-why").hidden = !said.length;
  byId("live-why").replaceChildren(element("b", {}, `Cannot run${said.length > 1 ? ", for these reasons" : ""}: `),
    ...(said.length > 1 ? [element("ul", {}, ...said.map((reason) => element("li", {}, reason)))] : said));
}

function tellCards(now) {
  for (const { name, node, value, change } of cards) {
    const isKnown = now.has(name), ratio = isKnown ? now.of(name) / atStart.of(name) - 1 : NaN;
    const differs = Number.isFinite(ratio) && Math.abs(ratio) > 5e-4;
    const said = ratio > 9 ? `× ${digits(ratio + 1)}` : `${ratio > 0 ? "+" : "−"}${digits(Math.abs(100 * ratio))} %`;
    tell(value, isKnown ? metricText(name, now.of(name)) : "–");
    tell(change, differs ? said : "");
    change.dataset.good = ratio > 0 === model.metrics[name].more;
    node.ariaPressed = String(shown.metric === name);
  }
}
/** Totals by part, and the first of them by what bounds it, which has no name. */
function tellFalls(now) {
  const capacity = now.at(figures.capacity);
  for (const place of falls) {
    const { name, node, total, lines } = place, isMemory = name === model.memory;
    const values = lines.map((line) => (name ? now.of(line.name) : now.at(figures.bounds[line.name])));
    node.hidden = name ? !now.has(name) || !values.some(Boolean) : !now.hasStep;
    if (node.hidden) continue;
    const most = name ? now.of(name) : values.reduce((sum, value) => sum + value, 0);
    const said = (value) => (name ? metricText(name, value) : quantity(value, "s"));
    if (name) tell(total, isMemory ? `${said(most)} of ${quantity(capacity, "B")}` : said(most));
    node.classList.toggle("over", isMemory && most > capacity);
    fill(place, values, said, most, isMemory ? capacity : most);
  }
}
/** What bounds an operator; of several that are equal the floor is named, then compute. */
const BOUNDS = ["compute", "memory", "kernel floor", "die links"];
function tellOperators({ hasStep, at }) {
  const table = byId("live-operators"), bound = (places) => BOUNDS[[2, 0, 1, 3].find((k) => at(places[k]) > 0)] ?? "";
  const pass = (time, places) => (at(time) ? [quantity(at(time), "s"), bound(places)] : ["", ""]);
  if (table.closest("details").open) figures.operators.forEach((operator, k) => {
    const line = table.tBodies[0].rows[k], flops = at(operator.flops), bytes = at(operator.bytes);
    const said = [...pass(operator.forward_time, operator.forward_bound), ...pass(operator.backward_time,
      operator.backward_bound), quantity(flops, "FLOP"), bytes ? digits(flops / bytes) : ""];
    line.hidden = !hasStep || !at(operator.present);
    if (!line.hidden) said.forEach((text, i) => tell(line.cells[i + 1], text));
  });
}
/** Figures of the design with each of these leaves a little more and less; the last is the design itself. */
function around(places, up, down, metrics) {
  const { values } = design, n = 2 * places.length + 1;
  const x = new Map(places.map((i, k) => {
    const column = new Float32Array(n).fill(values[i]);
    column.set([Math.min(values[i] * up(i), leaves[i].high ?? Infinity), values[i] * down(i)], 2 * k);
    return [i, column];
  }));
  return [x, places.length ? machine.over(values, metrics.map((name) => figures.metrics[name]), { x }) : []];
}
/** Change in per cent of a metric by one per cent of each continuous leaf; at a limit towards what is possible. */
function tellElasticities(now) {
  const { metric } = shown, { short: label, smooth, more } = model.metrics[metric];
  const isKnown = now.hasStep && smooth && now.of(metric) > 0;
  const places = model.smooth.filter((i) => isKnown && design.values[i] > 0), n = 2 * places.length;
  const [x, [numbers, bits]] = around(places, () => 1.005, () => 0.995, [metric, "infeasible_reason"]);
  const size = ([, slope]) => Math.abs(slope), slopes = places.map((i, k) => {
    const column = x.get(i), up = 2 * k, down = up + 1, log = (values, at) => Math.log(values[at] / values[n]);
    const from = column[up] === column[n] || bits[up] & ~bits[n] ? n : up;
    return [i, (log(numbers, from) - log(numbers, down)) / (log(column, from) - log(column, down))];
  }).filter((slope) => size(slope) >= 5e-4 && size(slope) < Infinity).sort((a, b) => size(b) - size(a));
  const width = (slope) => (50 * Math.abs(slope)) / Math.abs(slopes[0][1]);
  byId("live-elasticities").tBodies[0].replaceChildren(...slopes.slice(0, MOST_SLOPES).map(([i, slope]) => {
    const bar = { marginLeft: `${slope < 0 ? 50 - width(slope) : 50}%`, width: `${width(slope)}%` };
    return element("tr", {}, element("th", { scope: "row", title: leaves[i].label }, leaves[i].name),
      element("td", { class: "both" },
        element("i", { class: "part", style: bar, "data-good": String(slope > 0 === more) })),
      element("td", { class: "number" }, `${slope < 0 ? "−" : "+"}${Math.abs(slope).toFixed(3)}`));
  }));
  const said = isKnown ? `1 % more of a leaf changes ${label} by so many per cent` : `${label} has no slopes here`;
  tell(byId("live-elasticities-of"), said);
}
/** 80 % intervals of metrics: the model with each unknown leaf a deviation more and less, the rest as at the start. */
function intervals() {
  const { width, steps, metrics } = model.intervals, paths = Object.keys(steps), names = Object.keys(metrics);
  const factor = (sign) => (i) => Math.exp(sign * steps[leaves[i].path]);
  const [, numbers] = around(paths.map((path) => indexOf.get(path)), factor(1), factor(-1), names);
  return new Map(names.map((name, j) => {
    const log = (k) => Math.log(numbers[j][k]), here = numbers[j].at(-1), { rest, factors } = metrics[name];
    const slopes = Object.fromEntries(paths.map((path, k) => [path, (log(2 * k) - log(2 * k + 1)) / 2]));
    const moved = factors.map((shares) => 
      Object.entries(shares).reduce((sum, [path, share]) => sum + share * slopes[path], 0));
    const times = Math.exp(width * Math.hypot(rest, ...moved.filter(Number.isFinite)));
    return [name, [here / times, here * times]];
  }));
}

function tellIntervals(now) {
  const ends = now.hasStep ? intervals() : new Map();
  for (const { name, between } of cards) {
    const [low, high] = ends.get(name) ?? [];
    tell(between, high > low * 1.0005 ? `${metricText(name, low)} to ${metricText(name, high)}` : "");
  }
}

const drawing = { isAsked: false, later: 0, addressed: 0 };
/** Draw the figures; what takes longer follows, a task each, unless something else is asked; the map after a pause. */
function draw() {
  drawing.isAsked = false;
  const start = performance.now(), now = figuresOf(design.values), rest = [tellElasticities, tellCurve, tellIntervals];
  for (const part of [tellControls, tellReasons, tellCards, tellFalls, tellOperators]) part(now);
  performance.measure("live-draw", { start, end: performance.now() });
  tell(byId("live-took"), `${digits(performance.now() - start)} ms`);
  byId("live-undo").disabled = !design.past.length;
  byId("live-redo").disabled = !design.future.length;
  picture.version++;
  const follow = () => {
    rest.shift()?.(now);
    drawing.later = rest.length ? setTimeout(follow) : setTimeout(finish, 60);
  };
  for (const task of ["later", "addressed"]) clearTimeout(drawing[task]);
  drawing.later = setTimeout(follow);
  drawing.addressed = setTimeout(address, 200);
}

function finish() {
  const { dataset } = document.body;
  Object.assign(dataset, { ready: "yes", live: Number(dataset.live ?? 0) + 1 });
  tellMap();
}

function drawSoon() {
  if (!drawing.isAsked) requestAnimationFrame(draw);
  drawing.isAsked = true;
}

function address() {
  tell(byId("live-line"), model.command ? command() : written());
  if (location.hash.slice(1) !== written()) history.replaceState(null, "", `#${written()}`);
}

const say = (said) => tell(byId("live-said"), said);

function takeAddress() {
  const unknown = read(location.hash.slice(1));
  say(unknown.length ? `The link has what this page has not, or not so: ${unknown.join(", ")}` : "");
  drawSoon();
}
/** Compute a design of the explorer: its leaves by path, its names by column. */
function take(values, names) {
  const other = Object.entries(model.same).find(([name, said]) => names[name] !== said);
  const lacking = Object.keys(values).find((path) => !indexOf.has(path));
  if (other) return say(`The design is of ${other[0]} ${names[other[0]]}: this page computes ${other[1]}`);
  if (lacking) return say(`The design has ${lacking}, which the one that this page began with has not`);
  remember();
  for (const [path, value] of Object.entries({ ...model.base, ...values })) design.values[indexOf.get(path)] = value;
  if (model.follows && design.values[model.follows.replicas] !== replicas(design.values)) design.follows = false;
  drawSoon();
  return say("");
}

function beginModel() {
  machine = new Machine(model.program);
  atStart = figuresOf(START);
  byId("live").hidden = false;
  for (const prepare of [prepareControls, prepareFigures, prepareStudies]) prepare();
  const copied = (said, what) => copy(said, what, byId("live-copied"), byId("live-said"));
  const back = () => undo(design.past, design.future), ahead = () => undo(design.future, design.past);
  on("live-undo", "click", back);
  on("live-redo", "click", ahead);
  on("live-reset", "click", () => { remember(); read(""); drawSoon(); });
  on("live-print", "click", () => print());
  on("live-link", "click", () => { address(); copied(location.href, "link"); });
  on("live-command", "click", () => copied(command(), "dse evaluate"));
  byId("live-command").hidden = !model.command;
  byId("live-operators").closest("details").addEventListener("toggle", drawSoon);
  addEventListener("hashchange", () => { if (location.hash.slice(1) !== written()) { remember(); takeAddress(); } });
  document.addEventListener("keydown", (event) => {
    const { target, key, shiftKey } = event, isCtrl = event.ctrlKey || event.metaKey, name = key.toLowerCase();
    const actions = isCtrl ? { z: shiftKey ? ahead : back, y: ahead } : { "/": () => byId("live-filter").focus() };
    if (!target.matches?.("input[type=text], input[type=search], textarea")) act(event, actions, name);
  });
  // Figures for whoever asks on this page: { designs: values of all leaves each, metrics } → answer; intervals here.
  document.addEventListener("dse-ask", ({ detail }) => {
    const answer = detail.designs.map((values) => figuresOf(Float64Array.from(values)));
    Object.assign(detail, { between: [...intervals()], answer: answer.map(({ of }) => detail.metrics.map(of)) });
  });
  takeAddress();
}
