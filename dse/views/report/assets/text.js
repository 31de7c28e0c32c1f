// Texts: numbers as people read them, lines to paste, tables to download.

/** Formats by places after the point: to make one takes longer than to use it. */
const FORMATS = [];

/** A number to three digits. */
function digits(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  FORMATS[places] ??= new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  return FORMATS[places].format(value);
}

/** What a column says of a design. */
function text(column, row) {
  if (column.texts) return column.texts[stored(column, row)];
  const shown = digits(number(column, row));
  return column.units && shown !== "–" ? `${shown} ${column.units}` : shown;
}

/** A column's heading, with its units where it is of numbers. */
const heading = (column) => (column.units ? `${column.label} [${column.units}]` : column.label);

/** A design in a few words. */
function words(row) {
  return axes.map((column) => `${column.label} ${text(column, row)}`).join(", ");
}

// --- lines to paste ---------------------------------------------------------------------------------------

/** Options that mean a design, or why there are none. */
function options(row) {
  const lines = page.lines;
  if (lines.why) return { why: lines.why };
  const group = lines.groups[stored(columns[lines.group], row)];
  if (group.why) return { why: group.why };
  const told = lines.choices.map((choice, i) => {
    const code = stored(columns[choice.column], row);
    return code === group.plain[i] ? "" : choice.texts[code];
  });
  return { line: [group.names, ...told].filter(Boolean).join(" ") };
}

/** The line that evaluates a design. */
function evaluateLine(row) {
  const found = options(row);
  return found.why ? found : { line: `dse evaluate ${page.lines.serving ? "--serving " : ""}${found.line}` };
}

/** The line that tells a tool of a design. */
function launchLine(row, tool) {
  const found = options(row);
  return found.why ? found : { line: `dse launch --for ${tool} ${found.line}` };
}

/** A specification of one design. */
function toml(row) {
  const lines = page.lines;
  if (lines.why) return { why: lines.why };
  const values = lines.axes.map((axis) => {
    const value = axis.column < 0 ? axis.values[0] : axis.values[stored(columns[axis.column], row)];
    return `${axis.name} = [${value}]`;
  });
  return { line: `${lines.toml.trimEnd()}\n${values.length ? `\n[axes]\n${values.join("\n")}\n` : ""}` };
}

// --- tables to download -----------------------------------------------------------------------------------

/** A cell of a table; what a spreadsheet would take for a formula is marked as text. */
function cell(value) {
  let shown = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(shown)) shown = `'${shown}`;
  return /[",\n\r]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
}

/** A number in SI units in as many digits as it has. */
function exact(column, row) {
  if (isNames(column)) return column.texts[stored(column, row)];
  const value = column.numbers ? column.numbers[stored(column, row)] : stored(column, row);
  return Number.isFinite(value) ? Number(value.toPrecision(column.numbers ? 12 : 7)) : "";
}

/** Designs as CSV, in SI units. */
function csv(rows) {
  const shown = [...axes, ...metrics, status];
  const units = (column) => (column.si && column.si !== "1" ? ` [${column.si}]` : "");
  const lines = [shown.map((column) => cell(column.name + units(column))).join(",")];
  for (const row of rows) lines.push(shown.map((column) => cell(exact(column, row))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

/** Hand a text to the browser as a file. */
function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Put a text where it can be pasted from. */
async function copy(content, box) {
  box.value = content;
  box.hidden = false;
  box.rows = Math.min(14, Math.max(3, content.split("\n").length, Math.ceil(content.length / 44)));
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    box.select();
    return document.execCommand("copy");
  }
}
