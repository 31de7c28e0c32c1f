// The design of the model: values of all leaves, what may be one, undo, and the address that holds what was changed.

const model = JSON.parse(byId("live-document").textContent);
const leaves = model?.leaves ?? [], figures = model?.figures ?? {}, MOST_UNDONE = 200;
const indexOf = new Map(leaves.flatMap((leaf, i) => [[leaf.name, i], [leaf.path, i]]));
const START = Float64Array.from(leaves, ({ value }) => value);
const design = { values: Float64Array.from(START), follows: Boolean(model?.follows), past: [], future: [] };
/** What is shown: a metric, the leaf of the curve, the leaves of the map and how far they reach. */
const SHOWN = model?.shown, shown = { ...SHOWN };

const metricText = (name, value) => quantity(value, model.metrics[name].units, model.metrics[name].share);
/** A leaf's value with its units; to three digits for axes. */
function leafText({ choices, factor, units }, value, isShort = false) {
  if (choices) return choices.find(([number]) => number === value)?.[1] ?? String(value);
  const isPlain = !isShort || (Number.isInteger(value) && value < 1e6);
  return withUnits((isPlain ? short : digits)(value * factor), units);
}
/** Whether a number is a value of a leaf: within its bounds and of a usual magnitude. */
function isAllowed({ choices, whole: isWhole, low, high, above }, value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value) || (value !== 0 && (size < 1e-24 || size > 1e24))) return false;
  if (choices) return choices.some(([number]) => number === value);
  if ((isWhole && value !== Math.round(value)) || (high !== null && value > high)) return false;
  return low === null || (above ? value > low : value >= low);
}
/** Values of a leaf around its start, for its slider, a curve or a map. */
function valuesOf(leaf, count, times = 10) {
  const { value: start, low, high, units, choices, listed, whole: isWhole } = leaf;
  const isBounded = high !== null && low !== null, width = Math.max(1, Math.abs(start) * times);
  if (choices) return choices.map(([value]) => value);
  if (!listed && !isBounded && !(start > 0) && low !== null) return [];
  const free = (t) => (start > 0 ? start * times ** (2 * t - 1) : start + width * (2 * t - 1));
  const at = (t) => (isBounded ? low + (high - low) * t : free(t));
  let values = listed ?? Array.from({ length: count }, (_, i) => Number(at(i / (count - 1)).toPrecision(7)));
  const isCount = units === "" && Number.isInteger(start) && start >= 16;
  if (isWhole || isCount) values = values.map(Math.round);
  if (!isWhole && isBounded) values = [...values, start];
  return [...new Set(values)].filter((value) => isAllowed(leaf, value)).sort((a, b) => a - b);
}
/** Whether values of a leaf are drawn on a logarithm. */
const isLog = ({ choices }, values) => !choices && values[0] > 0 && values[values.length - 1] / values[0] > 7;
/** Replicas that make up the devices with the other degrees; where they do not divide, as many as there is room for. */
function replicas(values) {
  const { devices, degrees } = model.follows;
  return Math.max(1, Math.floor(values[devices] / degrees.reduce((product, i) => product * values[i], 1) + 1e-9));
}
/** Whether a leaf decides on the replicas that follow. */
const leads = (i) => design.follows && (model.follows.devices === i || model.follows.degrees.includes(i));
/** The begin of a run of changes: what Undo goes back to. */
function remember() {
  if (design.past.at(-1) !== written()) design.past.push(written());
  if (design.past.length > MOST_UNDONE) design.past.shift();
  design.future = [];
}
/** Change leaves; those that follow come with them. */
function change(values, isRun = false) {
  if (!isRun) remember();
  const isLed = values.some(([i]) => leads(i));
  for (const [i, value] of values) {
    if (i === model.follows?.replicas && !isLed) design.follows = false;
    design.values[i] = value;
  }
  if (isLed) design.values[model.follows.replicas] = replicas(design.values);
  drawSoon();
}

function undo(from, to) {
  const now = written(), before = from.findLast((other) => other !== now);
  from.length = Math.max(0, from.lastIndexOf(before));
  if (before === undefined) return;
  to.push(now);
  read(before);
  drawSoon();
}
/** What differs from the start, and what is shown, as the address has it. */
function written() {
  const changes = [...leaves.keys()].filter((i) => design.values[i] !== START[i]);
  const values = changes.map((i) => `${leaves[i].name}=${Number(design.values[i].toPrecision(12))}`);
  const others = Object.keys(SHOWN).filter((name) => shown[name] !== SHOWN[name]);
  return [...values, ...(model.follows && !design.follows ? ["~follow=0"] : []),
    ...others.map((name) => `~${name}=${shown[name]}`)].join("&");
}
/** Take over an address; gives what it says that this page has not. */
function read(address) {
  const unknown = [], stated = new Set(), isLeaf = (name) => indexOf.has(name);
  const ways = { metric: (name) => figures.metrics[name] !== undefined && model.metrics[name], curve: isLeaf, x: isLeaf,
    y: isLeaf, times: (times) => ["2", "4", "10"].includes(times) };
  design.values.set(START);
  design.follows = Boolean(model.follows);
  Object.assign(shown, SHOWN);
  for (const [name, value] of new URLSearchParams(address.replaceAll("+", "%2B"))) {
    const i = indexOf.get(name), way = name.slice(1);
    if (name === "~follow") design.follows = design.follows && value !== "0";
    else if (name[0] === "~" && Object.hasOwn(ways, way)) {
      if (ways[way](value)) shown[way] = value;
    } else if (i !== undefined && value && isAllowed(leaves[i], Number(value))) {
      design.values[i] = Number(value);
      stated.add(i);
    } else unknown.push(name);
  }
  const follower = model.follows?.replicas;
  if (!stated.has(follower) && [...stated].some(leads)) design.values[follower] = replicas(design.values);
  return unknown;
}
/** The command that evaluates the design. */
function command() {
  const said = { ...model.stated }, { devices, replicas: dp } = model.follows ?? {}, { values } = design;
  leaves.forEach((leaf, i) => {
    const text = leaf.choices ? leafText(leaf, values[i]) : String(Number(values[i].toPrecision(9)));
    if (values[i] !== START[i]) said[leaf.name] = text;
    if (i === devices || i === dp) said[leaf.name] = String(values[i]);
  });
  const quoted = (word) => (/^[\w.,:=/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const words = Object.entries(said).map(([name, value]) => `--set ${quoted(`${name}=${value}`)}`);
  return [model.command, ...words].join(" ");
}
