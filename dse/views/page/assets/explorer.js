// The explorer of results: what is chosen, and what follows from it.

/** Lines of the table. */
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

// --- axes and constraints ---------------------------------------------------------------------------------

/** Read the view, find the designs that it shows, and show them: on new axes, or on those that are there. */
function refresh(name, isNew = false) {
  const column = (id) => columns[Number(byId(id).value)], isChecked = (id) => byId(id).checked;
  measured(name, () => {
    const view = { x: column("x"), y: column("y"), colour: column("colour"), betterX: byId("x-better").value,
      betterY: byId("y-better").value, xLog: isChecked("x-log"), yLog: isChecked("y-log") };
    if (isNew) state.sort = { column: view.x, isDown: view.betterX === "more" };
    const isDrawn = (axis, isLog) => (row) => Number.isFinite(scaling(isLog)(number(axis, row)));
    const tests = [isDrawn(view.x, view.xLog), isDrawn(view.y, view.yLog), ...state.constraints.map(({ test }) => test)];
    if (isChecked("feasible")) tests.unshift(canRun);
    const rows = all.filter((row) => tests.every((test) => test(row))), front = paretoFront(view, rows);
    view.colours = colouring(view.colour, isChecked("colour-log"), rows);
    Object.assign(state, { view, rows, front });
    scatter.show(view, rows, frontShown(), isNew);
  });
  const { view, rows, front } = state;
  byId("count").textContent = `${counted(rows.length)} of ${counted(size)} designs shown`;
  byId("front-count").textContent = `${counted(front.length)} designs are on the front of these two.`;
  byId("plot").setAttribute("aria-label", `${view.y.label} against ${view.x.label}; arrow keys walk through the designs`);
  drawLegend(byId("legend"), view.colour, view.colours, !isChecked("feasible") && rows.some((row) => !canRun(row)));
  if (state.selected.length) {
    const shown = new Set(rows);
    state.selected = state.selected.filter((row) => shown.has(row));
    scatter.select(state.selected);
  }
  mark();
  listSoon();
}

const frontShown = () => (byId("show-front").checked ? state.front : []);

/** The scale and sense that suit a column which has just been chosen. */
function suit(way) {
  const column = columns[Number(byId(way).value)], log = byId(`${way}-log`), better = byId(`${way}-better`);
  const [low, high] = extentOf(column);
  log.checked = !isNames(column) && low > 0 && high > 30 * low;
  log.disabled = isNames(column);
  if (better) better.value = column.better || "less";
}

/** Fill a select with columns, by kind. */
function offer(select, isOffered) {
  for (const [label, members] of [["Design", axes], ["Metrics", metrics]]) {
    const options = members.filter(isOffered).map((column) =>
      element("option", { value: columns.indexOf(column), title: column.about }, heading(column)));
    if (options.length) select.append(element("optgroup", { label }, ...options));
  }
}

/** Constrain a column: to some of its values, or to numbers from and up to. */
function constrain(column) {
  if (!column || state.constraints.some((other) => other.column === column)) return;
  const changed = () => refresh("filter"), constraint = { column }, content = element("div");
  if (column.texts && column.texts.length <= 40) {
    const isAllowed = column.texts.map(() => true);
    constraint.test = (row) => isAllowed[stored(column, row)];
    content.className = "set";
    content.append(...column.texts.map((name, i) => element("label", { class: "check" }, element("input", {
      type: "checkbox", checked: true, onchange: ({ target }) => { isAllowed[i] = target.checked; changed(); } }), name)));
  } else {
    const ends = [-Infinity, Infinity];
    constraint.test = (row) => {
      const value = number(column, row);
      return (value >= ends[0] && value <= ends[1]) || (Number.isNaN(value) && ends[1] - ends[0] === Infinity);
    };
    content.className = "range";
    const inputs = extentOf(column).map((end, i) => element("input", {
      type: "number", step: "any", "aria-label": `${heading(column)} ${["at least", "at most"][i]}`,
      placeholder: digits(end).replaceAll(",", ""), oninput: ({ target }) => {
        ends[i] = target.value === "" ? [-Infinity, Infinity][i] : Number(target.value);
        changed();
      },
    }));
    content.append(inputs[0], "to", inputs[1]);
  }
  const remove = element("button", { type: "button", "aria-label": `Remove the constraint on ${column.label}`, onclick: () => {
    state.constraints = state.constraints.filter((other) => other !== constraint);
    node.remove();
    changed();
    byId("add-filter").focus();
  } }, "✕");
  const node = element("div", { class: "filter", role: "group", "aria-label": heading(column) },
    element("div", { class: "head" }, element("strong", { title: column.about }, heading(column)), remove), content);
  state.constraints.push(constraint);
  byId("filters").append(node);
  node.querySelector("input").focus();
}

// --- designs ----------------------------------------------------------------------------------------------

