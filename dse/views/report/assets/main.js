// The page: what is chosen, and what follows from it.

/** Rows of the table. */
const MOST_LISTED = 200;

const state = {
  view: null, constraints: [], rows: new Int32Array(0), front: [], selected: [], current: -1, hovered: -1, a: -1, b: -1,
  sort: { column: null, down: false }, listing: 0,
};
const plot = new Plot(byId("plot"), {
  hover, tap,
  select: (rows, way) => choose(combined(way, state.selected, rows)),
  invert: () => choose(combined("xor", state.selected, Array.from(state.rows))),
  zoom: () => measured("zoom", () => {}),
});

/** Measure a change up to the frame that shows it: performance.getEntriesByName(name). */
async function measured(name, change) {
  const start = performance.now();
  await change();
  await plot.painted();
  performance.measure(name, { start, end: performance.now() });
}

// --- axes and constraints ---------------------------------------------------------------------------------

function readView() {
  const pick = (id) => columns[Number(byId(id).value)];
  state.view = {
    x: pick("x"), y: pick("y"), colour: pick("colour"), xLog: byId("x-log").checked, yLog: byId("y-log").checked,
    colourLog: byId("colour-log").checked, betterX: byId("x-better").value, betterY: byId("y-better").value,
  };
  state.sort = { column: state.view.x, down: state.view.betterX === "more" };
}

/** The scale and sense that suit a column which has just been chosen. */
function suit(way) {
  const column = columns[Number(byId(way).value)];
  const log = byId(`${way}-log`);
  log.checked = wantsLog(column);
  log.disabled = isNames(column);
  const better = document.getElementById(`${way}-better`);
  if (better) better.value = column.better || "less";
}

/** Designs that pass, with numbers along both axes: a logarithm has none of what is not positive. */
function filter() {
  const { x, y, xLog, yLog } = state.view;
  const drawn = (column, log) => (row) => {
    const value = number(column, row);
    return log ? value > 0 && value < Infinity : Number.isFinite(value);
  };
  const tests = [drawn(x, xLog), drawn(y, yLog), ...state.constraints.map((one) => one.test)];
  if (byId("feasible").checked) tests.unshift(canRun);
  state.rows = passing(tests);
  const { betterX, betterY } = state.view;
  state.front = paretoFront(x, y, betterX, betterY, state.rows);
  const count = state.rows.length.toLocaleString("en");
  byId("count").textContent = `${count} of ${page.size.toLocaleString("en")} designs shown`;
  byId("front-count").textContent = `${state.front.length.toLocaleString("en")} designs are on the front of these two.`;
}

/** What follows from the designs that are shown. */
function follow() {
  const { view, rows } = state;
  drawLegend(byId("legend"), view.colour, view.colours, !byId("feasible").checked && rows.some((row) => !canRun(row)));
  if (state.selected.length) {
    const shown = new Set(rows);
    state.selected = state.selected.filter((row) => shown.has(row));
    plot.select(state.selected);
  }
  mark();
  listSoon();
}

const frontShown = () => (byId("show-front").checked ? state.front : []);

/** Find the designs that are shown, and their colours. */
function prepareView() {
  filter();
  state.view.colours = colouring(state.view.colour, state.view.colourLog, state.rows);
}

/** Other columns or scales. */
async function redraw() {
  readView();
  await measured("redraw", async () => {
    prepareView();
    await plot.rebuild(state.view, state.rows, frontShown());
    label();
    follow();
  });
}

/** The same axes with other designs or colours. */
function reshow() {
  prepareView();
  plot.show(state.view, state.rows, frontShown());
  follow();
}

/** Other constraints. */
const refilter = () => measured("filter", reshow);

/** Another colour. */
const recolour = () => measured("colour", () => { readView(); reshow(); });

function label() {
  const { x, y } = state.view;
  byId("plot").setAttribute("aria-label", `${y.label} against ${x.label}; arrow keys walk through the designs`);
}

// --- designs ----------------------------------------------------------------------------------------------

