// Totals by part; of results a design in full, two side by side, lines to paste, a table to download.
/** A total with a line for each part, each beginning where the one before ends. */
function fall(title, parts, whole = "") {
  const lines = parts.map((part) => {
    const bar = element("i", { class: "part", style: { background: part.colour } });
    const value = element("td", { class: "number" }), share = element("td", { class: "number share" });
    const cells = [element("th", { scope: "row" }, part.label), element("td", { class: "stairs" }, bar), value, share];
    return { ...part, bar, value, share, line: element("tr", { hidden: true }, ...cells) };
  });
  const total = element("output", {}, whole);
  const node = element("section", { class: "fall", "aria-label": `${title} by part` },
    element("h3", {}, element("span", {}, title), total),
    element("table", {}, element("tbody", {}, ...lines.map(({ line }) => line))));
  return { node, total, lines };
}
/** Fill it: values of its parts, their texts, and what is the full width. */
function fill({ lines }, values, textOf, total, most = total) {
  let begin = 0;
  const width = Math.max(most, values.reduce((sum, value) => sum + Math.max(value || 0, 0), 0)) || 1;
  lines.forEach(({ bar, value, share, line }, i) => {
    const part = values[i], isShown = part !== 0 && Number.isFinite(part);
    if (line.hidden === isShown) line.hidden = !isShown;
    if (!isShown) return;
    bar.style.marginLeft = `${(100 * (begin + Math.min(part, 0))) / width}%`;
    bar.style.width = `${(100 * Math.abs(part)) / width}%`;
    tell(value, textOf(part));
    tell(share, total ? `${((100 * part) / total).toFixed(1)} %` : "");
    begin += part;
  });
}
/** Totals of a design of the results by part; with another design on its scale. */
function fallsOf(row, other = row) {
  return results.totals.filter((total) => number(columns[total.column], row) > 0).map(({ column: at, parts }) => {
    const column = columns[at], whole = number(column, row), place = fall(column.label, parts, text(column, row));
    const partOf = (part) => number(part, row) * (column.factor / part.factor);
    const values = parts.map((part) => partOf(columns[part.column]));
    fill(place, values, (value) => textOf(column, value), whole, Math.max(whole, number(column, other)));
    return place.node;
  });
}
/** A design in a few words. */
const words = (row) => axes.map((column) => `${column.label} ${text(column, row)}`).join(", ");
/** Metrics of every design: what is shown, then what is no part of another one and not the same for all. */
function factsOf({ x, y, colour }) {
  const parts = new Set(results.totals.flatMap((total) => total.parts.map((part) => columns[part.column])));
  const shown = [x, y, colour, ...metrics.filter((column) => !parts.has(column))];
  return [...new Set(shown)].filter(({ kind, type }) => kind === "metric" && type !== "same");
}
/** A design in full. */
function describe(row, view) {
  const reason = text(status, row), [first, ...falls] = fallsOf(row);
  const parameters = axes.map((column) =>
    element("span", { title: column.about }, element("em", {}, `${column.label} `), text(column, row)));
  const facts = factsOf(view).flatMap((column) =>
    [element("dt", { title: column.about }, column.label), element("dd", {}, text(column, row))]);
  return [reason && element("p", { class: "cannot" }, `Cannot run: ${reason}.`),
    element("div", { class: "split" }, ...parameters), first, element("dl", {}, ...facts), ...falls].filter(Boolean);
}
/** The few words beside the pointer. */
function tip(row, { x, y, colour }) {
  const lines = [...new Set([x, y, colour])].map((column) =>
    element("div", {}, `${column.label} `, element("b", {}, text(column, row))));
  return [...lines, element("div", { class: "quiet" }, words(row))];
}
/** Parameters that differ, metrics with their ratio, and both designs' totals by part on one scale. */
function compare(a, b, view) {
  const differs = (column) => stored(column, a) !== stored(column, b), parameters = axes.filter(differs);
  const group = (label) => element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: 4 }, label));
  const line = (column) => {
    const ratio = column.kind === "metric" ? number(column, b) / number(column, a) : NaN;
    return element("tr", {}, element("th", { scope: "row", title: column.about }, column.label),
      ...[a, b].map((row, i) => element("td", { class: "ab"[i] }, text(column, row) || "can run")),
      element("td", {}, Number.isFinite(ratio) ? `× ${digits(ratio)}` : ""));
  };
  const head = ["", "A", "B", "B / A"].map((name) => element("th", { scope: "col", class: name.toLowerCase() }, name));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {},
    group(parameters.length ? "Parameters that differ" : "No parameter differs"), ...parameters.map(line),
    group("Metrics"), ...(differs(status) ? [line(status)] : []), ...factsOf(view).map(line)));
  const falls = (row, other, letter) => element("div", {},
    element("h3", { class: letter.toLowerCase() }, `Design ${letter}`), ...fallsOf(row, other));
  return [table, falls(a, b, "A"), falls(b, a, "B")];
}
/** Options of a command that mean a design behind the beginning of its line, or why there are none. */
function lineOf(begin, row) {
  const { groups, group, choices } = results.lines;
  const { names, plain, why: reason } = groups[stored(columns[group], row)];
  if (reason) return { why: reason };
  const options = choices.map(({ column, texts }, i) => {
    const code = stored(columns[column], row);
    return code === plain[i] ? "" : texts[code];
  });
  return { line: [begin, names, ...options].filter(Boolean).join(" ") };
}
/** A specification of one design. */
function tomlOf(row) {
  const { groups, group, axes: all, toml } = results.lines;
  const { absent } = groups[stored(columns[group], row)];
  const values = all.filter(({ name }) => !absent.includes(name)).map(({ name, column, values: texts }) =>
    `${name} = [${texts[column < 0 ? 0 : stored(columns[column], row)]}]`);
  return { line: `${toml.trimEnd()}\n${values.length ? `\n[axes]\n${values.join("\n")}\n` : ""}` };
}
/** Designs as CSV, in SI units; what a spreadsheet would take for a formula is marked as text. */
function csv(rows) {
  const shown = [...axes, ...metrics, status];
  const cell = (value) => {
    const said = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
  };
  const exact = (column, row) => {
    if (isNames(column)) return column.texts[stored(column, row)];
    const value = column.numbers ? column.numbers[stored(column, row)] : stored(column, row);
    return Number.isFinite(value) ? Number(value.toPrecision(column.numbers ? 12 : 7)) : "";
  };
  const heads = shown.map(({ name, si }) => cell(name + (si && si !== "1" ? ` [${si}]` : "")));
  const lines = [...rows].map((row) => shown.map((column) => cell(exact(column, row))));
  return [heads, ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}
