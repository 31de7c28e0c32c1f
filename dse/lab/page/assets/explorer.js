// The explorer of results: what is chosen, and what follows from it; and what the page begins with.

const MOST_LINES = 200;
const state = { view: null, constraints: [], rows: all, front: [], selected: [], current: -1, hovered: -1, a: -1, b: -1,
  sort: {}, listing: 0 };
let scatter;
/** Measure a change up to the frame that shows it: performance.getEntriesByName(name). */
async function measured(name, change = () => {}) {
  const start = performance.now();
  change();
  await scatter.painted();
  performance.measure(name, { start, end: performance.now() });
}
/** Read the view, find the designs that it shows, and show them: on new axes, or on those that are there. */
function refresh(name, isNew = false) {
  const column = (id) => columns[Number(byId(id).value)], isChecked = (id) => byId(id).checked;
  measured(name, () => {
    const view = { x: column("x"), y: column("y"), colour: column("colour"), betterX: byId("x-better").value,
      betterY: byId("y-better").value, xLog: isChecked("x-log"), yLog: isChecked("y-log") };
    if (isNew) state.sort = { column: view.x, isDown: view.betterX === "more" };
    const isDrawn = (axis, isLog) => (row) => Number.isFinite(scaling(isLog)(number(axis, row)));
    const tests = [isDrawn(view.x, view.xLog), isDrawn(view.y, view.yLog), isChecked("feasible") ? canRun : () => true,
      ...state.constraints.map(({ test }) => test)];
    const rows = all.filter((row) => tests.every((test) => test(row))), front = paretoFront(view, rows);
    view.colours = colouring(view.colour, isChecked("colour-log"), rows);
    Object.assign(state, { view, rows, front });
    scatter.show(view, rows, frontShown(), isNew);
  });
  const { view: { x, y, colour, colours }, rows, front, selected } = state;
  tell(byId("count"), `${counted(rows.length)} of ${counted(size)} designs shown`);
  tell(byId("front-count"), `${counted(front.length)} designs are on the front of these two.`);
  byId("plot").ariaLabel = `${y.label} against ${x.label}; arrow keys walk through the designs`;
  drawLegend(byId("legend"), colour, colours, !isChecked("feasible") && !rows.every(canRun));
  const shown = new Set(selected.length ? rows : []);
  if (selected.length) scatter.select(state.selected = selected.filter((row) => shown.has(row)));
  update();
  listSoon();
}
const frontShown = () => (byId("show-front").checked ? state.front : []);
/** The scale and sense that suit a column which has just been chosen. */
function suit(way) {
  const column = columns[Number(byId(way).value)], better = byId(`${way}-better`), disabled = isNames(column);
  const [low, high] = extent(numbersOf(column, all));
  Object.assign(byId(`${way}-log`), { checked: !disabled && low > 0 && high > 30 * low, disabled });
  if (better) better.value = column.better || "less";
}
/** Constrain a column: to some of its values, or to numbers from and up to. */
function constrain(column) {
  if (!column || state.constraints.some((other) => other.column === column)) return;
  const constraint = { column }, ends = [-Infinity, Infinity];
  const isSet = column.texts?.length <= 40, isAllowed = isSet && column.texts.map(() => true);
  constraint.test = isSet ? (row) => isAllowed[stored(column, row)] : (row) => {
    const value = number(column, row);
    return (value >= ends[0] && value <= ends[1]) || (Number.isNaN(value) && ends[1] - ends[0] === Infinity);
  };
  const allow = (i, is) => { isAllowed[i] = is; refresh("filter"); };
  const bound = (i, said) => { ends[i] = said === "" ? [-Infinity, Infinity][i] : Number(said); refresh("filter"); };
  const box = (name, i) => element("label", { class: "check" }, element("input", { type: "checkbox", checked: true,
    onchange: ({ target }) => allow(i, target.checked) }), name);
  const input = (end, i) => element("input", { type: "number", step: "any", placeholder: digits(end).replace(",", ""),
    "aria-label": `${heading(column)} at ${["least", "most"][i]}`, oninput: ({ target }) => bound(i, target.value) });
  const content = isSet ? column.texts.map(box) : extent(numbersOf(column, all)).map(input).toSpliced(1, 0, "to");
  const remove = () => {
    state.constraints = state.constraints.filter((other) => other !== constraint);
    node.remove();
    refresh("filter");
    byId("add-filter").focus();
  };
  const cross = { type: "button", "aria-label": `Remove the constraint on ${column.label}`, onclick: remove };
  const node = element("div", { class: "filter", role: "group", "aria-label": heading(column) },
    element("div", { class: "head" }, element("strong", { title: column.about }, heading(column)),
      element("button", cross, "✕")),
    element("div", { class: isSet ? "set" : "range" }, ...content));
  state.constraints.push(constraint);
  byId("filters").append(node);
  node.querySelector("input").focus();
}

