// What the page holds: its document, and the columns that it was packed with.

const page = JSON.parse(document.getElementById("document").textContent);
const columns = page.columns;

/** Bytes of a text in base 64, inflated. */
async function inflated(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** Numbers of single precision from four planes of bytes. */
function joined(bytes, size) {
  const mixed = new Uint8Array(4 * size);
  for (let plane = 0; plane < 4; plane++) {
    for (let i = 0, at = plane * size; i < size; i++, at++) mixed[4 * i + plane] = bytes[at];
  }
  return new Float32Array(mixed.buffer);
}

const POSITIONS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

/** Give every column its values, which are in the order of the columns. */
async function unpack() {
  const place = document.getElementById("columns");
  const buffer = await inflated(place.textContent);
  place.textContent = "";
  let at = 0;
  for (const column of columns) {
    if (column.type === "same") continue;
    const bytes = page.size * Number(column.type[1]);
    column.values = column.type === "f4"
      ? joined(new Uint8Array(buffer, at, bytes), page.size)
      : new POSITIONS[column.type](buffer.slice(at, at + bytes));
    at += bytes;
  }
  for (let row = 0; row < page.size; row++) able[row] = status.texts[stored(status, row)] === "" ? 1 : 0;
}

/** What is stored of a column at a design: a number, or a position in its texts. */
function stored(column, row) {
  if (column.type !== "same") return column.values[row];
  return column.value === null ? NaN : column.value;
}

/** A column's number at a design, in the units that are shown; of names their position. */
function number(column, row) {
  const value = stored(column, row);
  return (column.numbers ? column.numbers[value] : value) * (column.factor ?? 1);
}

/** A column's numbers at rows, or their logarithms. */
function numbersOf(column, rows, log = false) {
  const found = new Float64Array(rows.length), { values, numbers } = column, factor = column.factor ?? 1;
  for (let i = 0; i < rows.length; i++) {
    const value = values ? values[rows[i]] : stored(column, rows[i]);
    found[i] = (numbers ? numbers[value] : value) * factor;
  }
  return log ? found.map(Math.log10) : found;
}

/** Whether a column is a set of names rather than of numbers. */
const isNames = (column) => Boolean(column.texts) && !column.numbers;

/** Columns that may be shown: axes, then metrics. */
const axes = columns.filter((column) => column.kind === "axis");
const metrics = columns.filter((column) => column.kind === "metric");
const status = columns.find((column) => column.kind === "status");
const able = new Uint8Array(page.size);
const canRun = (row) => able[row] === 1;

/** Least and greatest finite number of a column. */
function extent(column) {
  let low = Infinity, high = -Infinity;
  for (let row = 0; row < page.size; row++) {
    const value = number(column, row);
    if (Number.isFinite(value)) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}
