// The model that computes: controls of its leaves, its figures, and when they are drawn.

let machine;

// --- controls

const controls = leaves.map(() => null);

/** The control of a leaf: a slider where its values can be listed, a field, its units. */
function control(i) {
  const leaf = leaves[i], { name, choices, label, units } = leaf, values = valuesOf(leaf, 201), id = `live-leaf-${i}`;
  const title = `${label}; allowed: ${choices ? choices.map(([, text]) => text).join(", ") : leaf.allowed}`;
  const back = `back to ${leafText(leaf, leaf.value)}`;
  const again = element("button", { type: "button", class: "again", hidden: true, title: back,
    "aria-label": `${name} ${back}`, onclick: () => change([[i, leaf.value]]) }, "↺");
  const wrong = element("p", { class: "wrong", hidden: true, role: "alert" });
  let field, slider;
  if (choices) {
    const options = choices.map(([value, text]) => element("option", { value }, text));
    field = element("select", { id, title, onchange: () => change([[i, Number(field.value)]]) }, ...options);
  } else {
    field = element("input", { id, title, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
      "aria-description": title, onchange: () => enter(controls[i]), onkeydown: (event) => {
        const here = design.values[i], ways = {
          ArrowUp: () => values.find((value) => value > here), ArrowDown: () => values.findLast((value) => value < here) };
        if (!ways[event.key]) return;
        event.preventDefault();
        const value = ways[event.key]();
        if (value !== undefined) change([[i, value]]);
      } });
    let isHeld = false;
    if (values.length > 1) slider = element("input", { type: "range", min: 0, max: values.length - 1, "aria-label": name, title,
      onpointerdown: () => { isHeld = true; remember(); }, onchange: () => { isHeld = false; },
      oninput: () => change([[i, values[slider.valueAsNumber]]], isHeld) });
  }
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
  const isRight = typed !== "" && isAllowed(leaf, value), most = leaf.high !== null && leaf.units ? ` (${leafText(leaf, leaf.high)})` : "";
  field.setAttribute("aria-invalid", String(!isRight));
  wrong.hidden = isRight;
  if (isRight) change([[i, value]]);
  else tell(wrong, `${typed || "nothing"} is no value of ${leaf.name}: ${leaf.allowed}${most}`);
}

/** Show the values that the design has. */
function tellControls() {
  for (const { i, field, slider, values, again, wrong, node } of controls.filter(Boolean)) {
    const leaf = leaves[i], value = design.values[i], said = leaf.choices ? String(value) : short(value * leaf.factor);
    if (field.value !== said) field.value = said;
    if (!wrong.hidden) {
      wrong.hidden = true;
      field.setAttribute("aria-invalid", "false");
    }
    if (slider) {
      let at = values.findIndex((other) => other >= value);
      if (at < 0) at = values.length - 1;
      else if (at > 0 && value - values[at - 1] < values[at] - value) at--;
      if (slider.valueAsNumber !== at) slider.value = at;
      if (slider.ariaValueText !== leafText(leaf, value)) slider.ariaValueText = leafText(leaf, value);
    }
    again.hidden = value === START[i];
    node.classList.toggle("changed", !again.hidden);
  }
  if (model.follows) byId("live-follows").checked = design.follows;
}

function prepareControls() {
  const places = leaves.map((_, i) => i).filter((i) => leaves[i].read);
  const first = places.filter((i) => leaves[i].first >= 0).sort((a, b) => leaves[a].first - leaves[b].first);
  byId("live-first").append(...first.map(control));
  const groups = Map.groupBy(places.filter((i) => leaves[i].first < 0), (i) => leaves[i].group);
  for (const [name, members] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
    const group = element("details", { class: "group", ontoggle: () => { if (group.open) group.fill(); } },
      element("summary", {}, `${name} (${members.length})`));
    group.fill = () => {
      if (group.children.length > 1) return;
      group.append(...members.map(control));
      tellControls();
    };
    byId("live-rest").append(group);
  }
  on("live-filter", "input", filterControls);
  byId("live-follow").hidden = !model.follows;
  on("live-follows", "change", ({ target }) => {
    remember();
    design.follows = target.checked;
    if (design.follows) design.values[model.follows.replicas] = replicas(design.values);
    drawSoon();
  });
}

/** Controls whose leaf has all the words. */
function filterControls() {
  const asked = byId("live-filter").value.toLowerCase().split(/\s+/).filter(Boolean), groups = [...byId("live-rest").children];
  if (asked.length) groups.forEach((group) => group.fill());
  for (const { i, node } of controls.filter(Boolean)) {
    const about = `${leaves[i].path} ${leaves[i].label}`.toLowerCase();
    node.hidden = !asked.every((word) => about.includes(word));
  }
  for (const group of groups) {
    group.open = asked.length > 0;
    group.hidden = asked.length > 0 && !group.querySelector(".leaf:not([hidden])");
  }
}

