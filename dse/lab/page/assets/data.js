// Columns of results: unpacked, read and sorted; which designs no other beats.

const results = JSON.parse(byId("document").textContent);
const columns = results?.columns ?? [], size = results?.size ?? 0;
const [axes, metrics] = ["axis", "metric"].map((wanted) => columns.filter(({ kind }) => kind === wanted));
const status = columns.find(({ kind }) => kind === "status");
const all = Int32Array.from({ length: size }, (_, row) => row);
const able = new Uint8Array(size), canRun = (row) => able[row] === 1;
/** Positions in texts by type; numbers of single precision come as four planes of bytes. */
const POSITIONS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
/** Give every column its values, which are in the order of the columns. */
async function unpack() {
  const packed = Uint8Array.from(atob(byId("columns").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  byId("columns").textContent = "";
  let at = 0;
  for (const column of columns.filter(({ type }) => type !== "same")) {
    const bytes = new Uint8Array(buffer, at, size * Number(column.type[1])), mixed = new Uint8Array(bytes.length);
    at += bytes.length;
    for (let i = 0, plane = 0; plane < 4; plane++) for (let k = plane; k < mixed.length; k += 4) mixed[k] = bytes[i++];
    const isPlanes = column.type === "f4";
    column.values = new (isPlanes ? Float32Array : POSITIONS[column.type])((isPlanes ? mixed : bytes.slice()).buffer);
  }
  for (const row of all) able[row] = Number(status.texts[stored(status, row)] === "");
}
/** What is stored of a column at a design: a number, or a position in its texts. */
const stored = ({ values, value }, row) => (values ? values[row] : value ?? NaN);
/** A column's number at a design, in the units that are shown; of names their position. */
function number(column, row) {
  const value = stored(column, row);
  return (column.numbers ? column.numbers[value] : value) * (column.factor ?? 1);
}

function numbersOf(column, rows, of = (value) => value) {
  const numbers = new Float64Array(rows.length);
  for (let i = 0; i < numbers.length; i++) numbers[i] = of(number(column, rows[i]));
  return numbers;
}
/** Whether a column is a set of names rather than of numbers; what heads it; what it says of a design. */
const isNames = (column) => Boolean(column.texts) && !column.numbers;
const titled = (label, units) => (units ? `${label} [${units}]` : label);
const heading = ({ label, units }) => titled(label, units);
const text = (column, row) => (column.texts ? column.texts[stored(column, row)] : textOf(column, number(column, row)));
const textOf = ({ units }, value) => (Number.isNaN(value) ? "–" : withUnits(digits(value), units ?? ""));
/** Rows in the order of a column; what has no number comes last. */
function sortedBy(column, isDown, rows) {
  const keys = numbersOf(column, all, (value) => (Number.isNaN(value) ? Infinity : isDown ? -value : value));
  return Int32Array.from(rows).sort((a, b) => (keys[a] === keys[b] ? a - b : keys[a] - keys[b]));
}
/** Designs among rows that no other beats in both columns, in the order of the first one. */
function paretoFront({ x, y, betterX, betterY }, rows) {
  const [first, second] = [[x, betterX], [y, betterY]].map(([column, better]) =>
    numbersOf(column, all, (value) => (better === "less" ? value : -value)));
  const rated = rows.filter((row) => canRun(row) && Number.isFinite(first[row]) && Number.isFinite(second[row]));
  const front = [];
  let least = Infinity;
  for (const row of rated.sort((a, b) => first[a] - first[b] || second[a] - second[b] || a - b)) {
    if (second[row] < least) front.push(row);
    least = Math.min(least, second[row]);
  }
  return betterX === "less" ? front : front.reverse();
}