const announce = (said) => { byId("announce").textContent = said; };

function hover(row) {
  if (row === state.hovered) return;
  state.hovered = row;
  byId("tip").hidden = row < 0;
  if (row >= 0) byId("tip").replaceChildren(...tip(row, state.view));
  mark();
  tellDesign();
}

/** Select designs; one alone is the current one too. */
function choose(rows, current = rows.length === 1 ? rows[0] : state.current) {
  state.selected = rows;
  state.current = rows.length ? current : -1;
  measured("select", () => scatter.select(rows));
  mark();
  listSoon();
  tellDesign();
  if (rows.length === 1) compute(rows[0]);
}

/** Select one more design, or one less. */
function toggle(row) {
  if (row < 0) return;
  const others = state.selected.filter((other) => other !== row);
  choose(others.length < state.selected.length ? others : [...others, row], row);
  state.current = row;
  mark();
}

/** Have the model compute a design that was chosen, where the page has one. */
function compute(row) {
  if (!model) return;
  const values = {}, names = {};
  for (const column of axes) {
    const setting = column.leaf ? column.settings[stored(column, row)] : null;
    if (setting !== null) values[column.leaf] = setting;
    else if (!column.leaf) names[column.name] = text(column, row);
  }
  take(values, names);
}

/** The design that is told of: under the pointer, else the current one. */
const subject = () => (state.hovered >= 0 ? state.hovered : state.current);

function tellDesign() {
  const row = subject();
  byId("which").textContent = row < 0 ? "Design" : `Design ${counted(row + 1)}`;
  byId("design").dataset.row = row;
  if (row >= 0) byId("design").replaceChildren(...describe(row, state.view));
  for (const button of document.querySelectorAll("#pins button, #lines button")) button.disabled = row < 0;
}

function mark() {
  const marks = [[state.hovered, "", "quiet"], [state.current, "", "ink"], [state.a, "A", "a"], [state.b, "B", "b"]];
  scatter.mark(marks.filter(([row]) => row >= 0));
}

/** Pin a design as A or B, or take its pin away. */
function pin(row, letter = state.a < 0 || state.a === row ? "a" : "b") {
  if (row < 0) return;
  state[letter] = state[letter] === row ? -1 : row;
  mark();
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

/** Make a design the current one. */
function step(row) {
  Object.assign(state, { current: row, hovered: -1 });
  byId("tip").hidden = true;
  mark();
  tellDesign();
  compute(row);
  announce(`${text(state.view.x, row)}, ${text(state.view.y, row)}; ${words(row)}`);
}

// --- the table --------------------------------------------------------------------------------------------

/** What the table and the download hold: the selection, or all that is shown. */
const chosen = () => (state.selected.length ? state.selected : state.rows);
const sorted = (rows, most = rows.length) => firstBy(state.sort.column, state.sort.isDown, rows, most);

/** Say what is listed, and list it after the frame that shows it: 200 lines take as long as 50,000 points. */
function listSoon() {
  const { length } = chosen(), isSome = state.selected.length > 0, listing = ++state.listing;
  byId("selection-title").textContent = isSome ? "Selected designs" : "Designs";
  byId("selection-about").textContent = `${counted(length)} ${isSome ? "selected" : "shown (nothing is selected)"}`
    + (length > MOST_LINES ? `; the first ${MOST_LINES} are listed, the download has all` : "");
  byId("download").disabled = !length;
  scatter.painted().then(() => setTimeout(() => { if (listing === state.listing) list(); }));
}

function list() {
  const { view: { x, y, colour }, sort } = state;
  const totals = results.totals.map((total) => columns[total.column]).filter(({ type }) => type !== "same");
  const listed = [...new Set([x, y, ...axes, colour, ...totals])];
  const heads = listed.map((column) => {
    const isKey = column === sort.column, ways = isKey ? sort.isDown ? ["descending", " ↓"] : ["ascending", " ↑"] : ["none", ""];
    const onclick = () => { state.sort = { column, isDown: isKey && !sort.isDown }; list(); };
    const button = element("button", { type: "button", title: column.about, onclick }, heading(column) + ways[1]);
    return element("th", { scope: "col", "aria-sort": ways[0] }, button);
  });
  const lines = sorted(chosen(), MOST_LINES).map((row, i) => {
    const letters = (row === state.a ? "A" : "") + (row === state.b ? "B" : "");
    const cells = listed.map((column) => element("td", {}, column.texts ? text(column, row) : digits(number(column, row))));
    return element("tr", { tabindex: i ? -1 : 0, "data-row": row, onclick: () => step(row), onfocus: () => step(row) },
      element("td", { class: letters === "B" ? "pin b" : "pin a" }, letters), ...cells);
  });
  const first = element("th", { scope: "col" }, element("span", { class: "hidden" }, "pin"));
  byId("table").tHead.replaceChildren(element("tr", {}, first, ...heads));
  byId("table").tBodies[0].replaceChildren(...lines);
}

// --- keys -------------------------------------------------------------------------------------------------

/** The next design along a column, among those that are shown. */
function next(column, isAhead, from = state.current) {
  const { rows } = state, order = firstBy(column, false, rows, rows.length), at = order.indexOf(from);
  return order[at < 0 ? (isAhead ? 0 : order.length - 1) : at + (isAhead ? 1 : -1)] ?? -1;
}

function plotKey(event) {
  const { view: { x, y }, current } = state;
  const moves = { ArrowRight: [x, true], ArrowLeft: [x, false], ArrowUp: [y, true], ArrowDown: [y, false],
    Home: [x, true, -1], End: [x, false, -1] };
  const actions = { Enter: () => pin(current), " ": () => toggle(current), Escape: clear };
  if (moves[event.key]) {
    const row = next(...moves[event.key]);
    if (row >= 0) step(row);
  } else if (actions[event.key]) actions[event.key]();
  else return;
  event.preventDefault();
}

function tableKey(event) {
  const line = event.target.closest("tr[data-row]");
  if (!line) return;
  const lines = [...line.parentElement.children], at = lines.indexOf(line);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1, Enter: at };
  if (event.key === "Enter") pin(Number(line.dataset.row));
  if (event.key === "Escape") {
    clear();
    byId("plot").focus();
  } else if (event.key in moves) {
    const now = [...byId("table").tBodies[0].children], to = now[Math.max(0, Math.min(moves[event.key], now.length - 1))];
    for (const other of now) other.tabIndex = other === to ? 0 : -1;
    to.focus();
  } else return;
  event.preventDefault();
}