/** Show another metric, or other leaves. */
function show(wanted) {
  remember();
  Object.assign(shown, wanted);
  drawSoon();
}

const CHOICES = { metric: "live-metric", curve: "live-curve-leaf", x: "live-x-leaf", y: "live-y-leaf", times: "live-times" };

function prepareChoices() {
  const group = (label, names, titleOf) => element("optgroup", { label },
    ...names.map((name) => element("option", { value: name, title: titleOf(name) }, model.metrics[name]?.short ?? name)));
  const names = Object.keys(figures.metrics).filter((name) => model.metrics[name] && !/^(in)?feasible/.test(name));
  const label = (name) => model.metrics[name].label, isFirst = (name) => model.headline.includes(name);
  byId("live-metric").append(group("headline", model.headline, label), group("all", names.filter((name) => !isFirst(name)), label));
  for (const way of ["curve", "x", "y"]) for (const isHead of [true, false]) {
    const members = leaves.filter(({ read: isRead, first }) => isRead && first >= 0 === isHead).map(({ name }) => name);
    byId(CHOICES[way]).append(group(isHead ? "first" : "all", members, (name) => leaves[indexOf.get(name)].label));
  }
  for (const [way, id] of Object.entries(CHOICES)) on(id, "change", ({ target }) => show({ [way]: target.value }));
}

// --- figures

/** All figures of a design, and how to read them. */
function figuresOf(values) {
  const numbers = machine.at(values), bits = numbers[figures.metrics.infeasible_reason], hasStep = !(bits & model.noStep);
  return { of: (name) => numbers[figures.metrics[name]], at: (place) => numbers[place], hasStep,
    has: (name) => hasStep || model.holds.includes(name), reasons: model.reasons.filter(([bit]) => bits & bit) };
}

/** Why the design cannot run, with how much is needed of what there is where that has a degree. */
function tellReasons({ reasons, of, at }) {
  const said = reasons.map(([, name, meaning]) => {
    if (name === "memory") return `${meaning}: ${quantity(of(model.memory), "B")} of ${quantity(at(figures.capacity), "B")}`;
    const over = figures.over[name] === undefined ? NaN : Math.exp(at(figures.over[name]));
    return over > 1 ? `${meaning}: ${digits(over)} times what there is` : meaning;
  });
  byId("live-why").hidden = !said.length;
  byId("live-why").replaceChildren(element("b", {}, said.length > 1 ? "Cannot run, for these reasons:" : "Cannot run: "),
    ...(said.length > 1 ? [element("ul", {}, ...said.map((reason) => element("li", {}, reason)))] : said));
}

const cards = [], falls = [], operators = [], elastic = [];
const BOUNDS = ["compute", "memory", "kernel floor", "die links"];

function prepareFigures() {
  for (const name of model.headline) {
    const [value, change, between] = ["value", "change", "between"].map((part) => element("span", { class: part }));
    const title = `${model.metrics[name].label}: show in the curve, the map and the elasticities`;
    const node = element("button", { type: "button", class: "card", title, onclick: () => show({ metric: name }) },
      element("span", { class: "name" }, model.metrics[name].short), value, between, change);
    byId("live-cards").append(node);
    cards.push({ name, node, value, change, between });
  }
  falls.push(...model.totals.map(({ name, parts }) => ({ name, ...fall(model.metrics[name].short, parts) })));
  if (model.bounds.length) falls.splice(1, 0, fall(`${model.metrics[falls[0].name].short} by what bounds it`, model.bounds));
  byId("live-falls").append(...falls.map(({ node }) => node));
  for (const operator of figures.operators) {
    const cells = Array.from({ length: 6 }, () => element("td"));
    const name = `${operator.section} ${operator.name.replaceAll("_", " ")}`;
    operators.push({ ...operator, cells, line: element("tr", {}, element("th", { scope: "row" }, name), ...cells) });
  }
  byId("live-operators").tBodies[0].append(...operators.map(({ line }) => line));
  for (let k = 0; k < 12; k++) {
    const name = element("th", { scope: "row" }), value = element("td", { class: "number" }), bar = element("i", { class: "part" });
    const line = element("tr", { hidden: true }, name, element("td", { class: "stairs both" }, bar), value);
    byId("live-elasticities").tBodies[0].append(line);
    elastic.push({ line, name, value, bar });
  }
}

