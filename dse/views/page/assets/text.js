// Elements, numbers as dse writes them (dse/io/quantities.py), and texts that leave the page.

const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "text"]);
const byId = (id) => document.getElementById(id);
const on = (id, type, listener) => byId(id).addEventListener(type, listener);

/** An element with attributes, style and content; texts stay texts. */
function element(tag, attributes = {}, ...content) {
  const node = SVG_TAGS.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...content);
  return node;
}

/** Change a text only where it differs: a page that is not laid out again is fast. */
function tell(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A colour of the page's style. */
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// --- numbers ----------------------------------------------------------------------------------------------

const GIB = 2 ** 30, DAY = 86400;
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"],
  [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
const WRITTEN = {
  K: [1, "K"], m: [1e3, "mm"], "m^2": [1e6, "mm²"], "kg/J": [3.6e9, "g/kWh"], "USD/J": [3.6e6, "USD/kWh"],
  "USD/(B/s)": [1e9, "USD/(GB/s)"], "USD/B": [1e9, "USD/GB"], "1/s": [365.25 * DAY, "/year"],
  "1/s/USD": [1e6, "/s per million USD"],
};
const FORMATS = [];

/** A number to three digits. */
function digits(value) {
  const size = Math.abs(value);
  if (!size) return Number.isNaN(size) ? "–" : "0";
  if (size === Infinity) return "∞";
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  if (size >= 1e7 || places > 6) return value.toExponential(2);
  FORMATS[places] ??= new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  return FORMATS[places].format(value);
}

const counted = (number) => number.toLocaleString("en");
const withUnits = (number, units) => (units && units[0] !== "/" ? `${number} ${units}` : number + units);

/** A stated number with no more digits than it has. */
const short = (value) => String(Number(value.toPrecision(6)));

const prefixOf = (size) => PREFIXES.find(([unit]) => size >= 0.9999 * unit) ?? PREFIXES[PREFIXES.length - 1];

/** Factor and name of the units that a number of this size is written in. */
function scaleOf(value, units) {
  const size = Math.abs(value);
  if (units === "USD" && size >= 1e6) return size >= 1e9 ? [1e-9, "billion USD"] : [1e-6, "million USD"];
  if (units === "USD") return size > 0 && size < 1e-3 ? [1e6, "USD per million"] : [1, "USD"];
  if (units === "s" && size > 7200) return size > 2 * DAY ? [1 / DAY, "days"] : [1 / 3600, "h"];
  if (WRITTEN[units]) return WRITTEN[units];
  if (units === "tokens/s" || units === "requests/s") return size >= 1e6 ? [1e-6, `million ${units}`] : [1, units];
  if (units === "kg" && size) {
    if (size >= 1 && size < 1e3) return [1, "kg"];
    const [factor, name] = size >= 1e3 ? [1e-3, "t"] : [1e3, "g"], [unit, prefix] = prefixOf(size * factor);
    return [factor / unit, prefix + name];
  }
  if (units === "B" && size >= 2 ** 20) return size >= 0.01 * GIB ? [1 / GIB, "GiB"] : [1024 / GIB, "MiB"];
  const name = { 1: "", "s-1": "/s", "1/USD": "/USD" }[units] ?? units;
  const isPlain = (units === "s" && size >= 1) || (!name && size < 1e6) || (name[0] === "/" && size < 1);
  if (!size || !Number.isFinite(size) || isPlain) return [1, name];
  const [unit, prefix] = prefixOf(size);
  return [1 / unit, prefix + name];
}

/** A result in SI units, as a table has it. */
function quantity(value, units, isShare = false) {
  if (isShare) return `${(100 * value).toFixed(1)} %`;
  if (units === "1" && Math.abs(value) < 1e6) {
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 10 });
  }
  const [factor, name] = scaleOf(value, units);
  return withUnits(digits(value * factor), name);
}

// --- texts that leave the page ----------------------------------------------------------------------------

/** Hand a file to the browser. */
function download(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Put a text where it can be pasted from; where the browser does not let us, by way of a box. */
async function copy(text, box = element("textarea", { style: { position: "fixed", opacity: 0 } })) {
  box.value = text;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const isNew = !box.isConnected;
    if (isNew) document.body.append(box);
    box.select();
    const isDone = document.execCommand("copy");
    if (isNew) box.remove();
    return isDone;
  }
}
