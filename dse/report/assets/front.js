// Designs that pass the constraints, and those of them that no other beats in both metrics.

/** Rows that pass all of these tests. */
function passing(tests) {
  const found = new Int32Array(page.size);
  let count = 0;
  for (let row = 0; row < page.size; row++) {
    if (tests.every((test) => test(row))) found[count++] = row;
  }
  return found.subarray(0, count);
}

/** The first rows by a column, in order: most of them are looked at but not sorted. */
function firstBy(column, down, rows, most) {
  const sign = down ? -1 : 1;
  const keys = Float64Array.from(rows, (row) => {
    const value = sign * number(column, row);
    return Number.isNaN(value) ? Infinity : value;
  });
  const last = rows.length > most ? Float64Array.from(keys).sort()[most - 1] : Infinity;
  const near = [];
  for (let i = 0; i < rows.length; i++) if (keys[i] <= last) near.push(i);
  near.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b));
  return near.slice(0, most).map((i) => rows[i]);
}

/** The Pareto front among rows, in the order of the first column. */
function paretoFront(x, y, betterX, betterY, rows) {
  const signX = betterX === "less" ? 1 : -1, signY = betterY === "less" ? 1 : -1;
  const first = new Float64Array(rows.length), second = new Float64Array(rows.length), order = new Uint32Array(rows.length);
  let count = 0;
  rows.forEach((row, i) => {
    first[i] = signX * number(x, row);
    second[i] = signY * number(y, row);
    if (Number.isFinite(first[i]) && Number.isFinite(second[i]) && canRun(row)) order[count++] = i;
  });
  const front = [];
  let least = Infinity;
  for (const i of order.subarray(0, count).sort((a, b) => first[a] - first[b] || second[a] - second[b] || a - b)) {
    if (second[i] < least) {
      least = second[i];
      front.push(rows[i]);
    }
  }
  return signX > 0 ? front : front.reverse();
}
