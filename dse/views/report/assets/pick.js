// Which designs a pointer means: the nearest one, those in a box, those in a lasso.

/** Pixels from the pointer within which a design is meant. */
const REACH = 14;

/** Position of the point nearest to a place, or -1 where none is near; ``wide`` and ``high`` are pixels a unit. */
function nearestOf({ across, up }, x, y, wide, high) {
  let found = -1, least = REACH * REACH;
  for (let i = 0; i < across.length; i++) {
    const dx = (across[i] - x) * wide, dy = (up[i] - y) * high, far = dx * dx + dy * dy;
    if (far < least) [found, least] = [i, far];
  }
  return found;
}

/** Whether a place lies in a polygon: a line from there to the right crosses it an odd number of times. */
function isInside(xs, ys, x, y) {
  let is = false;
  for (let i = 0, last = xs.length - 1; i < xs.length; last = i++) {
    if (ys[i] > y !== ys[last] > y && x < ((xs[last] - xs[i]) * (y - ys[i])) / (ys[last] - ys[i]) + xs[i]) is = !is;
  }
  return is;
}

/** Rows of the points within a box, or a polygon where it has more than two corners. */
function rowsWithin({ rows, across, up }, xs, ys) {
  const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const [left, right] = ends(xs), [low, high] = ends(ys), found = [];
  for (let i = 0; i < rows.length; i++) {
    const x = across[i], y = up[i];
    if (x >= left && x <= right && y >= low && y <= high && (xs.length === 2 || isInside(xs, ys, x, y))) found.push(rows[i]);
  }
  return found;
}

/** What is selected after one more choice, in the ways that Bokeh's tools offer. */
function combined(way, before, found) {
  const had = new Set(before), has = new Set(found);
  const added = () => found.filter((row) => !had.has(row)), left = () => before.filter((row) => !has.has(row));
  const ways = {
    append: () => [...before, ...added()], intersect: () => before.filter((row) => has.has(row)),
    subtract: left, xor: () => [...left(), ...added()],
  };
  return way in ways ? ways[way]() : found;
}

/** The way that the keys held down ask for, else that of the tool. */
function wayOf({ shift, ctrl }, tool) {
  if (shift && ctrl) return "subtract";
  if (shift) return "append";
  return ctrl ? "intersect" : tool.mode;
}