function tellCards(now) {
  for (const { name, node, value, change } of cards) {
    const isKnown = now.has(name), ratio = now.of(name) / atStart.of(name) - 1;
    const differs = isKnown && Number.isFinite(ratio) && Math.abs(ratio) > 5e-4;
    const said = ratio > 9 ? `× ${digits(ratio + 1)}` : `${ratio > 0 ? "+" : "−"}${digits(Math.abs(100 * ratio))} %`;
    tell(value, isKnown ? metricText(name, now.of(name)) : "–");
    tell(change, differs ? said : "");
    change.dataset.good = differs ? String(ratio > 0 === model.metrics[name].more) : "";
    node.setAttribute("aria-pressed", String(shown.metric === name));
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
    const textOf = (value) => (name ? metricText(name, value) : quantity(value, "s"));
    if (name) tell(total, isMemory ? `${textOf(most)} of ${quantity(capacity, "B")}` : textOf(most));
    node.classList.toggle("over", isMemory && most > capacity);
    fill(place, values, textOf, most, isMemory ? capacity : most);
  }
}

function tellOperators({ hasStep, at }) {
  if (!byId("live-operators").closest("details").open) return;
  const bound = (places) => BOUNDS[[2, 0, 1, 3].find((i) => at(places[i]) > 0)] ?? "";
  for (const { cells, line, ...of } of operators) {
    line.hidden = !hasStep || !at(of.present);
    if (line.hidden) continue;
    const isBack = at(of.backward_time) > 0, moved = at(of.bytes), flops = at(of.flops);
    const said = [quantity(at(of.forward_time), "s"), bound(of.forward_bound), isBack ? quantity(at(of.backward_time), "s") : "",
      isBack ? bound(of.backward_bound) : "", quantity(flops, "FLOP"), moved ? digits(flops / moved) : ""];
    said.forEach((text, k) => tell(cells[k], text));
  }
}

// --- slopes

/** Figures of the design with each of these leaves a little more and less; the last is the design itself. */
function around(places, up, down, metrics) {
  const { values } = design, n = 2 * places.length + 1;
  const x = new Map(places.map((i, k) => {
    const column = new Float32Array(n).fill(values[i]);
    column.set([Math.min(values[i] * up(i), leaves[i].high ?? Infinity), values[i] * down(i)], 2 * k);
    return [i, column];
  }));
  return [x, machine.over(values, metrics.map((name) => figures.metrics[name]), { x })];
}

/** Change in per cent of a metric by one per cent of each continuous leaf; at a limit towards what is possible. */
function elasticities(metric) {
  const places = model.smooth.filter((i) => design.values[i] > 0), n = 2 * places.length;
  if (!n) return [];
  const [x, [numbers, bits]] = around(places, () => 1.005, () => 0.995, [metric, "infeasible_reason"]);
  const slopes = places.map((i, k) => {
    const column = x.get(i), up = 2 * k, down = up + 1, log = (values, at) => Math.log(values[at] / values[n]);
    const isLimit = column[up] === column[n] || bits[up] & ~bits[n], from = isLimit ? n : up;
    return [i, (log(numbers, from) - log(numbers, down)) / (isLimit ? -log(column, down) : log(column, up) - log(column, down))];
  });
  return slopes.filter(([, slope]) => Math.abs(slope) >= 5e-4 && slope < Infinity).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
}

function tellElasticities(now) {
  const { short: label, smooth, more } = model.metrics[shown.metric], isKnown = now.hasStep && smooth && now.of(shown.metric) > 0;
  const slopes = isKnown ? elasticities(shown.metric) : [], most = Math.abs(slopes[0]?.[1]);
  elastic.forEach(({ line, name, value, bar }, k) => {
    line.hidden = !slopes[k];
    if (!slopes[k]) return;
    const [i, slope] = slopes[k], width = (50 * Math.abs(slope)) / most;
    tell(name, leaves[i].name);
    name.title = leaves[i].label;
    tell(value, `${slope < 0 ? "−" : "+"}${Math.abs(slope).toFixed(3)}`);
    Object.assign(bar.style, { marginLeft: `${slope < 0 ? 50 - width : 50}%`, width: `${width}%` });
    bar.dataset.good = String(slope > 0 === more);
  });
  tell(byId("live-elasticities-of"), isKnown ? `1 % more of a leaf changes ${label} by so many per cent` : `${label} has no slopes here`);
}

