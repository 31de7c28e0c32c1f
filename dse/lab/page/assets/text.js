// Elements, numbers as dse writes them (dse/io/quantities.py), and texts that leave the page.

const SVG = "http://www.w3.org/2000/svg", SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "text"]);
const byId = (id) => document.getElementById(id);
const on = (id, type, listener) => byId(id).addEventListener(type, listener);
/** An element with attributes, style and content; texts stay texts. */
function element(tag, attributes = {}, ...content) {
  const isSvg = SVG_TAGS.has(tag), node = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...content);
  return node;
}
/** Change a text only where it differs: a page that is not laid out again is fast. */
function tell(place, text) { if (place.textContent !== text) place.textContent = text; }
/** A colour of the page's style, and an end of a range kept within a length. */
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const within = (k, length) => Math.max(0, Math.min(length - 1, k));
/** The place of the value that is least away. */
const nearestOf = (values, away) => values.reduce((best, value, k) => (away(value) < away(values[best]) ? k : best), 0);
/** Least and greatest finite of some numbers. */
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low && value > -Infinity) low = value;
    if (value > high && value < Infinity) high = value;
  }
  return [low, high];
}

const PREFIXES = ["p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"], GIB = 2 ** 30, DAY = 86400;
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
/** A count; a number with its units; a stated number with no more digits than it has. */
const counted = (number) => number.toLocaleString("en");
const withUnits = (number, units) => (units && units[0] !== "/" ? `${number} ${units}` : number + units);
const short = (value) => String(Number(value.toPrecision(6)));
/** Factor and name of units with the prefix that suits a size. */
function prefixed(size, name) {
  const power = Math.max(-4, Math.min(6, Math.floor(Math.log10(size * 1.0001) / 3)));
  return [10 ** (-3 * power), PREFIXES[power + 4] + name];
}
/** Factor and name of the units that a number of this size is written in. */
function scaleOf(value, units) {
  const size = Math.abs(value), name = { 1: "", "s-1": "/s", "1/USD": "/USD" }[units] ?? units;
  if (units === "USD" && size >= 1e6) return size >= 1e9 ? [1e-9, "billion USD"] : [1e-6, "million USD"];
  if (units === "USD") return size > 0 && size < 1e-3 ? [1e6, "USD per million"] : [1, "USD"];
  if (units === "s" && size > 7200) return size > 2 * DAY ? [1 / DAY, "days"] : [1 / 3600, "h"];
  if (model.written[units]) return model.written[units];
  if (units === "tokens/s" || units === "requests/s") return size >= 1e6 ? [1e-6, `million ${units}`] : [1, units];
  if (units === "B" && size >= 2 ** 20) return size >= 0.01 * GIB ? [1 / GIB, "GiB"] : [1024 / GIB, "MiB"];
  const isPlain = (units === "s" && size >= 1) || (!name && size < 1e6) || (name[0] === "/" && size < 1);
  if (!size || size === Infinity || Number.isNaN(size) || isPlain) return [1, name];
  if (units !== "kg" || (size >= 1 && size < 1e3)) return units === "kg" ? [1, "kg"] : prefixed(size, name);
  const [factor, mass] = size >= 1e3 ? [1e-3, "t"] : [1e3, "g"], [times, said] = prefixed(size * factor, mass);
  return [factor * times, said];
}
/** A result in SI units, as a table has it. */
function quantity(value, units, isShare = false) {
  if (isShare) return `${(100 * value).toFixed(1)} %`;
  const [factor, name] = scaleOf(value, units);
  if (units !== "1" || Math.abs(value) >= 1e6) return withUnits(digits(value * factor), name);
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 10 });
}
/** Hand a file to the browser. */
function download(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
/** Do what a key, or a name for it, stands for. */
function act(event, actions, name = event.key) {
  if (!Object.hasOwn(actions, name)) return;
  event.preventDefault();
  actions[name]();
}
/** Put a text where it can be pasted from, and say so; where the browser does not let us, select it in a box. */
async function copy(text, what, box, status) {
  Object.assign(box, { value: text, rows: Math.min(14, Math.max(3, text.split("\n").length, text.length / 44)) });
  const select = () => { box.hidden = false; box.select(); return document.execCommand("copy"); };
  const isCopied = await navigator.clipboard.writeText(text).then(() => true, select);
  tell(status, isCopied ? `${what} copied` : "Copy it from the box");
}
