// The design: values of all leaves, what may be one, undo, and the address of the page that holds what was changed.

const page = JSON.parse(byId("live-document").textContent);
const leaves = page.leaves;
const indexOf = new Map(leaves.flatMap((leaf, i) => [[leaf.name, i], [leaf.path, i]]));
const START = Float64Array.from(leaves, (leaf) => leaf.value);
const MOST_UNDONE = 200;

const design = { values: Float64Array.from(START), follows: Boolean(page.follows), past: [], future: [], listeners: [] };

/** What is shown: a metric, the leaf of the curve, the leaves of the map. */
const among = (names, others = []) => names.filter((name) => indexOf.has(name) && !others.includes(name) && leaves[indexOf.get(name)].read)[0] ?? leaves[0].name;
const SHOWN = { metric: page.objective };
SHOWN.curve = among(["memory.bandwidth", "seq_len"]);
SHOWN.x = among(["concurrency", "scale_out.bandwidth", "memory.bandwidth"]);
SHOWN.y = among(["memory.bandwidth", "scale_up.bandwidth", "seq_len"], [SHOWN.x]);
SHOWN.times = "4";
const shown = { ...SHOWN };

/** What is shown and does not exist becomes what is shown at first. */
function repair() {
  if (!page.metrics[shown.metric] || isUnknown(shown.metric)) shown.metric = SHOWN.metric;
  for (const way of ["curve", "x", "y"]) if (!indexOf.has(shown[way])) shown[way] = SHOWN[way];
  if (!["2", "4", "10"].includes(shown.times)) shown.times = SHOWN.times;
}
const isUnknown = (name) => page.figures.metrics[name] === undefined;

/** Whether a number is a value of a leaf: within its bounds and of a usual magnitude. */
function isAllowed(leaf, value) {
  if (!Number.isFinite(value) || (value !== 0 && (Math.abs(value) < 1e-24 || Math.abs(value) > 1e24))) return false;
  if (leaf.choices) return leaf.choices.some(([one]) => one === value);
  if (leaf.whole && value !== Math.round(value)) return false;
  if (leaf.high !== null && value > leaf.high) return false;
  return leaf.low === null || (leaf.above ? value > leaf.low : value >= leaf.low);
}

/** Replicas that make up the devices with the other degrees; where they do not divide, the most that there is room for. */
function replicas(values) {
  const { devices, degrees } = page.follows;
  return Math.max(1, Math.floor(values[devices] / degrees.reduce((product, i) => product * values[i], 1) + 1e-9));
}

/** Whether a leaf decides on the replicas that follow. */
const leads = (i) => design.follows && (page.follows.devices === i || page.follows.degrees.includes(i));

/** The begin of a run of changes: what Undo goes back to. */
function remember() {
  const now = written();
  if (design.past[design.past.length - 1] !== now) design.past.push(now);
  if (design.past.length > MOST_UNDONE) design.past.shift();
  design.future = [];
}

/** Change leaves; those that follow come with them. */
function change(values, isRun = false) {
  if (!isRun) remember();
  for (const [i, value] of values) {
    if (design.follows && i === page.follows.replicas && !values.some(([other]) => leads(other))) design.follows = false;
    design.values[i] = value;
  }
  if (values.some(([i]) => leads(i))) design.values[page.follows.replicas] = replicas(design.values);
  changed();
}

function changed() {
  for (const listener of design.listeners) listener();
}

/** What differs from the start, and what is shown, as the address has it. */
function written() {
  const said = [];
  design.values.forEach((value, i) => { if (value !== START[i]) said.push(`${leaves[i].name}=${Number(value.toPrecision(12))}`); });
  if (page.follows && !design.follows) said.push("~follow=0");
  for (const [name, value] of Object.entries(shown)) if (value !== SHOWN[name]) said.push(`~${name}=${value}`);
  return said.join("&");
}

/** Take over an address; gives what it says that this page has not. */
function read(text) {
  const unknown = [], stated = new Set();
  design.values.set(START);
  design.follows = Boolean(page.follows);
  Object.assign(shown, SHOWN);
  for (const one of text.split("&").filter(Boolean)) {
    const at = one.indexOf("="), name = safely(one.slice(0, at)), value = safely(one.slice(at + 1));
    const i = indexOf.get(name);
    if (name === "~follow") design.follows = design.follows && value !== "0";
    else if (name[0] === "~" && Object.hasOwn(SHOWN, name.slice(1))) shown[name.slice(1)] = value;
    else if (i !== undefined && value !== "" && isAllowed(leaves[i], Number(value))) {
      design.values[i] = Number(value);
      stated.add(i);
    }
    else unknown.push(name);
  }
  if (!stated.has(page.follows?.replicas) && [...stated].some(leads)) design.values[page.follows.replicas] = replicas(design.values);
  repair();
  return unknown;
}

function safely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function undo(from, to) {
  const now = written();
  while (from.length) {
    const before = from.pop();
    if (before === now) continue;
    to.push(now);
    read(before);
    changed();
    return;
  }
}

/** The command that evaluates the design. */
function command() {
  const said = { ...page.stated };
  leaves.forEach((leaf, i) => {
    const value = design.values[i];
    if (value !== START[i]) said[leaf.name] = leaf.choices ? leafText(leaf, value) : String(Number(value.toPrecision(9)));
  });
  const { devices, replicas: dp } = page.follows ?? {};
  if (devices !== undefined) for (const i of [devices, dp]) said[leaves[i].name] = String(design.values[i]);
  return [page.command, ...Object.entries(said).map(([name, value]) => `--set ${quoted(`${name}=${value}`)}`)].join(" ");
}
const quoted = (word) => (/^[\w.,:=/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

// --- values that a leaf may take --------------------------------------------------------------------------

/** Whether a leaf counts things, though halves of them are allowed. */
const isCount = ({ value, units }) => units === "" && Number.isInteger(value) && value >= 16;

/** Values of a leaf around its start, for its slider, a curve or a map. */
function valuesOf(leaf, count, times = 10) {
  const start = leaf.value, { low, high } = leaf;
  if (leaf.choices) return leaf.choices.map(([value]) => value);
  let found;
  if (leaf.degree || (leaf.whole && start < 16)) {
    const most = Math.max(64, start * 16), own = [];
    for (let value = 1; value <= most; value *= 2) own.push(value);
    for (let value = start; value <= most && value >= 1; value *= 2) own.push(value);
    for (let value = start / 2; value >= 1 && Number.isInteger(value); value /= 2) own.push(value);
    if (start === 0) own.push(0);
    found = leaf.degree ? own : Array.from({ length: 33 }, (_, i) => i);
  } else if (high !== null && low !== null) {
    found = spaced(count, (t) => low + (high - low) * t);
  } else if (start > 0) {
    found = spaced(count, (t) => start * times ** (2 * t - 1));
  } else if (low === null) {
    const width = Math.max(1, Math.abs(start) * times);
    found = spaced(count, (t) => start + width * (2 * t - 1));
  } else {
    return [];
  }
  if (leaf.whole || isCount(leaf)) found = found.map(Math.round);
  if (!leaf.whole && high !== null && low !== null) found.push(start);
  return [...new Set(found)].filter((value) => isAllowed(leaf, value)).sort((a, b) => a - b);
}
const spaced = (count, of) => Array.from({ length: count }, (_, i) => Number(of(i / (count - 1)).toPrecision(7)));

/** Whether values of a leaf are drawn on a logarithm. */
const isLog = (leaf, values) => !leaf.choices && values[0] > 0 && values[values.length - 1] / values[0] > 7;