/** 80 % intervals of metrics: the model with each unknown leaf a deviation more and less, and the rest as at the start. */
function intervals() {
  const { width, steps, metrics } = model.intervals, paths = Object.keys(steps), names = Object.keys(metrics);
  const factor = (sign) => (i) => Math.exp(sign * steps[leaves[i].path]);
  const [, numbers] = around(paths.map((path) => indexOf.get(path)), factor(1), factor(-1), names);
  return new Map(names.map((name, j) => {
    const log = (k) => Math.log(numbers[j][k]), here = numbers[j].at(-1), { rest, factors } = metrics[name];
    const slopes = Object.fromEntries(paths.map((path, k) => [path, (log(2 * k) - log(2 * k + 1)) / 2]));
    const moved = factors.map((shares) => Object.entries(shares).reduce((sum, [path, share]) => sum + share * slopes[path], 0));
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

// --- drawing

/** Milliseconds of a frame for scripts: laying out takes the rest of 16; and without a change, until the rest follows. */
const FRAME = 10, PAUSE = 60;
const drawing = { isAsked: false, later: 0, addressed: 0 };

/** What follows the figures where it fits into the frame; its milliseconds, of late, say whether it will. */
const following = [tellElasticities, tellCurve, tellIntervals].map((tell) => ({ tell, took: 0 }));

function follow(part, now) {
  const start = performance.now();
  part.tell(now);
  part.took = 0.5 * (part.took + performance.now() - start);
}

/** Draw all but the map; what does not fit into a frame, and the map, follow when nothing else is asked, a task each. */
function draw() {
  drawing.isAsked = false;
  const start = performance.now(), now = figuresOf(design.values);
  tellControls();
  for (const [way, id] of Object.entries(CHOICES)) byId(id).value = shown[way];
  for (const part of [tellReasons, tellCards, tellFalls, tellOperators]) part(now);
  const rest = following.filter((part) => {
    const fits = performance.now() - start + part.took < FRAME;
    if (fits) follow(part, now);
    return !fits;
  });
  performance.measure("live-draw", { start, end: performance.now() });
  tell(byId("live-took"), `${digits(performance.now() - start)} ms`);
  byId("live-undo").disabled = !design.past.length;
  byId("live-redo").disabled = !design.future.length;
  picture.version++;
  const goOn = () => {
    if (rest.length) {
      follow(rest.shift(), now);
      drawing.later = setTimeout(goOn);
      return;
    }
    document.body.dataset.ready = "yes";
    document.body.dataset.live = String(Number(document.body.dataset.live ?? 0) + 1);
    tellMap();
  };
  clearTimeout(drawing.later);
  drawing.later = setTimeout(goOn, PAUSE);
  clearTimeout(drawing.addressed);
  drawing.addressed = setTimeout(address, 200);
}

function drawSoon() {
  if (!drawing.isAsked) requestAnimationFrame(draw);
  drawing.isAsked = true;
}

function address() {
  tell(byId("live-line"), model.command ? command() : written());
  if (location.hash.slice(1) !== written()) history.replaceState(null, "", `#${written()}`);
}

// --- begin

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

function listenToModel() {
  const copied = async (said, what) => say((await copy(said)) ? `${what} copied` : "the browser does not let the page copy");
  on("live-undo", "click", () => undo(design.past, design.future));
  on("live-redo", "click", () => undo(design.future, design.past));
  on("live-reset", "click", () => { remember(); read(""); drawSoon(); });
  on("live-print", "click", () => print());
  on("live-link", "click", () => { address(); copied(location.href, "link"); });
  byId("live-command").hidden = !model.command;
  on("live-command", "click", () => copied(command(), "dse evaluate"));
  byId("live-operators").closest("details").addEventListener("toggle", drawSoon);
  addEventListener("hashchange", () => { if (location.hash.slice(1) !== written()) { remember(); takeAddress(); } });
  document.addEventListener("keydown", (event) => {
    const isText = event.target.matches?.("input[type=text], input[type=search], textarea"), key = event.key.toLowerCase();
    const isUndo = (event.ctrlKey || event.metaKey) && (key === "z" || key === "y");
    if (isText || !(isUndo || (key === "/" && !event.ctrlKey))) return;
    event.preventDefault();
    if (!isUndo) byId("live-filter").focus();
    else if (key === "y" || event.shiftKey) undo(design.future, design.past);
    else undo(design.past, design.future);
  });
  // Figures for whoever asks on this page: { designs: values of all leaves each, metrics } → answer; intervals here.
  document.addEventListener("dse-ask", ({ detail }) => {
    detail.between = [...intervals()];
    detail.answer = detail.designs.map((values) => {
      const now = figuresOf(Float64Array.from(values));
      return detail.metrics.map((name) => now.of(name));
    });
  });
}

let atStart;

function beginModel() {
  machine = new Machine(model.program);
  byId("live").hidden = false;
  atStart = figuresOf(START);
  tell(byId("live-title"), results ? model.title : "");
  tell(byId("live-about"), `${model.study} · ${leaves.filter((leaf) => leaf.read).length} leaves · dse ${model.version}`);
  tell(byId("live-operators-of"), model.operatorsOf);
  prepareControls();
  prepareChoices();
  prepareFigures();
  prepareStudies();
  listenToModel();
  takeAddress();
}
