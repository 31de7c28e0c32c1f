// Controls, what follows from them, and when it is drawn.

const rows = leaves.map(() => null);

// --- controls ---------------------------------------------------------------------------------------------

/** The control of a leaf: a slider where its values can be listed, a field, its units. */
function control(i) {
  const leaf = leaves[i], id = `live-leaf-${i}`;
  const values = valuesOf(leaf, 201), about = `${leaf.label}; allowed: ${leaf.choices ? leaf.choices.map(([, name]) => name).join(", ") : leaf.allowed}`;
  const name = element("label", { for: id, title: about }, leaf.name);
  const again = element("button", { type: "button", class: "again", hidden: true, title: `back to ${leafText(leaf, leaf.value)}`, "aria-label": `${leaf.name} back to ${leafText(leaf, leaf.value)}`, onclick: () => change([[i, leaf.value]]) }, "↺");
  const place = { i, values, again };
  if (leaf.choices) {
    place.field = element("select", { id, title: about, onchange: (event) => change([[i, Number(event.target.value)]]) }, ...leaf.choices.map(([value, text]) => element("option", { value }, text)));
  } else {
    place.field = element("input", { id, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", title: about, "aria-description": about, onchange: () => take(place) });
    place.field.addEventListener("keydown", (event) => {
      const ahead = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!ahead) return;
      event.preventDefault();
      step(place, ahead);
    });
    if (values.length > 1) {
      place.slider = element("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": leaf.name, title: about });
      place.slider.addEventListener("pointerdown", () => { place.held = true; remember(); });
      place.slider.addEventListener("input", () => change([[i, values[place.slider.valueAsNumber]]], place.held));
      place.slider.addEventListener("change", () => { place.held = false; });
    }
  }
  const told = element("p", { class: "wrong", hidden: true, role: "alert" });
  place.told = told;
  place.row = element("div", { class: "leaf" }, name, again, element("span", { class: "field" }, place.field, element("span", { class: "units" }, leaf.units)), place.slider ?? "", told);
  rows[i] = place;
  return place.row;
}

/** The value of a field, or what is wrong with it. */
function take(place) {
  const leaf = leaves[place.i], number = Number(place.field.value.trim().replaceAll(",", ""));
  let value = number / leaf.factor;
  if (leaf.whole) value = Math.abs(value - Math.round(value)) < 1e-6 ? Math.round(value) : value;
  value = Number(value.toPrecision(12));
  const isRight = place.field.value.trim() !== "" && isAllowed(leaf, value);
  place.field.setAttribute("aria-invalid", String(!isRight));
  place.told.hidden = isRight;
  if (isRight) change([[place.i, value]]);
  else tell(place.told, `${place.field.value || "nothing"} is no value of ${leaf.name}: ${leaf.allowed}${leaf.high !== null && leaf.units ? ` (${leafText(leaf, leaf.high)})` : ""}`);
}

/** The next of the listed values. */
function step({ i, values }, ahead) {
  const here = design.values[i], next = ahead > 0 ? values.find((value) => value > here) : values.findLast((value) => value < here);
  if (next !== undefined) change([[i, next]]);
}

/** Show the values that the design has. */
function tellControls() {
  for (const place of rows) {
    if (!place) continue;
    const { i, field, slider, values, again, told, row } = place, leaf = leaves[i], value = design.values[i];
    const text = leaf.choices ? String(value) : short(value * leaf.factor);
    if (field.value !== text) field.value = text;
    if (!told.hidden) { told.hidden = true; field.setAttribute("aria-invalid", "false"); }
    if (slider) {
      let at = values.findIndex((one) => one >= value);
      if (at < 0) at = values.length - 1;
      else if (at > 0 && value - values[at - 1] < values[at] - value) at--;
      if (slider.valueAsNumber !== at) slider.value = at;
      const said = leafText(leaf, value);
      if (slider.getAttribute("aria-valuetext") !== said) slider.setAttribute("aria-valuetext", said);
    }
    const differs = value !== START[i];
    if (again.hidden === differs) again.hidden = !differs;
    row.classList.toggle("changed", differs);
  }
  if (page.follows) byId("live-follows").checked = design.follows;
}