function hover(row) {
  if (row === state.hovered) return;
  state.hovered = row;
  const place = byId("tip");
  place.hidden = row < 0;
  if (row >= 0) place.replaceChildren(...tip(row, state.view));
  mark();
  tell();
}

/** A click: this design alone, or with Shift in or out of the selection. */
function tap(row, others) {
  if (others) toggle(row);
  else choose([row]);
}

/** Select designs; one alone is the current one too. */
function choose(rows, current = rows.length === 1 ? rows[0] : state.current) {
  state.selected = rows;
  state.current = rows.length ? current : -1;
  measured("select", () => plot.select(rows));
  mark();
  listSoon();
  tell();
  if (rows.length === 1) compute(rows[0]);
}

/** Tell the page that computes, where there is one, of a design that was chosen. */
function compute(row) {
  if (!byId("live-document")) return;
  const values = {}, names = {};
  for (const column of axes) {
    const setting = column.leaf ? column.settings[stored(column, row)] : null;
    if (setting !== null) values[column.leaf] = setting;
    else if (!column.leaf) names[column.name] = text(column, row);
  }
  document.dispatchEvent(new CustomEvent("dse-design", { detail: { values, names } }));
}

/** The design that is told of: under the pointer, else the current one. */
const subject = () => (state.hovered >= 0 ? state.hovered : state.current);

function tell() {
  const row = subject();
  byId("which").textContent = row < 0 ? "Design" : `Design ${(row + 1).toLocaleString("en")}`;
  byId("design").dataset.row = row;
  if (row >= 0) byId("design").replaceChildren(...describe(row, state.view));
  for (const id of ["pin-a", "pin-b", "copy-evaluate", "copy-toml", "copy-launch"]) byId(id).disabled = row < 0;
}

function mark() {
  const marked = state.hovered >= 0 ? [[state.hovered, "", "quiet"]] : [];
  if (state.current >= 0) marked.push([state.current, "", "ink"]);
  if (state.a >= 0) marked.push([state.a, "A", "a"]);
  if (state.b >= 0) marked.push([state.b, "B", "b"]);
  plot.mark(marked);
}

/** Pin a design as A or B, or take its pin away. */
function pin(row, letter) {
  if (row < 0) return;
  const which = letter ?? (state.a < 0 || state.a === row ? "a" : "b");
  state[which] = state[which] === row ? -1 : row;
  mark();
  list();
  byId("compare").hidden = state.a < 0 || state.b < 0;
  if (!byId("compare").hidden) byId("compared").replaceChildren(...compare(state.a, state.b, state.view));
  announce(state[which] < 0 ? "unpinned" : `pinned as ${which.toUpperCase()}`);
}

const announce = (said) => { byId("announce").textContent = said; };

function clear() {
  hover(-1);
  choose([]);
  byId("design").replaceChildren(element("p", { class: "quiet" }, "Nothing is chosen."));
  announce("selection cleared");
}

// --- the table of the selection ---------------------------------------------------------------------------

/** Columns of the table: pins, what is drawn, axes, other metrics of note. */
function listed() {
  const { x, y, colour } = state.view;
  const totals = page.totals.map((total) => columns[total.column]).filter((column) => column.type !== "same");
  return [...new Set([x, y, ...axes, colour, ...totals])];
}

const sorted = (rows, most = rows.length) => firstBy(state.sort.column, state.sort.down, rows, most);

/** What the table and the download hold: the selection, or all that is shown. */
const chosen = () => (state.selected.length ? state.selected : state.rows);

/** Say what is listed, and list it after the frame that shows it: 200 lines take as long as 50,000 points. */
function listSoon() {
  count();
  const asked = ++state.listing;
  plot.painted().then(() => setTimeout(() => { if (asked === state.listing) list(); }));
}

function count() {
  const all = chosen().length, of = state.selected.length ? "selected" : "shown (nothing is selected)";
  byId("selection-title").textContent = state.selected.length ? "Selected designs" : "Designs";
  byId("selection-about").textContent = `${all.toLocaleString("en")} ${of}`
    + (all > MOST_LISTED ? `; the first ${MOST_LISTED} are listed, the download has all` : "");
  byId("download").disabled = !all;
}

