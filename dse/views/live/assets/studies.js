// A metric over one leaf, and over two of them.

const atlas = new Machine(page.program);
const WIDE = { first: 400, second: 250 };
const SLICE = 12;

/** Whatever else is due, then the next slice: a message, as timers that follow each other wait for 4 ms. */
const turns = new MessageChannel();
const turn = () => new Promise((done) => { turns.port1.onmessage = done; turns.port2.postMessage(0); });
const picture = { version: 0, x: [], y: [], numbers: null, bits: null, range: [1, 1], at: null, best: -1 };

/** Values along x and y, and of the replicas that follow them. */
function varying(first, xs, second = -1, ys = []) {
  const found = { x: new Map([[first, Float32Array.from(xs)]]), y: new Map(), both: new Map() };
  if (second >= 0) found.y.set(second, Float32Array.from(ys));
  const dp = page.follows?.replicas;
  if (first === dp || second === dp || !(leads(first) || (second >= 0 && leads(second)))) return found;
  const values = Float64Array.from(design.values);
  const of = (i, j) => {
    values[first] = xs[i];
    if (second >= 0) values[second] = ys[j];
    return replicas(values);
  };
  if (second >= 0 && leads(second)) found.both.set(dp, of);
  else found.x.set(dp, Float32Array.from(xs, (_, i) => of(i, 0)));
  return found;
}

// --- the curve --------------------------------------------------------------------------------------------

const BOX = { width: 640, height: 250, left: 74, right: 12, top: 12, bottom: 40 };

/** Take the width that there is, when it changes: to ask for it while drawing would lay the page out once more. */
function listenToWidth() {
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.max(300, Math.min(760, Math.round(contentRect.width)));
    if (!contentRect.width || width === BOX.width) return;
    BOX.width = width;
    requestAnimationFrame(tellCurve);
  }).observe(byId("live-curve"));
}

function tellCurve() {
  const i = indexOf.get(shown.curve), leaf = leaves[i], { metric } = shown, place = byId("live-curve");
  const here = design.values[i], xs = [...new Set([...valuesOf(leaf, 201), here])].sort((a, b) => a - b);
  const svg = element("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img" });
  place.replaceChildren(svg);
  if (xs.length < 2) return place.replaceChildren(element("p", { class: "quiet" }, `${leaf.name} has one value.`));
  const [numbers, bits] = machine.over(design.values, [figures.metrics[metric], figures.metrics.infeasible_reason], varying(i, xs));
  const able = (k) => !(bits[k] & page.noStep) && Number.isFinite(numbers[k]), ys = [...numbers].filter((_, k) => able(k));
  if (!ys.length) return place.replaceChildren(element("p", { class: "quiet" }, "No value of this leaf has a step."));
  const logX = isLog(leaf, xs), low = Math.min(...ys), high = Math.max(...ys), share = page.metrics[metric].share;
  const logY = low > 0 && high / low > 20, padding = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
  const [bottom, top] = logY ? [low / 1.1, high * 1.1] : [Math.max(low - padding, low >= 0 ? 0 : -Infinity), high + padding];
  const on = (value, from, to, log) => (log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from));
  const px = (value) => BOX.left + on(value, xs[0], xs[xs.length - 1], logX) * (BOX.width - BOX.left - BOX.right);
  const py = (value) => BOX.height - BOX.bottom - on(value, bottom, top, logY) * (BOX.height - BOX.top - BOX.bottom);
  const text = (value) => (leaf.choices ? leafText(leaf, value) : leafText({ ...leaf, units: "" }, value));
  for (const value of leaf.choices ? xs : ticks(xs[0] * leaf.factor, xs[xs.length - 1] * leaf.factor, logX, 6).map((one) => one / leaf.factor)) {
    svg.append(element("line", { class: "grid", x1: px(value), x2: px(value), y1: BOX.top, y2: BOX.height - BOX.bottom }),
      element("text", { x: px(value), y: BOX.height - BOX.bottom + 16, "text-anchor": "middle" }, text(value)));
  }
  const [factor, units] = share ? [100, "%"] : scaleOf(high, page.metrics[metric].units);
  for (const value of ticks(bottom * factor, top * factor, logY, 5)) {
    const y = py(value / factor);
    svg.append(element("line", { class: "grid", x1: BOX.left, x2: BOX.width - BOX.right, y1: y, y2: y }), element("text", { x: BOX.left - 6, y: y + 4, "text-anchor": "end" }, digits(value)));
  }
  const path = (test) => xs.reduce((said, x, k) => (!able(k) || !test(k) ? said : `${said}${k && able(k - 1) && test(k - 1) ? "L" : "M"}${px(x).toFixed(1)} ${py(numbers[k]).toFixed(1)}`), "");
  svg.append(element("path", { class: "curve cannot", d: path(() => true) }), element("path", { class: "curve", d: path((k) => !bits[k]) }));
  if (xs.length < 40) xs.forEach((x, k) => { if (able(k)) svg.append(element("circle", { class: bits[k] ? "dot cannot" : "dot", cx: px(x), cy: py(numbers[k]), r: 2.6 })); });
  const k = xs.indexOf(here);
  if (able(k)) svg.append(element("circle", { class: "here", cx: px(here), cy: py(numbers[k]), r: 5 }));
  svg.append(element("text", { x: (BOX.left + BOX.width) / 2, y: BOX.height - 4, "text-anchor": "middle", class: "axis" }, `${leaf.name}${leaf.units ? ` [${leaf.units}]` : ""}`),
    element("text", { x: 0, y: 0, transform: `translate(12 ${BOX.height / 2 - 8}) rotate(-90)`, "text-anchor": "middle", class: "axis" }, `${page.metrics[metric].short}${units ? ` [${units}]` : ""}`));
  svg.setAttribute("aria-label", `${page.metrics[metric].short} over ${leaf.name}: ${metricText(metric, low)} to ${metricText(metric, high)}`);
  svg.onclick = (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * BOX.width;
    change([[i, xs.reduce((best, x) => (Math.abs(px(x) - at) < Math.abs(px(best) - at) ? x : best), xs[0])]]);
  };
}