// --- begin ------------------------------------------------------------------------------------------------

async function paste({ why, line }, what) {
  if (why) return tell(byId("copy-status"), `No line: ${why}`);
  const box = byId("copied");
  box.hidden = false;
  box.rows = Math.min(14, Math.max(3, line.split("\n").length, Math.ceil(line.length / 44)));
  tell(byId("copy-status"), (await copy(line, box)) ? `${what} copied` : "Copy it from the box");
}

function introduce() {
  const runs = able.reduce((sum, is) => sum + is, 0);
  tell(byId("summary"), `${counted(size)} designs (${results.study}), ${counted(runs)} of which can run · dse ${results.version}`);
  byId("notes").append(...results.notes.map((note) => element("li", {}, note)));
  byId("facts").hidden = !results.facts.length;
  byId("facts").querySelector("dl").append(...results.facts.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  byId("feasible").checked = runs > 0;
  byId("feasible").disabled = runs === 0 || runs === size;
  byId("lines").hidden = Boolean(results.lines.why);
  byId("tool").append(...(results.lines.tools ?? []).map((tool) => element("option", { value: tool }, tool)));
}

function listenToExplorer() {
  for (const way of ["x", "y", "colour"]) {
    const change = () => (way === "colour" ? refresh("colour") : refresh("redraw", true));
    offer(byId(way), (column) => way === "colour" || !isNames(column) || column.texts.length <= 40);
    byId(way).value = results.start[way];
    suit(way);
    on(way, "change", () => { suit(way); change(); });
    on(`${way}-log`, "change", change);
    byId(`${way}-better`)?.addEventListener("change", change);
  }
  offer(byId("add-filter"), ({ type }) => type !== "same");
  on("add-filter", "change", ({ target }) => {
    constrain(columns[Number(target.value)]);
    target.value = "";
  });
  on("feasible", "change", () => refresh("filter"));
  on("show-front", "change", () => scatter.show(state.view, state.rows, frontShown()));
  on("select-front", "click", () => choose([...state.front], state.front[0] ?? -1));
  on("clear", "click", clear);
  on("download", "click", () => download("designs.csv", new Blob([csv(sorted(chosen()))], { type: "text/csv" })));
  for (const letter of ["a", "b"]) on(`pin-${letter}`, "click", () => pin(subject(), letter));
  const begin = `dse evaluate${results.lines.serving ? " --serving" : ""}`;
  on("copy-evaluate", "click", () => paste(lineOf(begin, subject()), "dse evaluate"));
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
    place.style.left = `${left > box.width / 2 ? Math.max(0, left - place.offsetWidth - 14) : left + 14}px`;
    place.style.top = `${clientY - box.top + 14}px`;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => refresh("redraw"));
}

async function beginExplorer() {
  await unpack();
  byId("explorer").hidden = false;
  colourParts();
  scatter = new Scatter(byId("plot"), { hover, tap: (row, { shiftKey }) => (shiftKey ? toggle(row) : choose([row])),
    select: (rows, event) => choose(combined(event, state.selected, rows)), zoom: () => measured("zoom") });
  introduce();
  listenToExplorer();
  tellDesign();
  refresh("redraw", true);
  await scatter.painted();
}