function list() {
  state.listing++;
  const shown = sorted(chosen(), MOST_LISTED), heads = listed();
  const head = heads.map((column) => {
    const isKey = column === state.sort.column;
    const sort = () => { state.sort = { column, down: isKey && !state.sort.down }; list(); };
    const arrow = isKey ? (state.sort.down ? " ↓" : " ↑") : "";
    return element("th", { scope: "col", "aria-sort": isKey ? (state.sort.down ? "descending" : "ascending") : "none" },
      element("button", { type: "button", title: column.about, onclick: sort }, heading(column) + arrow));
  });
  byId("table").tHead.replaceChildren(element("tr", {}, element("th", { scope: "col" }, element("span", { class: "hidden" }, "pin")), ...head));
  byId("table").tBodies[0].replaceChildren(...shown.map((row, i) => line(row, i, heads)));
}

function line(row, i, heads) {
  const letters = (row === state.a ? "A" : "") + (row === state.b ? "B" : "");
  const cells = heads.map((column) => element("td", {}, column.texts ? text(column, row) : digits(number(column, row))));
  return element("tr", { tabindex: i ? -1 : 0, "data-row": row, onclick: () => step(row), onfocus: () => step(row) },
    element("td", { class: letters === "B" ? "pin b" : "pin a" }, letters), ...cells);
}

/** Make a design the current one. */
function step(row) {
  state.current = row;
  state.hovered = -1;
  byId("tip").hidden = true;
  mark();
  tell();
  compute(row);
  announce(`${text(state.view.x, row)}, ${text(state.view.y, row)}; ${words(row)}`);
}

// --- keys -------------------------------------------------------------------------------------------------

/** The next design along a column, among those that are shown. */
function next(column, ahead) {
  const rows = state.rows;
  if (!rows.length) return -1;
  const order = (row) => [number(column, row), row];
  const after = (one, other) => one[0] > other[0] || (one[0] === other[0] && one[1] > other[1]);
  const here = state.current < 0 ? [ahead ? -Infinity : Infinity, -1] : order(state.current);
  let best = -1;
  for (const row of rows) {
    const at = order(row);
    const is = ahead ? after(at, here) : after(here, at);
    if (is && (best < 0 || (ahead ? after(order(best), at) : after(at, order(best))))) best = row;
  }
  return best;
}

function plotKey(event) {
  const { x, y } = state.view;
  const moves = {
    ArrowRight: () => next(x, true), ArrowLeft: () => next(x, false), ArrowUp: () => next(y, true), ArrowDown: () => next(y, false),
    Home: () => { state.current = -1; return next(x, true); }, End: () => { state.current = -1; return next(x, false); },
  };
  if (moves[event.key]) {
    const row = moves[event.key]();
    if (row >= 0) step(row);
  } else if (event.key === "Enter") pin(state.current);
  else if (event.key === " ") toggle(state.current);
  else if (event.key === "Escape") clear();
  else return;
  event.preventDefault();
}

function toggle(row) {
  if (row < 0) return;
  const others = state.selected.filter((one) => one !== row);
  choose(others.length < state.selected.length ? others : [...others, row], row);
  state.current = row;
  mark();
}

function tableKey(event) {
  const line = event.target.closest("tr[data-row]");
  if (!line) return;
  const lines = [...line.parentElement.children], at = lines.indexOf(line);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1 };
  if (event.key in moves) focusLine(moves[event.key]);
  else if (event.key === "Enter") {
    pin(Number(line.dataset.row));
    focusLine(at);
  } else if (event.key === "Escape") {
    clear();
    byId("plot").focus();
  } else return;
  event.preventDefault();
}

function focusLine(at) {
  const lines = byId("table").tBodies[0].children;
  const line = lines[Math.max(0, Math.min(at, lines.length - 1))];
  if (!line) return;
  for (const one of lines) one.tabIndex = -1;
  line.tabIndex = 0;
  line.focus();
}

