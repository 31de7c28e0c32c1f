// A metric of the model over one leaf, and over two of them.
/** Values of the leaves of a map, and milliseconds after which it makes room for whatever else is due. */
const WIDE = { x: 400, y: 250 }, SLICE = 12, SIZE = { width: 640, curve: 250 };
const picture = { version: 0, x: [], y: [], numbers: null, at: null };
let atlas;
/** Whatever else is due, then the next slice: a message, as timers that follow each other wait for 4 ms. */
const turns = new MessageChannel();
const turn = () => new Promise((done) => { turns.port1.onmessage = done; turns.port2.postMessage(0); });
const outputsOf = (metric) => [figures.metrics[metric], figures.metrics.infeasible_reason];
const isFar = (low, high) => low > 0 && high / low > 20;
/** Values along x and y, and of the replicas that follow them. */
function varying(first, xs, second = -1, ys = []) {
  const ways = { x: new Map([[first, Float32Array.from(xs)]]), y: new Map(), both: new Map() };
  const dp = model.follows?.replicas, isLedByY = second >= 0 && leads(second), values = design.values.slice();
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

function tellCurve() {
  const { metric, curve } = shown, { short: label, share, units } = model.metrics[metric];
  const i = indexOf.get(curve), leaf = leaves[i], times = leaf.choices ? 1 : leaf.factor;
  const here = design.values[i], xs = [...new Set([...valuesOf(leaf, 201), here])].sort((a, b) => a - b);
  const refuse = (why) => byId("live-curve").replaceChildren(element("p", { class: "quiet" }, why));
  if (xs.length < 2) return refuse(`${leaf.name} has one value.`);
  const [numbers, bits] = machine.over(design.values, outputsOf(metric), varying(i, xs));
  const isKnown = (k) => !(bits[k] & model.noStep) && Number.isFinite(numbers[k]);
  const known = [...xs.keys()].filter(isKnown), [low, high] = extent(known.map((k) => numbers[k]));
  if (!known.length) return refuse("No value of this leaf has a step.");
  const room = roomOf(low, high, 0.06), least = low >= 0 ? 0 : -Infinity;
  const [bottom, top] = isFar(low, high) ? [low / 1.1, high * 1.1] : [Math.max(low - room, least), high + room];
  const [factor, name] = share ? [100, "%"] : scaleOf(high, units);
  const x = axisOf(titled(leaf.name, leaf.units), xs[0] * times, xs.at(-1) * times, isLog(leaf, xs), 6, leaf.choices);
  const y = axisOf(titled(label, name), bottom * factor, top * factor, isFar(low, high), 5);
  const about = `${label} over ${leaf.name}: ${metricText(metric, low)} to ${metricText(metric, high)}`;
  const svg = element("svg", { role: "img", "aria-label": about });
  const { px, py } = drawAxes(svg, SIZE.width, SIZE.curve, x, y);
  const at = (k) => [px(xs[k] * times), py(numbers[k] * factor)];
  const go = (test) => (k) => (isKnown(k - 1) && test(k - 1) ? "L" : "M") + at(k).join(" ");
  const line = (style, test) => element("path", { class: style, d: known.filter(test).map(go(test)).join("") });
  const dot = (style, k, r) => element("circle", { class: style, cx: at(k)[0], cy: at(k)[1], r });
  svg.append(line("curve cannot", () => true), line("curve", (k) => !bits[k]));
  if (xs.length < 40) svg.append(...known.map((k) => dot(bits[k] ? "dot cannot" : "dot", k, 2.6)));
  if (isKnown(xs.indexOf(here))) svg.append(dot("here", xs.indexOf(here), 5));
  svg.onclick = ({ clientX }) => {
    const box = svg.getBoundingClientRect(), to = ((clientX - box.left) / box.width) * SIZE.width;
    change([[i, xs[nearestOf(xs, (value) => Math.abs(px(value * times) - to))]]]);
  };
  return byId("live-curve").replaceChildren(svg);
}
/** Compute the map a slice of a frame at a time, and draw it; a newer call ends an older one. */
async function tellMap() {
  const version = ++picture.version, { metric } = shown, first = indexOf.get(shown.x), second = indexOf.get(shown.y);
  const valuesAlong = (i, count) => valuesOf(leaves[i], count, Number(shown.times));
  const xs = valuesAlong(first, WIDE.x), ys = valuesAlong(second, WIDE.y), key = [first, second, xs.length, ys.length];
  if (first === second || xs.length < 2 || ys.length < 2) {
    tell(byId("live-map-told"), "Choose two leaves with several values each.");
    return;
  }
  const ways = varying(first, xs, second, ys), start = performance.now();
  let busy = 0, since = start, rows;
  for (rows of atlas.rows(Float64Array.from(design.values), outputsOf(metric), ways)) {
    if (performance.now() - since < SLICE) continue;
    busy += performance.now() - since;
    await turn();
    if (version !== picture.version) return;
    since = performance.now();
  }
  busy += performance.now() - since;
  const [numbers, bits] = rows, runs = [...numbers.keys()].filter((k) => !bits[k] && Number.isFinite(numbers[k]));
  const [low, high] = extent(runs.map((k) => numbers[k])), { more } = model.metrics[metric];
  const best = runs.find((k) => numbers[k] === (more ? high : low)) ?? -1;
  if (String(picture.key) !== String(key)) picture.at = null;
  Object.assign(picture, { key, x: xs, y: ys, numbers, bits, metric, first, second, best, low, high });
  paintMap();
  performance.measure("live-map", { start, end: start + busy, detail: numbers.length });
  const told = `${counted(numbers.length)} designs in ${digits(busy)} ms, ${counted(runs.length)} of which can run`;
  const which = () => `; the best of them (☆): ${placeText(best)} with ${metricText(metric, numbers[best])}`;
  tell(byId("live-map-told"), `${told}${best < 0 ? "" : which()}.`);
  document.body.dataset.mapped = String(version);
}
/** The leaves of a cell, each with its value; in words. */
function leavesOf(k) {
  const { x, y, first, second } = picture;
  return [[first, x[k % x.length]], [second, y[Math.floor(k / x.length)]]];
}
const placeText = (k) =>
  leavesOf(k).map(([i, value]) => `${leaves[i].name} ${leafText(leaves[i], value, true)}`).join(", ");

function paintMap() {
  const { x, y, numbers, bits, metric, first, second, low, high, best } = picture, canvas = byId("live-map");
  if (!numbers) return;
  const { more } = model.metrics[metric], grey = pixelOf(style("cannot")), colours = SHADES.map(pixelOf);
  const scaled = scaling(isFar(low, high)), from = scaled(low), wide = scaled(high) - from;
  Object.assign(canvas, { width: x.length, height: y.length });
  const image = new ImageData(x.length, y.length), pixels = new Uint32Array(image.data.buffer);
  numbers.forEach((value, k) => {
    const share = wide > 0 ? (scaled(value) - from) / wide : Number(more);
    const at = k + x.length * (y.length - 1 - 2 * Math.floor(k / x.length));
    pixels[at] = bits[k] || !Number.isFinite(value) ? grey : colours[Math.round(255 * (more ? share : 1 - share))];
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const axis = (leaf, { length, ...values }) => {
    const places = new Set([0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(part * (length - 1))));
    const ticks = Array.from(places, (k) => [k, leafText({ ...leaf, units: "" }, values[k], true)]);
    return { label: titled(leaf.name, leaf.units), share: (k) => (k + 0.5) / length, ticks };
  };
  const svg = byId("live-map-axes"), width = SIZE.width, height = within(Math.round(0.62 * width), 400);
  picture.box = drawAxes(svg, width, height, axis(leaves[first], x), axis(leaves[second], y));
  const { left, right, top, bottom } = picture.box;
  lay(canvas, { left, top, width: right - left, height: bottom - top });
  svg.append(picture.marks = element("g", { class: "marks" }));
  const place = (values, i) => nearestOf(values, (value) => Math.abs(Math.log(value / design.values[i])));
  picture.here = place(y, second) * x.length + place(x, first);
  picture.at ??= picture.here;
  markMap();
  const [worse, better] = (more ? [low, high] : [high, low]).map((end) => metricText(metric, end));
  const bar = element("span", { class: "ramp", style: { background: GRADIENT } });
  byId("live-ramp").replaceChildren(...(best < 0 ? [] : [worse, bar, better]),
    element("span", { class: "key" }, element("i", { style: { background: "var(--cannot)" } }), "cannot run"));
}
/** The best, the design, and the cross that keys move. */
function markMap() {
  const { x, best, here, at, marks, box: { px, py, left, right, top, bottom } } = picture;
  const isCross = at !== here && document.activeElement === byId("live-map");
  const inside = (at, low, high) => Math.max(low + 9, Math.min(high - 9, at));
  const shown = [[best, "☆"], [here, "◉"], [isCross ? at : -1, "✛"]].filter(([k]) => k >= 0);
  marks.replaceChildren(...shown.map(([k, mark]) => element("text", { "text-anchor": "middle", dy: 6,
    x: inside(px(k % x.length), left, right), y: inside(py(Math.floor(k / x.length)), top, bottom) }, mark)));
}
/** Tell of a cell. */
function tellCell(k) {
  const { numbers, bits, metric } = picture, said = bits[k] & model.noStep ? "no step" : metricText(metric, numbers[k]);
  const why = model.reasons.filter(([bit]) => bits[k] & bit).map(([, name]) => name.replaceAll("_", " ")).join(", ");
  tell(byId("live-map-cell"), `${placeText(k)}: ${said}${why && ` (cannot run: ${why})`}`);
}

function mapKey(event) {
  const { x, y, at } = picture, jump = event.shiftKey ? 20 : 1;
  const go = (across, up) => () => {
    const row = within(Math.floor(at / x.length) + up, y.length);
    picture.at = row * x.length + within((at % x.length) + across, x.length);
    tellCell(picture.at);
    markMap();
  };
  act(event, { ArrowRight: go(jump, 0), ArrowLeft: go(-jump, 0), ArrowUp: go(0, jump), ArrowDown: go(0, -jump),
    Enter: () => change(leavesOf(at)) });
}

function prepareStudies() {
  atlas = new Machine(model.program);
  // The width that there is, when it changes: to ask for it while drawing would lay the page out once more.
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (!width || Math.round(width) === SIZE.width) return;
    SIZE.width = Math.round(width);
    requestAnimationFrame(() => { tellCurve(); paintMap(); });
  }).observe(byId("live-curve"));
  const cellAt = ({ clientX, clientY }) => {
    const { left, bottom, width, height } = byId("live-map").getBoundingClientRect(), { x, y } = picture;
    const [column, row] = [((clientX - left) / width) * x.length, ((bottom - clientY) / height) * y.length];
    return within(Math.floor(row), y.length) * x.length + within(Math.floor(column), x.length);
  };
  const listen = (type, of) => on("live-map", type, (event) => { if (picture.box) of(event); });
  listen("mousemove", (event) => tellCell(cellAt(event)));
  listen("mouseleave", () => tell(byId("live-map-cell"), ""));
  listen("click", (event) => change(leavesOf(cellAt(event))));
  listen("keydown", mapKey);
  for (const type of ["focus", "blur"]) listen(type, markMap);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintMap);
}