function prepareControls() {
  const first = leaves.map((leaf, i) => [leaf.first, i]).filter(([at, i]) => at >= 0 && leaves[i].read).sort((a, b) => a[0] - b[0]);
  byId("live-first").append(...first.map(([, i]) => control(i)));
  const groups = new Map();
  leaves.forEach((leaf, i) => {
    if (leaf.first >= 0 || !leaf.read) return;
    if (!groups.has(leaf.group)) groups.set(leaf.group, []);
    groups.get(leaf.group).push(i);
  });
  for (const [name, members] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
    const made = element("details", { class: "group" }, element("summary", {}, `${name} (${members.length})`));
    made.fill = () => {
      if (made.children.length > 1) return;
      made.append(...members.map(control));
      tellControls();
    };
    made.addEventListener("toggle", () => { if (made.open) made.fill(); });
    byId("live-rest").append(made);
  }
  byId("live-filter").addEventListener("input", filter);
  byId("live-follow").hidden = !page.follows;
  byId("live-follows").addEventListener("change", (event) => {
    remember();
    design.follows = event.target.checked;
    if (design.follows) design.values[page.follows.replicas] = replicas(design.values);
    changed();
  });
}

/** Controls whose leaf has all the words. */
function filter() {
  const words = byId("live-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (leaf) => words.every((word) => `${leaf.path} ${leaf.label}`.toLowerCase().includes(word));
  for (const made of byId("live-rest").children) {
    if (words.length) made.fill();
    const any = [...made.querySelectorAll(".leaf")].length;
    if (words.length && any) made.open = true;
    else if (!words.length) made.open = false;
  }
  for (const place of rows) if (place) place.row.hidden = words.length > 0 && !fits(leaves[place.i]);
  for (const made of byId("live-rest").children) made.hidden = words.length > 0 && ![...made.querySelectorAll(".leaf")].some((row) => !row.hidden);
}

// --- what is shown ----------------------------------------------------------------------------------------

/** Show another metric, or other leaves. */
function show(wanted) {
  remember();
  Object.assign(shown, wanted);
  changed();
}

function prepareChoices() {
  const names = Object.keys(page.metrics).filter((name) => !["feasible", "infeasible_reason"].includes(name) && figures.metrics[name] !== undefined);
  const first = page.headline, rest = names.filter((name) => !first.includes(name));
  const group = (label, members) => element("optgroup", { label }, ...members.map((name) => element("option", { value: name, title: page.metrics[name].label }, page.metrics[name].short)));
  byId("live-metric").append(group("headline", first), group("all", rest));
  byId("live-metric").addEventListener("change", (event) => show({ metric: event.target.value }));
  for (const way of ["curve", "x", "y"]) {
    const place = byId(`live-${way}-leaf`), of = (members) => members.filter((leaf) => leaf.read).map((leaf) => element("option", { value: leaf.name, title: leaf.label }, leaf.name));
    place.append(element("optgroup", { label: "first" }, ...of(leaves.filter((leaf) => leaf.first >= 0))), element("optgroup", { label: "all" }, ...of(leaves.filter((leaf) => leaf.first < 0))));
    place.addEventListener("change", () => { picture.at = null; show({ [way]: place.value }); });
  }
  byId("live-times").addEventListener("change", (event) => { picture.at = null; show({ times: event.target.value }); });
}

function tellChoices() {
  byId("live-metric").value = shown.metric;
  for (const way of ["curve", "x", "y"]) byId(`live-${way}-leaf`).value = shown[way];
  byId("live-times").value = shown.times;
}

// --- drawing ----------------------------------------------------------------------------------------------

/** Milliseconds of a frame for scripts: laying the page out takes the rest of 16. */
const FRAME = 10;

/** Milliseconds without a change after which what did not fit follows. */
const PAUSE = 60;
const drawing = { asked: false, later: 0, addressed: 0 };

/** What follows the figures where it fits into the frame; its milliseconds, of late, say whether it will. */
const following = [tellElasticities, tellCurve, tellIntervals].map((tell) => ({ tell, took: 0 }));

function follow(one, now) {
  const start = performance.now();
  one.tell(now);
  one.took = 0.5 * (one.took + performance.now() - start);
}

/** Draw all but the map; what does not fit into a frame, and the map, follow when nothing else is asked, a task each. */
function draw() {
  drawing.asked = false;
  const start = performance.now(), now = figuresOf(design.values);
  tellControls();
  tellChoices();
  tellReasons(now);
  tellCards(now);
  tellFalls(now);
  tellOperators(now);
  const rest = following.filter((one) => {
    const fits = performance.now() - start + one.took < FRAME;
    if (fits) follow(one, now);
    return !fits;
  });
  const took = performance.now() - start;
  performance.measure("live-draw", { start, end: start + took });
  tell(byId("live-took"), `${digits(took)} ms`);
  byId("live-undo").disabled = !design.past.length;
  byId("live-redo").disabled = !design.future.length;
  picture.version++;
  clearTimeout(drawing.later);
  const goOn = () => {
    if (rest.length) {
      follow(rest.shift(), now);
      drawing.later = setTimeout(goOn);
      return;
    }
    if (document.body.classList.contains("live-page")) document.body.dataset.ready = "yes";
    document.body.dataset.live = String(Number(document.body.dataset.live ?? 0) + 1);
    tellMap();
  };
  drawing.later = setTimeout(goOn, PAUSE);
  clearTimeout(drawing.addressed);
  drawing.addressed = setTimeout(address, 200);
}

function drawSoon() {
  if (drawing.asked) return;
  drawing.asked = true;
  requestAnimationFrame(draw);
}

function address() {
  const text = written();
  tell(byId("live-line"), page.command ? command() : text);
  if (location.hash.slice(1) !== text) history.replaceState(null, "", `#${text}`);
}

// --- begin ------------------------------------------------------------------------------------------------

const say = (text) => tell(byId("live-said"), text);

function takeAddress() {
  const unknown = read(location.hash.slice(1));
  say(unknown.length ? `The link has what this page has not, or not so: ${unknown.join(", ")}` : "");
  changed();
}

function listenToPage() {
  const copied = async (text, what) => say((await toClipboard(text)) ? `${what} copied` : "the browser does not let the page copy");
  byId("live-undo").addEventListener("click", () => undo(design.past, design.future));
  byId("live-redo").addEventListener("click", () => undo(design.future, design.past));
  byId("live-reset").addEventListener("click", () => { remember(); read(""); changed(); });
  byId("live-print").addEventListener("click", () => print());
  byId("live-link").addEventListener("click", () => { address(); copied(location.href, "link"); });
  byId("live-command").hidden = !page.command;
  byId("live-command").addEventListener("click", () => copied(command(), "dse evaluate"));
  byId("live-operators").closest("details").addEventListener("toggle", drawSoon);
  addEventListener("hashchange", () => { if (location.hash.slice(1) !== written()) { remember(); takeAddress(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  document.addEventListener("keydown", (event) => {
    const isText = event.target.matches?.("input[type=text], input[type=search], textarea");
    const key = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !isText && (key === "z" || key === "y")) {
      event.preventDefault();
      if (key === "y" || event.shiftKey) undo(design.future, design.past);
      else undo(design.past, design.future);
    } else if (key === "/" && !isText && !event.ctrlKey) {
      event.preventDefault();
      byId("live-filter").focus();
    }
  });
  // Figures of designs for whoever asks on this page: { designs: values of all leaves each, metrics } → answer,
  // and of the first its intervals, between.
  document.addEventListener("dse-ask", ({ detail }) => {
    const { designs, metrics } = detail;
    detail.between = [...intervals(Float64Array.from(designs[0]))];
    detail.answer = designs.map((values) => { const now = figuresOf(Float64Array.from(values)); return metrics.map((name) => now.of(name)); });
  });
  // The explorer's designs, where it is on the same page.
  document.addEventListener("dse-design", ({ detail: { values, names } }) => {
    const other = Object.entries(page.same).find(([name, text]) => names[name] !== text);
    const lacking = Object.keys(values).find((path) => !indexOf.has(path));
    if (other) return say(`The design is of ${other[0]} ${names[other[0]]}: this page computes ${other[1]}`);
    if (lacking) return say(`The design has ${lacking}, which the one that this page began with has not`);
    remember();
    for (const [path, value] of Object.entries(values)) design.values[indexOf.get(path)] = value;
    if (page.follows && design.values[page.follows.replicas] !== replicas(design.values)) design.follows = false;
    changed();
    say("");
  });
}

tell(byId("live-title"), page.title);
tell(byId("live-about"), `${page.study} · ${leaves.filter((leaf) => leaf.read).length} leaves · dse ${page.version}`);
prepareControls();
prepareChoices();
listenToMap();
listenToWidth();
listenToPage();
design.listeners.push(drawSoon);
takeAddress();