// --- begin ------------------------------------------------------------------------------------------------

function introduce() {
  let able = 0;
  for (let row = 0; row < page.size; row++) able += canRun(row) ? 1 : 0;
  byId("summary").textContent = `${page.size.toLocaleString("en")} designs (${page.study}), ${able.toLocaleString("en")} of which can run · dse ${page.version}`;
  byId("notes").replaceChildren(...page.notes.map((note) => element("li", {}, note)));
  byId("facts").hidden = !page.facts.length;
  byId("facts").querySelector("dl").replaceChildren(...page.facts.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  byId("feasible").checked = able > 0;
  byId("feasible").disabled = able === 0 || able === page.size;
}

function prepare() {
  for (const way of ["x", "y", "colour"]) {
    offer(byId(way), (column) => way === "colour" || !isNames(column) || column.texts.length <= 40);
    byId(way).value = page.start[way];
    suit(way);
    const change = way === "colour" ? recolour : redraw;
    byId(way).addEventListener("change", () => { suit(way); change(); });
    byId(`${way}-log`).addEventListener("change", change);
    document.getElementById(`${way}-better`)?.addEventListener("change", redraw);
  }
  offer(byId("add-filter"), (column) => column.type !== "same");
  byId("add-filter").addEventListener("change", (event) => {
    constrain(columns[Number(event.target.value)]);
    event.target.value = "";
  });
  byId("lines").hidden = Boolean(page.lines.why);
  byId("tool").append(...(page.lines.tools ?? []).map((tool) => element("option", { value: tool }, tool)));
}

function constrain(column) {
  if (!column || state.constraints.some((one) => one.column === column)) return;
  const made = constraint(column, refilter, () => {
    state.constraints = state.constraints.filter((one) => one !== made);
    made.element.remove();
    refilter();
    byId("add-filter").focus();
  });
  state.constraints.push(made);
  byId("filters").append(made.element);
  made.element.querySelector("input").focus();
}

async function paste(found, what) {
  if (found.why) {
    byId("copy-status").textContent = `No line: ${found.why}`;
    return;
  }
  const done = await copy(found.line, byId("copied"));
  byId("copy-status").textContent = done ? `${what} copied` : "Copy it from the box";
}

function listen() {
  byId("feasible").addEventListener("change", refilter);
  byId("show-front").addEventListener("change", () => plot.showFront(frontShown()));
  byId("select-front").addEventListener("click", () => choose([...state.front], state.front[0] ?? -1));
  byId("clear").addEventListener("click", clear);
  byId("download").addEventListener("click", () => download("designs.csv", csv(sorted(chosen())), "text/csv"));
  byId("pin-a").addEventListener("click", () => pin(subject(), "a"));
  byId("pin-b").addEventListener("click", () => pin(subject(), "b"));
  byId("copy-evaluate").addEventListener("click", () => paste(evaluateLine(subject()), "dse evaluate"));
  byId("copy-toml").addEventListener("click", () => paste(toml(subject()), "TOML"));
  byId("copy-launch").addEventListener("click", () => paste(launchLine(subject(), byId("tool").value), "dse launch"));
  byId("plot").addEventListener("keydown", plotKey);
  byId("table").addEventListener("keydown", tableKey);
  byId("plot").addEventListener("mouseleave", () => hover(-1));
  byId("plot").addEventListener("mousemove", (event) => {
    const box = byId("chart").getBoundingClientRect(), place = byId("tip");
    const left = event.clientX - box.left, top = event.clientY - box.top;
    place.style.left = `${left > box.width / 2 ? Math.max(0, left - place.offsetWidth - 14) : left + 14}px`;
    place.style.top = `${top + 14}px`;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

async function begin() {
  await unpack();
  paint();
  introduce();
  prepare();
  listen();
  tell();
  await redraw();
  document.body.dataset.ready = "yes";
}

begin();
