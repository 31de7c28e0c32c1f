// A metric of the model over one leaf, and over two of them.

/** Values of the leaves of a map, and milliseconds after which it makes room for whatever else is due. */
const WIDE = { x: 400, y: 250 }, SLICE = 12, SIZE = { width: 640, curve: 250, map: 430 };
const picture = { version: 0, x: [], y: [], numbers: null, bits: null, at: null, best: -1 };
let atlas;

/** Whatever else is due, then the next slice: a message, as timers that follow each other wait for 4 ms. */
const turns = new MessageChannel();
const turn = () => new Promise((done) => { turns.port1.onmessage = done; turns.port2.postMessage(0); });

/** Values along x and y, and of the replicas that follow them. */
function varying(first, xs, second = -1, ys = []) {
  const ways = { x: new Map([[first, Float32Array.from(xs)]]), y: new Map(), both: new Map() };
  const dp = model.follows?.replicas, values = Float64Array.from(design.values), isLedByY = second >= 0 && leads(second);
  if (second >= 0) ways.y.set(second, Float32Array.from(ys));
  if (first === dp || second === dp || !(leads(first) || isLedByY)) return ways;
  const of = (i, j) => {
    values[first] = xs[i];
    if (second >= 0) values[second] = ys[j];
    return replicas(values);
  };
  if (isLedByY) ways.both.set(dp, of);
  else ways.x.set(dp, Float32Array.from(xs, (_, i) => of(i, 0)));
  return ways;
}

const outputsOf = (metric) => [figures.metrics[metric], figures.metrics.infeasible_reason];

/** Where a value lies between two, on a logarithm where they are far apart. */
const isFar = (low, high) => low > 0 && high / low > 20;
const titled = (name, units) => (units ? `${name} [${units}]` : name);

// --- the curve

function tellCurve() {
  const i = indexOf.get(shown.curve), leaf = leaves[i], { metric } = shown, { short: label, share, units } = model.metrics[metric];
  const here = design.values[i], xs = [...new Set([...valuesOf(leaf, 201), here])].sort((a, b) => a - b);
  const refuse = (why) => byId("live-curve").replaceChildren(element("p", { class: "quiet" }, why));
  if (xs.length < 2) return refuse(`${leaf.name} has one value.`);
  const [numbers, bits] = machine.over(design.values, outputsOf(metric), varying(i, xs));
  const isKnown = (k) => !(bits[k] & model.noStep) && Number.isFinite(numbers[k]), ys = [...numbers].filter((_, k) => isKnown(k));
  if (!ys.length) return refuse("No value of this leaf has a step.");
  const [low, high] = extent(ys), room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
  const [factor, name] = share ? [100, "%"] : scaleOf(high, units), { factor: times } = leaf;
  const [bottom, top] = isFar(low, high) ? [low / 1.1, high * 1.1] : [Math.max(low - room, low >= 0 ? 0 : -Infinity), high + room];
  const said = leaf.choices && xs.map((value) => [value, leafText(leaf, value)]);
  const x = axisOf(titled(leaf.name, leaf.units), xs[0] * times, xs.at(-1) * times, isLog(leaf, xs), 6, said);
  const y = axisOf(titled(label, name), bottom * factor, top * factor, isFar(low, high), 5);
  const svg = element("svg", { role: "img", "aria-label":
    `${label} over ${leaf.name}: ${metricText(metric, low)} to ${metricText(metric, high)}` });
  const { px, py } = drawAxes(svg, SIZE.width, SIZE.curve, x, y), at = (k) => [px(xs[k] * times), py(numbers[k] * factor)];
  const path = (test) => xs.map((_, k) => isKnown(k) && test(k)).reduce((d, is, k, all) =>
    (is ? `${d}${all[k - 1] ? "L" : "M"}${at(k).map((place) => place.toFixed(1)).join(" ")}` : d), "");
  const dot = (k, name, r) => element("circle", { class: name, cx: at(k)[0], cy: at(k)[1], r });
  svg.append(element("path", { class: "curve cannot", d: path(() => true) }), element("path", { class: "curve", d: path((k) => !bits[k]) }));
  if (xs.length < 40) svg.append(...[...xs.keys()].filter(isKnown).map((k) => dot(k, bits[k] ? "dot cannot" : "dot", 2.6)));
  if (isKnown(xs.indexOf(here))) svg.append(dot(xs.indexOf(here), "here", 5));
  svg.onclick = ({ clientX }) => {
    const box = svg.getBoundingClientRect(), to = ((clientX - box.left) / box.width) * SIZE.width;
    change([[i, xs.reduce((best, value) => (Math.abs(px(value * times) - to) < Math.abs(px(best * times) - to) ? value : best))]]);
  };
  return byId("live-curve").replaceChildren(svg);
}

