// One design told: its parameters, its metrics, the parts of its totals; and two of them side by side.

/** A total of a design by part, as a bar and a table; ``most`` is the total that fills the bar. */
function waterfall(total, row, most) {
  const column = columns[total.column], whole = number(column, row);
  if (!(whole > 0)) return null;
  const parts = total.parts
    .map((part) => ({ ...part, value: number(columns[part.column], row) * (column.factor / columns[part.column].factor) }))
    .filter((part) => part.value > 0);
  const share = (value) => `${((100 * value) / Math.max(most ?? whole, whole)).toFixed(2)}%`;
  const bar = parts.map((part) => element("span", { title: part.label, style: { width: share(part.value), background: part.colour } }));
  const lines = parts.map((part) => element("tr", {},
    element("th", { scope: "row" }, element("i", { style: { background: part.colour } }), part.label),
    element("td", {}, `${digits(part.value)} ${column.units}`),
    element("td", {}, `${((100 * part.value) / whole).toFixed(1)} %`)));
  return element("div", { class: "fall" },
    element("div", { class: "title" }, element("span", {}, column.label), element("span", {}, text(column, row))),
    element("div", { class: "bar", "aria-hidden": "true" }, ...bar),
    element("table", { "aria-label": `${column.label} by part` }, element("tbody", {}, ...lines)));
}

/** Parts of totals have colours of their own where the figures of dse have none for them. */
function paint() {
  for (const total of page.totals) {
    const seen = new Set();
    total.parts.forEach((part, i) => {
      if (seen.has(part.colour) || part.colour === "#6d7270") part.colour = NAMES[i % NAMES.length];
      seen.add(part.colour);
    });
  }
}

/** Metrics that are told of every design: what is shown, then what is no part of another one. */
function told(view) {
  const parts = new Set(page.totals.flatMap((total) => total.parts.map((part) => part.column)));
  const first = [view.x, view.y, view.colour].filter((column) => column.kind === "metric");
  return [...new Set([...first, ...metrics.filter((column) => !parts.has(columns.indexOf(column)))])];
}

/** A design in full. */
function describe(row, view) {
  const reason = text(status, row);
  const parameters = axes.map((column) => element("span", { title: column.about }, element("em", {}, `${column.label} `), text(column, row)));
  const facts = told(view).filter((column) => column.type !== "same").flatMap((column) =>
    [element("dt", { title: column.about }, column.label), element("dd", {}, text(column, row))]);
  const falls = page.totals.map((total) => waterfall(total, row)).filter(Boolean);
  return [
    ...(reason ? [element("p", { class: "cannot" }, `Cannot run: ${reason}.`)] : []),
    element("div", { class: "split" }, ...parameters), ...falls.slice(0, 1), element("dl", {}, ...facts), ...falls.slice(1),
  ];
}

/** The few words beside the pointer. */
function tip(row, view) {
  const shown = [...new Set([view.x, view.y, view.colour])];
  const lines = shown.map((column) => element("div", {}, `${column.label} `, element("b", {}, text(column, row))));
  return [...lines, element("div", { class: "quiet" }, words(row))];
}

// --- two designs ------------------------------------------------------------------------------------------

/** A line of the comparison. */
function compared(column, a, b) {
  const ratio = isNames(column) ? NaN : number(column, b) / number(column, a);
  return element("tr", {}, element("th", { scope: "row", title: column.about }, column.label),
    element("td", { class: "a" }, text(column, a) || "can run"), element("td", { class: "b" }, text(column, b) || "can run"),
    element("td", {}, Number.isFinite(ratio) && column.kind === "metric" ? `× ${digits(ratio)}` : ""));
}

/** Parameters that differ, metrics with their ratio, and both designs' totals by part on one scale. */
function compare(a, b, view) {
  const differ = axes.filter((column) => stored(column, a) !== stored(column, b));
  const group = (label) => element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: 4 }, label));
  const head = element("tr", {}, element("th", {}, ""), element("th", { class: "a", scope: "col" }, "A"),
    element("th", { class: "b", scope: "col" }, "B"), element("th", { scope: "col" }, "B / A"));
  const lines = told(view).filter((column) => column.type !== "same").map((column) => compared(column, a, b));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {},
    group(differ.length ? "Parameters that differ" : "No parameter differs"), ...differ.map((column) => compared(column, a, b)),
    group("Metrics"), ...(stored(status, a) === stored(status, b) ? [] : [compared(status, a, b)]), ...lines));
  const falls = (row, other, letter) => element("div", {},
    element("h3", { class: letter.toLowerCase() }, `Design ${letter}`),
    ...page.totals.map((total) => waterfall(total, row, number(columns[total.column], other))).filter(Boolean));
  return [table, falls(a, b, "A"), falls(b, a, "B")];
}
