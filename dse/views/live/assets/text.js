// Numbers as dse writes them (dse/io/quantities.py), and elements of the page.

const GIB = 2 ** 30;
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
const WRITTEN = {
  K: [1, "K"], m: [1e3, "mm"], "m^2": [1e6, "mm²"], "kg/J": [3.6e9, "g/kWh"], "USD/J": [3.6e6, "USD/kWh"],
  "USD/(B/s)": [1e9, "USD/(GB/s)"], "USD/B": [1e9, "USD/GB"], "1/s": [365.25 * 86400, "/year"], "1/s/USD": [1e6, "/s per million USD"],
};
const DAY = 86400;

const prefixOf = (size) => PREFIXES.find(([unit]) => size >= 0.9999 * unit) ?? PREFIXES[PREFIXES.length - 1];

/** Factor and name of the units that a number of this size is written in. */
function scaleOf(value, units) {
  const size = Math.abs(value);
  if (units === "USD" && size >= 1e6) return size >= 1e9 ? [1e-9, "billion USD"] : [1e-6, "million USD"];
  if (units === "USD" && size > 0 && size < 1e-3) return [1e6, "USD per million"];
  if (units === "USD") return [1, "USD"];
  if (units === "s" && size > 7200) return size > 2 * DAY ? [1 / DAY, "days"] : [1 / 3600, "h"];
  if (WRITTEN[units]) return WRITTEN[units];
  if (units === "tokens/s" || units === "requests/s") return size >= 1e6 ? [1e-6, `million ${units}`] : [1, units];
  if (units === "kg" && size) {
    if (size >= 1 && size < 1e3) return [1, "kg"];
    const [whole, name] = size >= 1e3 ? [size / 1e3, "t"] : [size * 1e3, "g"];
    const [unit, prefix] = prefixOf(whole);
    return [whole / size / unit, prefix + name];
  }
  if (units === "B" && size >= 2 ** 20) return size >= 0.01 * GIB ? [1 / GIB, "GiB"] : [1024 / GIB, "MiB"];
  const name = { 1: "", "s-1": "/s", "1/USD": "/USD" }[units] ?? units;
  const plain = (units === "s" && size >= 1) || (!name && size < 1e6) || (name[0] === "/" && size < 1);
  if (!size || !Number.isFinite(size) || plain) return [1, name];
  const [unit, prefix] = prefixOf(size);
  return [1 / unit, prefix + name];
}

/** A number to three digits. */
function digits(value) {
  if (!value || !Number.isFinite(value)) return Number.isNaN(value) ? "–" : value ? "∞" : "0";
  const places = 2 - Math.floor(Math.log10(Math.abs(value)));
  return places > 6 ? value.toExponential(2) : value.toLocaleString("en", { minimumFractionDigits: Math.max(0, places), maximumFractionDigits: Math.max(0, places) });
}

const joined = (number, name) => (name && name[0] !== "/" ? `${number} ${name}` : number + name);

/** A result in SI units, as a table has it. */
function quantity(value, units, share = false) {
  if (share) return `${(100 * value).toFixed(1)} %`;
  if (units === "1" && Math.abs(value) < 1e6) return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 10 });
  const [factor, name] = scaleOf(value, units);
  return joined(digits(value * factor), name);
}

const metricText = (name, value) => quantity(value, page.metrics[name].units, page.metrics[name].share);

/** A leaf's value with its units. */
function leafText(leaf, value) {
  if (leaf.choices) return leaf.choices.find(([one]) => one === value)?.[1] ?? String(value);
  return joined(short(value * leaf.factor), leaf.units);
}

/** A leaf's value to three digits, for axes. */
function leafAbout(leaf, value) {
  return leaf.choices || (Number.isInteger(value) && value < 1e6) ? leafText(leaf, value) : joined(digits(value * leaf.factor), leaf.units);
}

/** A stated number with no more digits than it has. */
const short = (value) => String(Number(value.toPrecision(6)));

/** An element with attributes, style and children; texts stay texts. */
function element(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}
const SVG_TAGS = new Set(["svg", "path", "line", "circle", "text", "g", "rect"]);
const byId = (id) => document.getElementById(id);

/** Change a text only where it differs: a page that is not laid out again is fast. */
function tell(place, said) {
  if (place.textContent !== said) place.textContent = said;
}

/** Round numbers between two, for axes. */
function ticks(low, high, log, most = 5) {
  if (log) {
    const from = Math.log10(low), to = Math.log10(high), found = [];
    const steps = to - from > 3 ? [1] : to - from > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    for (let power = Math.floor(from); power <= to; power++) for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
    return found;
  }
  const step = 10 ** Math.floor(Math.log10((high - low) / most || 1)), times = [1, 2, 5, 10].find((n) => (high - low) / (n * step) <= most) ?? 10;
  const found = [];
  for (let value = Math.ceil(low / (times * step)) * times * step; value <= high + 1e-9 * Math.abs(high); value += times * step) found.push(Math.abs(value) < 1e-12 * step ? 0 : value);
  return found;
}

async function toClipboard(said) {
  try {
    await navigator.clipboard.writeText(said);
    return true;
  } catch {
    const box = element("textarea", { style: { position: "fixed", opacity: 0 } });
    box.value = said;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}