const announce = (said) => tell(byId("announce"), said);
/** The design that is told of: under the pointer, else the current one. */
const subject = () => (state.hovered >= 0 ? state.hovered : state.current);
/** Change what is chosen; tell of the design, and mark it and those that are pinned. */
function update(changes) {
  const { hovered, current, a, b, view } = Object.assign(state, changes), row = subject();
  tell(byId("which"), row < 0 ? "Design" : `Design ${counted(row + 1)}`);
  byId("design").dataset.row = row;
  if (row >= 0) byId("design").replaceChildren(...describe(row, view));
  byId("tip").hidden = hovered < 0;
  if (hovered >= 0) byId("tip").replaceChildren(...tip(row, view));
  for (const button of document.querySelectorAll("#pins button, #lines button")) button.disabled = row < 0;
  scatter.mark([[hovered, "", "quiet"], [current, "", "ink"], [a, "A", "a"], [b, "B", "b"]].filter(([at]) => at >= 0));
}
function hover(row) { if (row !== state.hovered) update({ hovered: row }); }
/** Select designs; one alone is the current one too. */
function choose(rows, current = rows.length === 1 ? rows[0] : state.current) {
  update({ selected: rows, current: rows.length ? current : -1 });
  measured("select", () => scatter.select(rows));
  listSoon();
  if (rows.length === 1) compute(rows[0]);
}
/** Select one more design, or one less. */
function toggle(row) {
  const others = state.selected.filter((other) => other !== row);
  if (row >= 0) choose(others.length < state.selected.length ? others : [...others, row], row);
  update({ current: row });
}
/** Make a design the current one. */
function step(row) {
  update({ current: row, hovered: -1 });
  compute(row);
  announce(`${text(state.view.x, row)}, ${text(state.view.y, row)}; ${words(row)}`);
}
/** Have the model compute a design that was chosen, where the page has one. */
function compute(row) {
  if (!model) return;
  const values = axes.map((column) => [column.leaf, column.leaf && column.settings[stored(column, row)]]);
  const names = axes.filter(({ leaf }) => !leaf).map((column) => [column.name, text(column, row)]);
  take(Object.fromEntries(values.filter(([leaf, value]) => leaf && value !== null)), Object.fromEntries(names));
}
/** Pin a design as A or B, or take its pin away. */
function pin(row, letter = state.a < 0 || state.a === row ? "a" : "b") {
  if (row < 0) return;
  update({ [letter]: state[letter] === row ? -1 : row });
  list();
  byId("compare").hidden = state.a < 0 || state.b < 0;
  if (!byId("compare").hidden) byId("compared").replaceChildren(...compare(state.a, state.b, state.view));
  announce(state[letter] < 0 ? "unpinned" : `pinned as ${letter.toUpperCase()}`);
}

function clear() {
  hover(-1);
  choose([]);
  byId("design").replaceChildren(element("p", { class: "quiet" }, "Nothing is chosen."));
  announce("selection cleared");
}
/** What the table and the download hold: the selection, or all that is shown. */
const listed = () => (state.selected.length ? state.selected : state.rows);
const chosen = () => sortedBy(state.sort.column, state.sort.isDown, listed());
/** Say what is listed, and list it after the frame that shows it: 200 lines take as long as 50,000 points. */
function listSoon() {
  const isSome = state.selected.length > 0, { length } = listed(), listing = ++state.listing;
  const rest = length > MOST_LINES ? `; the first ${MOST_LINES} are listed, the download has all` : "";
  tell(byId("selection-title"), isSome ? "Selected designs" : "Designs");
  tell(byId("selection-about"), `${counted(length)} ${isSome ? "selected" : "shown (nothing is selected)"}${rest}`);
  byId("download").disabled = !length;
  scatter.painted().then(() => setTimeout(() => { if (listing === state.listing) list(); }));
}

