// Designs that pass the constraints, and those of them that no other beats in both metrics.

/** Rows that pass all of these tests. */
function passing(tests) {
  const found = new Int32Array(page.size);
  let count = page.size;
  for (let row = 0; row < count; row++) found[row] = row;
  for (const test of tests) {
    let left = 0;
    for (let i = 0; i < count; i++) if (test(found[i])) found[left++] = found[i];
    count = left;
  }
  return found.subarray(0, count);
}

/** The first rows by a column, in order: most of them are looked at but not sorted. */
function firstBy(column, down, rows, most) {
  const keys = numbersOf(column, rows);
  for (let i = 0; i < keys.length; i++) keys[i] = Number.isNaN(keys[i]) ? Infinity : down ? -keys[i] : keys[i];
  const last = rows.length > most ? Float64Array.from(keys).sort()[most - 1] : Infinity;
  const near = [];
  for (let i = 0; i < rows.length; i++) if (keys[i] <= last) near.push(i);
  near.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b));
  return near.slice(0, most).map((i) => rows[i]);
}

/** Of these positions, in the order of the first number, those whose second one is less than all before. */
function descending(positions, first, second) {
  let least = Infinity;
  return positions.sort((a, b) => first[a] - first[b] || second[a] - second[b] || a - b).filter((i) => {
    const is = second[i] < least;
    if (is) least = second[i];
    return is;
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

/** One design of so many is asked first whether it beats the others. */
const SAMPLED = 64;

/** The Pareto front among rows, in the order of the first column. */
function paretoFront(x, y, betterX, betterY, rows) {
  const first = numbersOf(x, rows), second = numbersOf(y, rows), found = new Int32Array(rows.length);
  let count = 0;
  for (let i = 0; i < rows.length; i++) {
    if (betterX !== "less") first[i] = -first[i];
    if (betterY !== "less") second[i] = -second[i];
    if (Number.isFinite(first[i]) && Number.isFinite(second[i]) && canRun(rows[i])) found[count++] = i;
  }
  // to sort all of them takes longer than anything else here, and a few beat most
  const all = found.subarray(0, count), some = descending(all.filter((_, at) => at % SAMPLED === 0), first, second);
  const best = descending(all.filter((i) => !isBeaten(i, some, first, second)), first, second);
  const front = Array.from(best, (i) => rows[i]);
  return betterX === "less" ? front : front.reverse();
}