// --- the map

/** Compute the map a slice of a frame at a time, and draw it; a newer call ends an older one. */
async function tellMap() {
  const version = ++picture.version, first = indexOf.get(shown.x), second = indexOf.get(shown.y), { metric } = shown;
  const [xs, ys] = [[first, WIDE.x], [second, WIDE.y]].map(([i, count]) => valuesOf(leaves[i], count, Number(shown.times)));
  if (first === second || xs.length < 2 || ys.length < 2) {
    tell(byId("live-map-told"), "Choose two leaves with several values each.");
    return;
  }
  let busy = 0, since = performance.now(), row;
  const start = since, rows = atlas.rows(Float64Array.from(design.values), outputsOf(metric), varying(first, xs, second, ys), true);
  for (row = rows.next(); !row.done; row = rows.next()) {
    if (performance.now() - since < SLICE) continue;
    busy += performance.now() - since;
    await turn();
    if (version !== picture.version) return;
    since = performance.now();
  }
  busy += performance.now() - since;
  const [numbers, bits] = row.value, { more } = model.metrics[metric];
  const isOther = picture.first !== first || picture.second !== second || picture.x.length !== xs.length || picture.y.length !== ys.length;
  const runs = [...numbers.keys()].filter((k) => !bits[k] && Number.isFinite(numbers[k])), [low, high] = extent(runs.map((k) => numbers[k]));
  const best = runs.find((k) => numbers[k] === (more ? high : low)) ?? -1;
  Object.assign(picture, { x: xs, y: ys, numbers, bits, metric, first, second, best, low, high }, isOther && { at: null });
  paintMap();
  performance.measure("live-map", { start, end: start + busy, detail: numbers.length });
  const told = `${counted(numbers.length)} designs in ${digits(busy)} ms, ${counted(runs.length)} of which can run`;
  tell(byId("live-map-told"), best < 0 ? `${told}.` : `${told}; the best of them (☆): ${placeText(best)} with ${metricText(metric, numbers[best])}.`);
  document.body.dataset.mapped = String(version);
}

/** The leaves of a cell. */
function placeText(k) {
  const { x, y, first, second } = picture, said = (i, value) => `${leaves[i].name} ${leafText(leaves[i], value, true)}`;
  return `${said(first, x[k % x.length])}, ${said(second, y[Math.floor(k / x.length)])}`;
}

