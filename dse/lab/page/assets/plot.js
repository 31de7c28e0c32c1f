// Plots: axes, which the scatter of designs, the curve and the map share; and the scatter with its tools.

const scaling = (isLog) => (isLog ? Math.log10 : (value) => value);
const LETTER = 6.6;
/** Round numbers between two, for axes. */
function ticksOf(low, high, isLog, most) {
  if (isLog) {
    const wide = Math.log10(high / low), step = Math.max(1, Math.ceil(wide / (most + 1)));
    const times = wide > 3.5 ? [1] : wide > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    const powers = Array.from({ length: Math.ceil(wide) + 2 }, (_, i) => Math.floor(Math.log10(low)) + i);
    const inside = powers.filter((power) => power % step === 0)
      .flatMap((power) => times.map((time) => time * 10 ** power))
      .filter((value) => value >= low * 0.999 && value <= high * 1.001);
    if (inside.length > 1) return inside;
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / most || 1));
  const step = power * ([1, 2, 5, 10].find((time) => (high - low) / (time * power) <= most) ?? 10);
  const first = Math.ceil(low / step), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
/** A round number in full, so that positions can be read from it. */
function tickText(value) {
  const isPlain = !value || (Math.abs(value) < 1e7 && Math.abs(value) >= 1e-4);
  return isPlain ? value.toLocaleString("en", { maximumSignificantDigits: 6 }) : short(value);
}
/** What an axis shows beyond its ends, as a share of what lies between them. */
const roomOf = (low, high, share, isLog) =>
  (high > low ? share * (high - low) : isLog ? 0.1 : Math.abs(low) * 0.1 || 1);
