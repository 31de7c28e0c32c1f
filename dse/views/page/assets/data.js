// Columns of results: unpacked, read, filtered and sorted; which designs no other beats.

const results = JSON.parse(byId("document").textContent);
const columns = results?.columns ?? [], size = results?.size ?? 0;
const axes = columns.filter(({ kind }) => kind === "axis");
const metrics = columns.filter(({ kind }) => kind === "metric");
const status = columns.find(({ kind }) => kind === "status");
const able = new Uint8Array(size);
const canRun = (row) => able[row] === 1;

/** Positions in texts by type; numbers of single precision come as four planes of bytes. */
const POSITIONS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

/** Give every column its values, which are in the order of the columns. */
async function unpack() {
  const packed = Uint8Array.from(atob(byId("columns").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  byId("columns").textContent = "";
  let at = 0;
  for (const column of columns) {
    if (column.type === "same") continue;
    const bytes = new Uint8Array(buffer, at, size * Number(column.type[1]));
    at += bytes.length;
    if (column.type === "f4") {
      const mixed = new Uint8Array(bytes.length);
      for (let i = 0, plane = 0; plane < 4; plane++) for (let k = plane; k < mixed.length; k += 4) mixed[k] = bytes[i++];
      column.values = new Float32Array(mixed.buffer);
    } else column.values = new POSITIONS[column.type](bytes.slice().buffer);
  }
  for (let row = 0; row < size; row++) able[row] = status.texts[stored(status, row)] === "" ? 1 : 0;
}

/** What is stored of a column at a design: a number, or a position in its texts. */
const stored = ({ values, value }, row) => (values ? values[row] : value ?? NaN);

/** A column's number at a design, in the units that are shown; of names their position. */
function number(column, row) {
  const value = stored(column, row);
  return (column.numbers ? column.numbers[value] : value) * (column.factor ?? 1);
}

const numbersOf = (column, rows, of = (value) => value) => Float64Array.from(rows, (row) => of(number(column, row)));

/** Whether a column is a set of names rather than of numbers. */
const isNames = (column) => Boolean(column.texts) && !column.numbers;

/** Least and greatest finite of some numbers. */
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low && value > -Infinity) low = value;
    if (value > high && value < Infinity) high = value;
  }
  return [low, high];
}

const all = Int32Array.from({ length: size }, (_, row) => row);
const extentOf = (column) => extent(numbersOf(column, all));

/** What a column says of a design. */
function text(column, row) {
  if (column.texts) return column.texts[stored(column, row)];
  const shown = digits(number(column, row));
  return column.units && shown !== "–" ? `${shown} ${column.units}` : shown;
}

const heading = ({ label, units }) => (units ? `${label} [${units}]` : label);

/** The first rows by a column, in order; what has no number comes last. Most rows are looked at but not sorted. */
function firstBy(column, isDown, rows, most) {
  const keys = numbersOf(column, rows, (value) => (Number.isNaN(value) ? Infinity : isDown ? -value : value));
  const last = rows.length > most ? Float64Array.from(keys).sort()[most - 1] : Infinity;
  const near = [];
  for (let i = 0; i < rows.length; i++) if (keys[i] <= last) near.push(i);
  near.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b));
  return near.slice(0, most).map((i) => rows[i]);
}

// --- the Pareto front -------------------------------------------------------------------------------------

/** Of these positions, by their first number, those whose second one is less than all before. */
function descending(positions, first, second) {
  let least = Infinity;
  return positions.sort((a, b) => first[a] - first[b] || second[a] - second[b] || a - b).filter((i) => {
    const isLess = second[i] < least;
    if (isLess) least = second[i];
    return isLess;
  });
}

/** Whether one of these, which descend, is less in the first number and no more in the second. */
function isBeaten(i, front, first, second) {
  let low = 0, high = front.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (first[front[middle]] < first[i]) low = middle + 1;
    else high = middle;
  }
  return low > 0 && second[front[low - 1]] <= second[i];
}

/** Designs among rows that no other beats in both columns, in the order of the first one. */
function paretoFront({ x, y, betterX, betterY }, rows) {
  const first = numbersOf(x, rows, (value) => (betterX === "less" ? value : -value));
  const second = numbersOf(y, rows, (value) => (betterY === "less" ? value : -value));
  const isRated = (i) => Number.isFinite(first[i]) && Number.isFinite(second[i]) && canRun(rows[i]);
  const positions = Int32Array.from(rows.keys()).filter(isRated);
  // To sort all of them takes longer than anything else here, and a few beat most.
  const sample = descending(positions.filter((_, k) => k % 64 === 0), first, second);
  const best = descending(positions.filter((i) => !isBeaten(i, sample, first, second)), first, second);
  const front = Array.from(best, (i) => rows[i]);
  return betterX === "less" ? front : front.reverse();
}
