// Plots: axes, which the scatter of designs, the curve and the map share; and the scatter with its tools.

const scaling = (isLog) => (isLog ? Math.log10 : (value) => value);
const LETTER = 6.6;
/** Round numbers between two, for axes. */
function ticksOf(low, high, isLog, most) {
  if (isLog) {
    const wide = Math.log10(high / low), step = Math.max(1, Math.ceil(wide / (most + 1)));
    const times = wide > 3.5 ? [1] : wide > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    const powers = Array.from({ length: Math.ceil(wide) + 2 }, (_, i) => Math.floor(Math.log10(low)) + i);
    const values = powers.filter((power) => power % step === 0).flatMap((power) => times.map((time) => time * 10 ** power));
    const inside = values.filter((value) => value >= low * 0.999 && value <= high * 1.001);
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
/** An axis between two ends: where a value lies from 0 to 1, and its ticks with what they say. */
function axisOf(label, low, high, isLog, most, ticks) {
  const scaled = scaling(isLog), from = scaled(low), wide = scaled(high) - from;
  const round = () => ticksOf(low, high, isLog, most).map((value) => [value, tickText(value)]);
  return { label, share: (value) => (scaled(value) - from) / wide, ticks: ticks ?? round() };
}
/** Draw axes into an SVG of a width and a height; gives the box between them, and pixels of values. */
function drawAxes(svg, width, height, x, y) {
  const letters = Math.max(...y.ticks.map(([, said]) => said.length), 2), right = width - 14, top = 10, bottom = height - 42;
  const left = Math.round(Math.min(0.4 * width, 36 + LETTER * letters));
  const px = (value) => left + x.share(value) * (right - left), py = (value) => bottom - y.share(value) * (bottom - top);
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
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
  svg.replaceChildren(...across, ...up, write("axis", x.label, { x: (left + right) / 2, y: height - 6 }),
    write("axis", y.label, { transform: `translate(14 ${(top + bottom) / 2}) rotate(-90)` }));
  return { left, right, top, bottom, px, py };
}
/** Lay a canvas into the box of axes. */
function layCanvas(canvas, { left, right, top, bottom }) {
  const places = Object.entries({ left, top, width: right - left, height: bottom - top });
  for (const [name, value] of places) canvas.style[name] = `${value}px`;
}
/** Whether a place lies in a polygon: a line from there to the right crosses it an odd number of times. */
function isInside(path, x, y) {
  return path.reduce((is, [toX, toY], i) => {
    const [fromX, fromY] = path.at(i - 1);
    return toY > y !== fromY > y && x < ((fromX - toX) * (y - toY)) / (fromY - toY) + toX ? !is : is;
  }, false);
}
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

class Scatter {
  /** events: hover(row or -1), tap(row, event), select(rows, event), zoom(). */
  constructor(place, events) {
    Object.assign(this, { place, events, picked: null, marks: [], waiting: [], tool: "box", outline: element("path") });
    [this.axes, this.canvas, this.svg] = ["svg", "canvas", "svg"].map((tag) => element(tag));
    place.append(this.axes, this.canvas, this.svg);
    new ResizeObserver(() => this.change()).observe(place);
    this.listen();
  }
  /** Show designs of a view; what somebody has zoomed into stays, unless the axes are others. */
  show(view, rows, front, isNew) {
    const { x, y, xLog, yLog, colours: { palette, share } } = view, last = palette.length;
    const shadeOf = (row) => {
      const part = canRun(row) ? share(row) : NaN;
      return Number.isNaN(part) ? last : within(Math.floor(last * part), last);
    };
    const across = numbersOf(x, rows, scaling(xLog)), up = numbersOf(y, rows, scaling(yLog));
    const colours = [...palette, style("cannot")].map(pixelOf), shade = rows.map(shadeOf);
    Object.assign(this, { view, rows, front, points: { across, up, shade, colours } });
    if (isNew || !this.isZoomed) this.fit();
    this.change();
  }
  /** Show all points, with some room. */
  fit() {
    const fitting = (values, isLog) => {
      const [low, high] = values.length ? extent(values) : [0, 1];
      const room = high > low ? 0.04 * (high - low) : isLog ? 0.1 : Math.abs(low) * 0.1 || 1;
      return [low - room, high + room];
    };
    const { points: { across, up }, view: { xLog, yLog } } = this;
    Object.assign(this, { isZoomed: false, ends: { x: fitting(across, xLog), y: fitting(up, yLog) } });
  }
  /** Show what lies between two places, in shares of the axes. */
  zoom(from, to, { x, y } = this.ends) {
    const between = ([low, high], k) => [from[k], to[k]].map((share) => low + share * (high - low)).sort((a, b) => a - b);
    Object.assign(this, { isZoomed: true, ends: { x: between(x, 0), y: between(y, 1) } });
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
  async painted() {
    if (this.isStale) await new Promise((done) => { this.waiting.push(done); });
  }

  draw() {
    const { view, ends, svg, place: { clientWidth: width, clientHeight: height } } = this;
    const axis = (column, [from, to], isLog, most) => {
      const [low, high] = [from, to].map((end) => (isLog ? 10 ** end : end)), names = column.texts?.map((name, i) => [i, name]);
      const ticks = isNames(column) ? names.filter(([i]) => i >= low && i <= high) : undefined;
      return axisOf(heading(column), low, high, isLog, most, ticks);
    };
    const x = axis(view.x, ends.x, view.xLog, width / 90), y = axis(view.y, ends.y, view.yLog, height / 60);
    this.box = drawAxes(this.axes, width, height, x, y);
    layCanvas(this.canvas, this.box);
    this.paint(devicePixelRatio);
    this.layer = element("g", { class: "marks" });
    for (const [name, value] of Object.entries({ width, height })) svg.setAttribute(name, value);
    svg.replaceChildren(...this.frontPath(), this.layer, this.outline);
    this.mark(this.marks);
  }
  /** Pixels of scaled numbers, across and up. */
  places() {
    const { left, right, top, bottom } = this.box, { x: [low, high], y: [least, most] } = this.ends, { across, up } = this.points;
    return [across.map((value) => left + ((value - low) / (high - low)) * (right - left)),
      up.map((value) => bottom - ((value - least) / (most - least)) * (bottom - top))];
  }

  paint(ratio) {
    const { canvas, points, picked, rows, box: { left, right, top, bottom } } = this, isFew = rows.length < FEW;
    const key = [Math.round((right - left) * ratio), Math.round((bottom - top) * ratio), ratio * (isFew ? 4.5 : 3)];
    if (this.key !== key.join()) {
      [canvas.width, canvas.height] = key;
      [this.disks, this.key] = [new Disks(...key), key.join()];
    }
    const { disks } = this, [x, y] = this.places(), alpha = isFew ? 0.95 : 0.75;
    const placed = { ...points, x: x.map((at) => (at - left) * ratio), y: y.map((at) => (at - top) * ratio) };
    disks.pixels.fill(0);
    disks.lay(placed, picked ? 0.95 : alpha, (i) => !picked || picked[rows[i]]);
    if (picked) disks.lay(placed, isFew ? 0.35 : 0.15, (i) => !picked[rows[i]]);
    disks.finish(canvas.getContext("2d"));
  }
  /** Where designs are drawn that are in sight: [x, y, …rest]. */
  seen(designs) {
    const { view: { x, y }, box: { px, py } } = this;
    return designs.map(([row, ...rest]) => [px(number(x, row)), py(number(y, row)), ...rest]).filter((at) => this.isSeen(at));
  }
  isSeen([x, y]) {
    const { left, right, top, bottom } = this.box;
    return x >= left && x <= right && y >= top && y <= bottom;
  }
  /** The front as stairs, behind which all is beaten, and a ring around each of its designs. */
  frontPath() {
    const { front, view: { x, y, betterX }, box: { px, py, left, right, top, bottom } } = this;
    const stairs = front.map((row) => [px(number(x, row)), py(number(y, row))]).map(([toX, toY], i) =>
      (!i ? `M${toX} ${toY}` : betterX === "less" ? `H${toX}V${toY}` : `V${toY}H${toX}`));
    const clipPath = `polygon(${left}px ${top}px, ${right}px ${top}px, ${right}px ${bottom}px, ${left}px ${bottom}px) view-box`;
    const r = this.rows.length < FEW ? 6.5 : 5, rings = this.seen(front.map((row) => [row]));
    return [element("path", { class: "front", d: stairs.join(""), style: { clipPath } }),
      ...rings.map(([cx, cy]) => element("circle", { class: "front", cx, cy, r }))];
  }
  /** Mark designs: [row, letter, class]. */
  mark(marks) {
    this.marks = marks;
    this.layer?.replaceChildren(...this.seen(marks).flatMap(([cx, cy, letter, name]) => [
      element("circle", { class: name, cx, cy, r: 8 }), element("text", { class: name, x: cx + 9, y: cy - 5 }, letter)]));
  }

  listen() {
    const { svg, outline } = this, at = ({ clientX, clientY }) => {
      const box = svg.getBoundingClientRect();
      return [clientX - box.left, clientY - box.top];
    };
    const end = () => { this.drag = null; outline.setAttribute("d", ""); }, listen = (type, of) => svg.addEventListener(type, of);
    outline.setAttribute("class", "outline");
    listen("pointerdown", (event) => {
      if (event.button || !this.isSeen(at(event))) return;
      this.drag = { path: [at(event)], ends: this.ends };
      svg.setPointerCapture(event.pointerId);
    });
    listen("pointermove", (event) => {
      this.drag?.path.push(...event.getCoalescedEvents().map(at), at(event));
      if (this.drag) this.dragged(this.drag);
      else this.events.hover(this.nearest(at(event)));
    });
    listen("pointerup", (event) => {
      const path = this.drag?.path, row = this.nearest(at(event));
      end();
      if (path?.some(([x, y]) => Math.hypot(x - path[0][0], y - path[0][1]) > STILL)) this.dropped([...path, at(event)], event);
      else if (path && row >= 0) this.events.tap(row, event);
    });
    listen("pointercancel", end);
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const times = Math.exp(event.deltaY / 600), middle = this.shareOf(at(event));
      this.zoom(middle.map((share) => share * (1 - times)), middle.map((share) => share + (1 - share) * times));
    }, { passive: false });
  }
  /** Where a place lies between the ends of the axes. */
  shareOf([x, y]) {
    const { left, right, top, bottom } = this.box;
    return [(x - left) / (right - left), (bottom - y) / (bottom - top)];
  }
  /** Corners of what is enclosed. */
  enclosed(path) {
    const [[x, y], [toX, toY]] = [path[0], path.at(-1)];
    return this.tool === "lasso" ? path : [[x, y], [toX, y], [toX, toY], [x, toY]];
  }

  dragged({ path, ends }) {
    const [from, to] = [path[0], path.at(-1)].map((place) => this.shareOf(place)), moved = from.map((share, k) => share - to[k]);
    if (this.tool === "pan") this.zoom(moved, moved.map((share) => share + 1), ends);
    else this.outline.setAttribute("d", `M${this.enclosed(path).map((place) => place.join(" ")).join("L")}Z`);
  }

  dropped(path, event) {
    const polygon = this.enclosed(path), [xs, ys] = this.places();
    const [[left, right], [top, bottom]] = [0, 1].map((k) => extent(polygon.map((place) => place[k])));
    const isIn = (x, y) => x >= left && x <= right && y >= top && y <= bottom && isInside(polygon, x, y);
    if (this.tool === "zoom") this.zoom(this.shareOf(path[0]), this.shareOf(path.at(-1)));
    else if (this.tool !== "pan") this.events.select(Array.from(this.rows).filter((_, i) => isIn(xs[i], ys[i])), event);
  }
  /** The design nearest to a place, or -1 where none is near. */
  nearest([x, y]) {
    const [xs, ys] = this.places();
    let nearest = -1, least = REACH;
    for (let i = 0; i < xs.length; i++) {
      const away = Math.hypot(xs[i] - x, ys[i] - y);
      if (away < least) [nearest, least] = [this.rows[i], away];
    }
    return nearest;
  }
  /** The plot as a picture: axes, points, and what lies over them, in the style of the page. */
  async saved() {
    const { box: { left, top }, place: { clientWidth: width, clientHeight: height } } = this, ratio = devicePixelRatio;
    const pictures = [this.axes, this.svg].map((svg) => Object.assign(new Image(), { svg: svg.cloneNode(true) }));
    for (const picture of pictures) {
      picture.svg.prepend(document.querySelector("style").cloneNode(true));
      picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(picture.svg))}`;
      await picture.decode();
    }
    const canvas = element("canvas", { width: width * ratio, height: height * ratio }), context = canvas.getContext("2d");
    context.drawImage(pictures[0], 0, 0, canvas.width, canvas.height);
    context.drawImage(this.canvas, left * ratio, top * ratio);
    context.drawImage(pictures[1], 0, 0, canvas.width, canvas.height);
    return new Promise((done) => { canvas.toBlob(done); });
  }
}
/** What the colours mean. */
function drawLegend(place, column, { palette, texts, ends, isLog }, isAnyUnable) {
  const key = (...content) => element("span", { class: "key" }, ...content);
  const dot = (background) => element("i", { style: { background } });
  const [low, high] = (ends ?? []).map((end) => digits(isLog ? 10 ** end : end));
  const bar = () => key(low, element("span", { class: "ramp", style: { background: GRADIENT } }), high + (isLog ? " (log)" : ""));
  place.replaceChildren(element("strong", {}, heading(column)),
    ...(texts?.map((name, i) => key(dot(palette[i]), name || "can run")) ?? [bar()]),
    ...(isAnyUnable ? [key(dot("var(--cannot)"), "cannot run")] : []));
}