/** An axis between two ends: where a value lies from 0 to 1, and its ticks with what they say. */
function axisOf(label, low, high, isLog, most, ticks) {
  const scaled = scaling(isLog), from = scaled(low), wide = scaled(high) - from;
  const round = () => ticksOf(low, high, isLog, most).map((value) => [value, tickText(value)]);
  return { label, share: (value) => (scaled(value) - from) / wide, ticks: ticks ?? round() };
}
/** Draw axes into an SVG of a width and a height; gives the box between them, and pixels of values. */
function drawAxes(svg, width, height, x, y) {
  const letters = Math.max(...y.ticks.map(([, said]) => said.length), 2), top = 10, bottom = height - 42;
  const left = Math.round(Math.min(0.4 * width, 36 + LETTER * letters)), right = width - 14;
  const px = (value) => left + x.share(value) * (right - left);
  const py = (value) => bottom - y.share(value) * (bottom - top);
  const line = (x1, x2, y1, y2) => element("line", { class: "grid", x1, x2, y1, y2 });
  const write = (name, said, place) => element("text", { class: name, "text-anchor": "middle", ...place }, said);
  let end = -Infinity;
  const across = x.ticks.flatMap(([value, said]) => {
    const at = px(value), half = 0.5 * LETTER * said.length, isFree = at - half >= end;
    if (isFree) end = at + half + LETTER;
    return [line(at, at, top, bottom), ...(isFree ? [write("x tick", said, { x: at, y: bottom + 16 })] : [])];
  });
  const up = y.ticks.flatMap(([value, said]) => [line(left, right, py(value), py(value)),
    write("y tick", said, { x: left - 6, y: py(value), dy: 4, "text-anchor": "end" })]);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  Object.assign(svg.style, { width: `${width}px`, height: `${height}px` });
  svg.replaceChildren(...across, ...up, write("axis", x.label, { x: (left + right) / 2, y: height - 6 }),
    write("axis", y.label, { transform: `translate(14 ${(top + bottom) / 2}) rotate(-90)` }));
  return { left, right, top, bottom, px, py };
}
/** Lay a node into a box. */
function lay(node, box) { for (const [name, value] of Object.entries(box)) node.style[name] = `${value}px`; }
/** What is selected after one more choice: Shift adds, Ctrl keeps what both hold, both take away. */
function combined({ shiftKey, ctrlKey, metaKey }, before, rows) {
  const had = new Set(before), has = new Set(rows);
  if (ctrlKey || metaKey) return before.filter((row) => has.has(row) !== shiftKey);
  return shiftKey ? [...before, ...rows.filter((row) => !had.has(row))] : rows;
}
/** Designs among which each is seen by itself: fewer are drawn larger and less transparent. */
const FEW = 500;
/** Pixels from the pointer within which a design is meant, and that it moves before it drags. */
const REACH = 14, STILL = 3;
/** Axes, designs on a canvas in their box, and over it, in pixels of the box, the front, marks and what is dragged. */
class Scatter {
  /** events: hover(row or -1), tap(row, event), select(rows, event), zoom(). */
  constructor(place, events) {
    Object.assign(this, { place, events, picked: null, marks: [], waiting: [], tool: "box" });
    [this.axes, this.canvas, this.svg] = ["svg", "canvas", "svg"].map((tag) => element(tag));
    [this.layer, this.outline] = [element("g", { class: "marks" }), element("path", { class: "outline" })];
    place.append(this.axes, this.canvas, this.svg);
    new ResizeObserver(() => this.change()).observe(place);
    this.listen();
  }
  /** Show designs of a view; what somebody has zoomed into stays, unless the axes are others. */
  show(view, rows, front, isNew) {
    const { x, y, xLog, yLog, colours: { palette, share } } = view, last = palette.length;
    const shade = rows.map((row) => {
      const part = canRun(row) ? share(row) : NaN;
      return Number.isNaN(part) ? last : within(Math.floor(last * part), last);
    });
    const [across, up] = [numbersOf(x, rows, scaling(xLog)), numbersOf(y, rows, scaling(yLog))];
    const colours = [...palette, style("cannot")].map(pixelOf);
    Object.assign(this, { view, rows, front, isFew: rows.length < FEW, points: { across, up, shade, colours } });
    if (isNew || !this.isZoomed) this.fit();
    this.change();
  }
  /** Show all points, with some room. */
  fit() {
    const { points: { across, up }, view: { xLog, yLog } } = this;
    this.ends = [[across, xLog], [up, yLog]].map(([values, isLog]) => {
      const [low, high] = values.length ? extent(values) : [0, 1], room = roomOf(low, high, 0.04, isLog);
      return [low - room, high + room];
    });
    this.isZoomed = false;
  }
  /** Show what lies between two places, in shares of the axes. */
  zoom(from, to, ends = this.ends) {
    this.ends = ends.map(([low, high], k) =>
      [from[k], to[k]].map((share) => low + share * (high - low)).sort((a, b) => a - b));
    this.isZoomed = true;
    this.change();
    this.events.zoom();
  }
  /** Select rows; the others fade. */
  select(rows) {
    this.picked = rows.length ? new Uint8Array(size) : null;
    for (const row of rows) this.picked[row] = 1;
    this.change();
  }
  /** Draw in the next frame. */
  change() {
    if (!this.isStale) requestAnimationFrame(() => {
      this.isStale = false;
      if (this.view) this.draw();
      for (const done of this.waiting.splice(0)) setTimeout(done);
    });
    this.isStale = true;
  }
  /** Waits until the frame that shows the last change is done. */
  async painted() { if (this.isStale) await new Promise((done) => { this.waiting.push(done); }); }
  draw() {
    const { view: { x, y, xLog, yLog, betterX }, place: { clientWidth, clientHeight }, points: { across, up } } = this;
    const ways = [[x, xLog, clientWidth / 90], [y, yLog, clientHeight / 60]];
    const [horizontal, vertical] = ways.map(([column, isLog, most], k) => {
      const [low, high] = this.ends[k].map((end) => (isLog ? 10 ** end : end));
      const names = column.texts?.map((name, i) => [i, name]).filter(([i]) => i >= low && i <= high);
      return axisOf(heading(column), low, high, isLog, most, isNames(column) ? names : undefined);
    });
    const { left, right, top, bottom } = drawAxes(this.axes, clientWidth, clientHeight, horizontal, vertical);
    const [width, height] = [right - left, bottom - top], [[low, high], [least, most]] = this.ends;
    Object.assign(this, { box: { left, top, width, height } });
    for (const node of [this.canvas, this.svg]) lay(node, this.box);
    this.xs = across.map((value) => ((value - low) / (high - low)) * width);
    this.ys = up.map((value) => ((most - value) / (most - least)) * height);
    this.placeOf = (row) => [horizontal.share(number(x, row)) * width, (1 - vertical.share(number(y, row))) * height];
    this.paint(devicePixelRatio);
    // The front as stairs, behind which all is beaten, and a ring around each of its designs.
    const front = this.front.map(this.placeOf), r = this.isFew ? 6.5 : 5;
    const stair = (x, y) => (betterX === "less" ? `H${x}V${y}` : `V${y}H${x}`);
    const stairs = front.map(([x, y], i) => (i ? stair(x, y) : `M${x} ${y}`));
    const rings = front.map(([cx, cy]) => element("circle", { class: "front", cx, cy, r }));
    const path = element("path", { class: "front", d: stairs.join("") });
    this.svg.replaceChildren(path, ...rings, this.layer, this.outline);
    this.mark(this.marks);
  }
  paint(ratio) {
    const { canvas, picked, rows, isFew, box: { width, height } } = this, toPixels = (at) => at * ratio;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const disks = new Disks(canvas.width, canvas.height, ratio * (isFew ? 4.5 : 3));
    const points = { ...this.points, x: this.xs.map(toPixels), y: this.ys.map(toPixels) };
    disks.lay(points, picked || isFew ? 0.95 : 0.75, (i) => !picked || picked[rows[i]]);
    if (picked) disks.lay(points, isFew ? 0.35 : 0.15, (i) => !picked[rows[i]]);
    disks.finish(canvas.getContext("2d"));
  }
  /** Mark designs: [row, letter, class]. */
  mark(marks) {
    this.marks = marks;
    this.layer.replaceChildren(...marks.flatMap(([row, letter, name]) => {
      const [cx, cy] = this.placeOf(row), circle = element("circle", { class: name, cx, cy, r: 8 });
      return [circle, element("text", { class: name, x: cx + 9, y: cy - 5 }, letter)];
    }));
  }
  listen() {
    const at = ({ clientX, clientY }) => {
      const { left, top } = this.svg.getBoundingClientRect();
      return [clientX - left, clientY - top];
    };
    const end = () => { this.drag = null; this.outline.setAttribute("d", ""); };
    const listen = (type, listener) => this.svg.addEventListener(type, listener, { passive: false });
    listen("pointerdown", (event) => {
      if (event.button) return;
      this.drag = { path: [at(event)], ends: this.ends };
      this.svg.setPointerCapture(event.pointerId);
    });
    listen("pointermove", (event) => {
      this.drag?.path.push(...event.getCoalescedEvents().map(at), at(event));
      if (this.drag) this.dragged(this.drag);
      else this.events.hover(this.nearest(at(event)));
    });
    listen("pointerup", (event) => {
      const path = this.drag?.path, row = this.nearest(at(event));
      const isMoved = path?.some(([x, y]) => Math.hypot(x - path[0][0], y - path[0][1]) > STILL);
      end();
      if (isMoved) this.dropped([...path, at(event)], event);
      else if (path && row >= 0) this.events.tap(row, event);
    });
    listen("pointercancel", end);
    listen("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const times = Math.exp(event.deltaY / 600), middle = this.shareOf(at(event));
      this.zoom(middle.map((share) => share * (1 - times)), middle.map((share) => share + (1 - share) * times));
    });
  }
  /** Where a place lies between the ends of the axes. */
  shareOf([x, y]) { return [x / this.box.width, 1 - y / this.box.height]; }
  /** What a drag encloses, as a path. */
  enclosed(path) {
    const [[x, y], [toX, toY]] = [path[0], path.at(-1)];
    if (this.tool === "lasso") return `M${path.map((place) => place.join(" ")).join("L")}Z`;
    return `M${x} ${y}H${toX}V${toY}H${x}Z`;
  }
  dragged({ path, ends }) {
    const from = this.shareOf(path[0]), to = this.shareOf(path.at(-1)), moved = from.map((share, k) => share - to[k]);
    if (this.tool === "pan") this.zoom(moved, moved.map((share) => share + 1), ends);
    else this.outline.setAttribute("d", this.enclosed(path));
  }
  dropped(path, event) {
    const outline = new Path2D(this.enclosed(path)), context = this.canvas.getContext("2d");
    const isIn = (_, i) => context.isPointInPath(outline, this.xs[i], this.ys[i], "evenodd");
    if (this.tool === "zoom") this.zoom(this.shareOf(path[0]), this.shareOf(path.at(-1)));
    else if (this.tool !== "pan") this.events.select(Array.from(this.rows).filter(isIn), event);
  }
  /** The design nearest to a place, or -1 where none is near. */
  nearest([x, y]) {
    let nearest = -1, least = REACH;
    this.rows.forEach((row, i) => {
      const away = Math.hypot(this.xs[i] - x, this.ys[i] - y);
      if (away < least) [nearest, least] = [row, away];
    });
    return nearest;
  }
  /** The plot as a picture: axes, points, and what lies over them, in the style of the page. */
  async saved() {
    const { axes, svg, box: { left, top }, place: { clientWidth, clientHeight } } = this, canvas = element("canvas");
    Object.assign(canvas, { width: clientWidth * devicePixelRatio, height: clientHeight * devicePixelRatio });
    const context = canvas.getContext("2d"), draw = async (layer, ...place) => {
      const picture = new Image(), copied = layer.cloneNode(true);
      copied.prepend(document.querySelector("style").cloneNode(true));
      picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copied))}`;
      await picture.decode();
      context.drawImage(picture, ...place);
    };
    context.scale(devicePixelRatio, devicePixelRatio);
    await draw(axes, 0, 0);
    context.drawImage(this.canvas, left, top, this.box.width, this.box.height);
    await draw(svg, left, top);
    return new Promise((done) => { canvas.toBlob(done); });
  }
}
/** What the colours mean. */
function drawLegend(place, column, { palette, texts, ends, isLog }, isAnyUnable) {
  const key = (...content) => element("span", { class: "key" }, ...content);
  const dot = (background) => element("i", { style: { background } });
  const [low, high] = (ends ?? []).map((end) => digits(isLog ? 10 ** end : end));
  const ramp = element("span", { class: "ramp", style: { background: GRADIENT } });
  place.replaceChildren(element("strong", {}, heading(column)),
    ...(texts ?? [""]).map((name, i) => (texts ? key(dot(palette[i]), name || "can run") : key(low, ramp, high))),
    ...(isAnyUnable ? [key(dot("var(--cannot)"), "cannot run")] : []));
}