function paintMap() {
  const { x, y, numbers, bits, metric, first, second, low, high, best } = picture, canvas = byId("live-map");
  if (!numbers) return;
  const { more } = model.metrics[metric], scaled = scaling(isFar(low, high)), grey = pixelOf(style("cannot")), colours = SHADES.map(pixelOf);
  const image = new ImageData(x.length, y.length), pixels = new Uint32Array(image.data.buffer);
  const from = scaled(low), wide = scaled(high) - from;
  numbers.forEach((value, k) => {
    const share = wide > 0 ? (scaled(value) - from) / wide : Number(more), at = (y.length - 1 - Math.floor(k / x.length)) * x.length + (k % x.length);
    pixels[at] = bits[k] || !Number.isFinite(value) ? grey : colours[Math.round(255 * (more ? share : 1 - share))];
  });
  const axis = (i, values) => ({ label: titled(leaves[i].name, leaves[i].units), share: (k) => (k + 0.5) / values.length,
    ticks: [0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(part * (values.length - 1))).filter((k, j, all) => k !== all[j - 1])
      .map((k) => [k, leafText({ ...leaves[i], units: "" }, values[k], true)]) });
  const box = drawAxes(byId("live-map-axes"), SIZE.width, SIZE.map, axis(first, x), axis(second, y));
  Object.assign(canvas, { width: x.length, height: y.length });
  Object.assign(canvas.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.right - box.left}px`, height: `${box.bottom - box.top}px` });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const nearest = (values, to) => values.reduce((best, value, k) => (Math.abs(Math.log(value / to)) < Math.abs(Math.log(values[best] / to)) ? k : best), 0);
  picture.here = nearest(y, design.values[second]) * x.length + nearest(x, design.values[first]);
  picture.at ??= picture.here;
  picture.marks = element("g", { class: "marks" });
  byId("live-map-axes").append(picture.marks);
  picture.box = box;
  markMap();
  const ends = (more ? [low, high] : [high, low]).map((end) => element("span", {}, metricText(metric, end)));
  const bar = element("span", { class: "ramp", style: { background: gradient } });
  byId("live-ramp").replaceChildren(...(best < 0 ? [] : [ends[0], bar, ends[1]]),
    element("span", { class: "key" }, element("i", { style: { background: "var(--cannot)" } }), "cannot run"));
}

/** The best, the design, and the cross that keys move. */
function markMap() {
  const { x, best, here, at, box: { px, py } } = picture, isCross = at !== here && document.activeElement === byId("live-map");
  const marks = [[best, "☆"], [here, "◉"], [isCross ? at : -1, "✛"]].filter(([k]) => k >= 0);
  picture.marks.replaceChildren(...marks.map(([k, mark]) =>
    element("text", { x: px(k % x.length), y: py(Math.floor(k / x.length)), dy: 6, "text-anchor": "middle" }, mark)));
}

/** A cell in words. */
function tellCell(k) {
  const { numbers, bits, metric } = picture, isKnown = !(bits[k] & model.noStep);
  const why = model.reasons.filter(([bit]) => bits[k] & bit).map(([, name]) => name.replaceAll("_", " ")).join(", ");
  const said = `${placeText(k)}: ${isKnown ? metricText(metric, numbers[k]) : "no step"}`;
  tell(byId("live-map-cell"), why ? `${said} (cannot run: ${why})` : said);
}

const within = (k, length) => Math.max(0, Math.min(length - 1, k));

function cellAt({ clientX, clientY }) {
  const { left, bottom, width, height } = byId("live-map").getBoundingClientRect(), { x, y } = picture;
  const column = Math.floor(((clientX - left) / width) * x.length), row = Math.floor(((bottom - clientY) / height) * y.length);
  return within(row, y.length) * x.length + within(column, x.length);
}

function takeCell(k) {
  const { x, y, first, second } = picture;
  change([[first, x[k % x.length]], [second, y[Math.floor(k / x.length)]]]);
}

function mapKey(event) {
  const { x, y, at, numbers } = picture, jump = event.shiftKey ? 20 : 1;
  const moves = { ArrowRight: [jump, 0], ArrowLeft: [-jump, 0], ArrowUp: [0, jump], ArrowDown: [0, -jump], Enter: [0, 0] };
  if (!numbers || !moves[event.key]) return;
  event.preventDefault();
  if (event.key === "Enter") return takeCell(at);
  const [across, up] = moves[event.key];
  picture.at = within(Math.floor(at / x.length) + up, y.length) * x.length + within((at % x.length) + across, x.length);
  tellCell(picture.at);
  markMap();
}

function prepareStudies() {
  atlas = new Machine(model.program);
  // The width that there is, when it changes: to ask for it while drawing would lay the page out once more.
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (!width || Math.round(width) === SIZE.width) return;
    SIZE.width = Math.round(width);
    requestAnimationFrame(() => { tellCurve(); paintMap(); });
  }).observe(byId("live-curve"));
  on("live-map", "mousemove", (event) => { if (picture.numbers) tellCell(cellAt(event)); });
  on("live-map", "mouseleave", () => tell(byId("live-map-cell"), ""));
  on("live-map", "click", (event) => { if (picture.numbers) takeCell(cellAt(event)); });
  on("live-map", "keydown", mapKey);
  for (const type of ["focus", "blur"]) on("live-map", type, () => { if (picture.box) markMap(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintMap);
}