function list() {
  const { view: { x, y, colour }, sort, a, b } = state, totals = results.totals.map((total) => columns[total.column]);
  const shown = [...new Set([x, y, ...axes, colour, ...totals.filter(({ type }) => type !== "same")])];
  const heads = shown.map((column) => {
    const isKey = column === sort.column, way = sort.isDown ? ["descending", " ↓"] : ["ascending", " ↑"];
    const onclick = () => { state.sort = { column, isDown: isKey && !sort.isDown }; list(); };
    return element("th", { scope: "col", "aria-sort": isKey ? way[0] : "none" },
      element("button", { type: "button", title: column.about, onclick }, heading(column) + (isKey ? way[1] : "")));
  });
  const lines = Array.from(chosen().subarray(0, MOST_LINES), (row, i) => {
    const letters = (row === a ? "A" : "") + (row === b ? "B" : ""), go = () => step(row);
    const said = (column) => (column.texts ? text(column, row) : digits(number(column, row)));
    const cells = shown.map((column) => element("td", {}, said(column)));
    return element("tr", { tabindex: i ? -1 : 0, "data-row": row, onclick: go, onfocus: go },
      element("td", { class: letters === "B" ? "pin b" : "pin a" }, letters), ...cells);
  });
  const first = element("th", { scope: "col" }, element("span", { class: "hidden" }, "pin"));
  byId("table").tHead.replaceChildren(element("tr", {}, first, ...heads));
  byId("table").tBodies[0].replaceChildren(...lines);
}
/** In the plot arrows go to the next design along a column, among those that are shown. */
function plotKey(event) {
  const { view: { x, y }, current, rows } = state;
  const go = (column, ahead, from = current) => () => {
    const order = [...sortedBy(column, false, rows)];
    const row = from < 0 ? order.at(Math.min(0, ahead)) : order[order.indexOf(from) + ahead];
    if (row !== undefined) step(row);
  };
  act(event, { ArrowRight: go(x, 1), ArrowLeft: go(x, -1), ArrowUp: go(y, 1), ArrowDown: go(y, -1), Home: go(x, 1, -1),
    End: go(x, -1, -1), Enter: () => pin(current), " ": () => toggle(current), Escape: clear });
}

function tableKey(event) {
  const line = event.target.closest("tr[data-row]"), at = line?.sectionRowIndex, body = byId("table").tBodies[0];
  const go = (k) => {
    const to = body.rows[within(k, body.rows.length)];
    for (const other of body.rows) other.tabIndex = other === to ? 0 : -1;
    to.focus();
  };
  if (line) act(event, { ArrowDown: () => go(at + 1), ArrowUp: () => go(at - 1), Home: () => go(0),
    End: () => go(MOST_LINES), Enter: () => { pin(Number(line.dataset.row)); go(at); },
    Escape: () => { clear(); byId("plot").focus(); } });
}

function paste({ why, line }, what) {
  const status = byId("copy-status"), box = byId("copied");
  box.hidden &&= Boolean(why);
  return why ? tell(status, `No line: ${why}`) : copy(line, what, box, status);
}

async function beginExplorer() {
  await unpack();
  byId("explorer").hidden = false;
  scatter = new Scatter(byId("plot"), { hover, tap: (row, { shiftKey }) => (shiftKey ? toggle(row) : choose([row])),
    select: (rows, event) => choose(combined(event, state.selected, rows)), zoom: () => measured("zoom") });
  const { able, lines: { why, serving } } = results;
  Object.assign(byId("feasible"), { checked: able > 0, disabled: able === 0 || able === size });
  byId("lines").hidden = Boolean(why);
  for (const way of ["x", "y", "colour"]) {
    const change = () => (way === "colour" ? refresh("colour") : refresh("redraw", true));
    byId(way).value = results.start[way];
    suit(way);
    on(way, "change", () => { suit(way); change(); });
    on(`${way}-log`, "change", change);
    byId(`${way}-better`)?.addEventListener("change", change);
  }
  on("add-filter", "change", ({ target }) => { constrain(columns[Number(target.value)]); target.value = ""; });
  on("feasible", "change", () => refresh("filter"));
  on("show-front", "change", () => scatter.show(state.view, state.rows, frontShown()));
  on("select-front", "click", () => choose([...state.front], state.front[0] ?? -1));
  on("clear", "click", clear);
  on("download", "click", () => download("designs.csv", new Blob([csv(chosen())], { type: "text/csv" })));
  for (const letter of ["a", "b"]) on(`pin-${letter}`, "click", () => pin(subject(), letter));
  const evaluate = serving ? "dse evaluate --serving" : "dse evaluate";
  on("copy-evaluate", "click", () => paste(lineOf(evaluate, subject()), "dse evaluate"));
  on("copy-toml", "click", () => paste(tomlOf(subject()), "TOML"));
  on("copy-launch", "click", () => paste(lineOf(`dse launch --for ${byId("tool").value}`, subject()), "dse launch"));
  on("tools", "change", ({ target }) => { scatter.tool = target.value; });
  on("reset", "click", () => { scatter.fit(); clear(); });
  on("save", "click", async () => download("plot.png", await scatter.saved()));
  on("plot", "keydown", plotKey);
  on("table", "keydown", tableKey);
  on("plot", "mouseleave", () => hover(-1));
  on("plot", "mousemove", ({ clientX, clientY }) => {
    const box = byId("chart").getBoundingClientRect(), place = byId("tip"), left = clientX - box.left;
    const start = left > box.width / 2 ? Math.max(0, left - place.offsetWidth - 14) : left + 14;
    Object.assign(place.style, { left: `${start}px`, top: `${clientY - box.top + 14}px` });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => refresh("redraw"));
  refresh("redraw", true);
  await scatter.painted();
}

async function begin() {
  if (results) await beginExplorer();
  if (model) beginModel();
  else document.body.dataset.ready = "yes";
}
begin();