// --- the map ----------------------------------------------------------------------------------------------

/** Colours from worse to better, told apart without red or green cones and in grey. */
const RAMP = ["#00204d", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#ffea46"].map((one) => [1, 3, 5].map((at) => parseInt(one.slice(at, at + 2), 16)));

function colourAt(share) {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[i].map((from, k) => Math.round(from + (at - i) * (RAMP[i + 1][k] - from)));
}

/** Compute the map a slice of a frame at a time, and draw it; a newer call ends an older one. */
async function tellMap() {
  const version = ++picture.version, first = indexOf.get(shown.x), second = indexOf.get(shown.y), { metric } = shown;
  const times = Number(shown.times), xs = valuesOf(leaves[first], WIDE.first, times), ys = valuesOf(leaves[second], WIDE.second, times);
  if (first === second || xs.length < 2 || ys.length < 2) {
    tell(byId("live-map-told"), "Choose two leaves with several values each.");
    return;
  }
  const start = performance.now();
  let busy = 0, since = start;
  const rows = atlas.rows(Float64Array.from(design.values), [figures.metrics[metric], figures.metrics.infeasible_reason], varying(first, xs, second, ys), true);
  let found = rows.next();
  while (!found.done) {
    if (performance.now() - since > SLICE) {
      busy += performance.now() - since;
      await turn();
      if (version !== picture.version) return;
      since = performance.now();
    }
    found = rows.next();
  }
  busy += performance.now() - since;
  const [numbers, bits] = found.value;
  if (picture.first !== first || picture.second !== second || picture.x.length !== xs.length || picture.y.length !== ys.length) picture.at = null;
  Object.assign(picture, { x: xs, y: ys, numbers, bits, metric, first, second, best: -1 });
  rate();
  paint();
  performance.measure("live-map", { start, end: start + busy, detail: numbers.length });
  const able = picture.able, best = picture.best;
  const told = `${numbers.length.toLocaleString("en")} designs in ${digits(busy)} ms, ${able.toLocaleString("en")} of which can run`;
  tell(byId("live-map-told"), best < 0 ? `${told}.` : `${told}; the best of them (☆): ${leaves[first].name} ${leafAbout(leaves[first], xs[best % xs.length])}, ${leaves[second].name} ${leafAbout(leaves[second], ys[Math.floor(best / xs.length)])} with ${metricText(metric, numbers[best])}.`);
  document.body.dataset.mapped = String(version);
}

/** The range of those that can run, and the best. */
function rate() {
  const { numbers, bits, metric } = picture, { more } = page.metrics[metric];
  let low = Infinity, high = -Infinity, able = 0, best = -1;
  for (let k = 0; k < numbers.length; k++) {
    if (bits[k] || !Number.isFinite(numbers[k])) continue;
    able++;
    low = Math.min(low, numbers[k]);
    high = Math.max(high, numbers[k]);
    if (best < 0 || (more ? numbers[k] > numbers[best] : numbers[k] < numbers[best])) best = k;
  }
  Object.assign(picture, { range: [low, high], able, best, log: low > 0 && high / low > 20 });
}

function paint() {
  const canvas = byId("live-map"), { x, y, numbers, bits, metric, range: [low, high], log } = picture;
  if (!numbers) return;
  const { more } = page.metrics[metric], image = new ImageData(x.length, y.length);
  const cannot = getComputedStyle(document.body).getPropertyValue("--live-cannot").trim(), grey = [1, 3, 5].map((at) => parseInt(cannot.slice(at, at + 2), 16));
  for (let row = 0; row < y.length; row++) for (let column = 0; column < x.length; column++) {
    const k = row * x.length + column, at = 4 * ((y.length - 1 - row) * x.length + column), value = numbers[k];
    const share = high > low ? (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)) : 1;
    const colour = bits[k] || !Number.isFinite(value) ? grey : colourAt(more ? share : 1 - share);
    image.data.set([...colour, 255], at);
  }
  const scaled = document.createElement("canvas");
  Object.assign(scaled, { width: x.length, height: y.length });
  scaled.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(scaled, 0, 0, canvas.width, canvas.height);
  const one = (k, mark) => {
    const inside = (at, size) => Math.max(14, Math.min(size - 14, at));
    const px = inside(((k % x.length) + 0.5) * (canvas.width / x.length), canvas.width), py = inside((y.length - 0.5 - Math.floor(k / x.length)) * (canvas.height / y.length), canvas.height);
    Object.assign(context, { font: "22px sans-serif", textAlign: "center", textBaseline: "middle", lineWidth: 4, strokeStyle: "#000", fillStyle: "#fff" });
    context.strokeText(mark, px, py);
    context.fillText(mark, px, py);
  };
  if (picture.best >= 0) one(picture.best, "☆");
  const near = (values, value) => values.reduce((best, other, i) => (Math.abs(Math.log(Math.abs(other / value))) < Math.abs(Math.log(Math.abs(values[best] / value))) ? i : best), 0);
  const here = near(y, design.values[picture.second]) * x.length + near(x, design.values[picture.first]);
  picture.at ??= here;
  one(here, "◉");
  if (picture.at !== here && document.activeElement === canvas) one(picture.at, "✛");
  const ends = (axis, values, leaf) => [values[0], values[Math.floor((values.length - 1) / 2)], values[values.length - 1]].map((value) => element("span", {}, leafAbout(leaf, value)));
  byId("live-map-x").replaceChildren(...ends("x", x, leaves[picture.first]));
  byId("live-map-y").replaceChildren(...ends("y", y, leaves[picture.second]).reverse());
  const [worse, better] = more ? [low, high] : [high, low];
  byId("live-ramp").replaceChildren(...(picture.able ? [element("span", {}, metricText(metric, worse)), element("i", { style: { background: `linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c})`).join(",")})` } }), element("span", {}, metricText(metric, better))] : []),
    element("span", { class: "key" }, element("i", { class: "cannot" }), "cannot run"));
}

/** A cell in words. */
function cellText(k) {
  const { x, y, numbers, bits, metric, first, second } = picture;
  const why = page.reasons.filter(([bit]) => bits[k] & bit).map(([, name]) => name.replaceAll("_", " ")).join(", ");
  const known = !(bits[k] & page.noStep);
  return `${leaves[first].name} ${leafAbout(leaves[first], x[k % x.length])}, ${leaves[second].name} ${leafAbout(leaves[second], y[Math.floor(k / x.length)])}: ${known ? metricText(metric, numbers[k]) : "no step"}${why ? ` (cannot run: ${why})` : ""}`;
}

function cellAt(event) {
  const box = byId("live-map").getBoundingClientRect(), { x, y } = picture;
  const column = Math.floor(((event.clientX - box.left) / box.width) * x.length), row = Math.floor(((box.bottom - event.clientY) / box.height) * y.length);
  return Math.max(0, Math.min(y.length - 1, row)) * x.length + Math.max(0, Math.min(x.length - 1, column));
}

function takeCell(k) {
  change([[picture.first, picture.x[k % picture.x.length]], [picture.second, picture.y[Math.floor(k / picture.x.length)]]]);
}

function listenToMap() {
  const canvas = byId("live-map"), say = (k) => tell(byId("live-map-cell"), cellText(k));
  canvas.addEventListener("mousemove", (event) => { if (picture.numbers) say(cellAt(event)); });
  canvas.addEventListener("mouseleave", () => tell(byId("live-map-cell"), ""));
  canvas.addEventListener("click", (event) => { if (picture.numbers) takeCell(cellAt(event)); });
  canvas.addEventListener("keydown", (event) => {
    if (!picture.numbers) return;
    const { x, y } = picture, jump = event.shiftKey ? 20 : 1, column = picture.at % x.length, row = Math.floor(picture.at / x.length);
    const moved = { ArrowRight: [jump, 0], ArrowLeft: [-jump, 0], ArrowUp: [0, jump], ArrowDown: [0, -jump] }[event.key];
    if (event.key === "Enter") takeCell(picture.at);
    else if (!moved) return;
    else {
      picture.at = Math.max(0, Math.min(y.length - 1, row + moved[1])) * x.length + Math.max(0, Math.min(x.length - 1, column + moved[0]));
      say(picture.at);
      paint();
    }
    event.preventDefault();
  });
  canvas.addEventListener("blur", paint);
}
