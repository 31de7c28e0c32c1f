// Plots: axes, which the scatter of designs, the curve and the map share; and the scatter with its tools.

/** Round numbers between two, for axes. */
function ticksOf(low, high, isLog, most) {
  if (isLog) {
    const from = Math.floor(Math.log10(low)), wide = Math.log10(high / low);
    const step = Math.max(1, Math.ceil(wide / (most + 1)));
    const times = wide > 3.5 ? [1] : wide > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    const powers = Array.from({ length: Math.ceil(wide) + 2 }, (_, i) => from + i).filter((power) => power % step === 0);
    const values = powers.flatMap((power) => times.map((time) => time * 10 ** power))
      .filter((value) => value >= low * 0.999 && value <= high * 1.001);
    if (values.length > 1) return values;
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / most || 1));
  const step = power * ([1, 2, 5, 10].find((time) => (high - low) / (time * power) <= most) ?? 10);
  const first = Math.ceil(low / step), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A round number in full: positions can be read from it. */
const tickText = (value) => (Math.abs(value) < 1e7 && (!value || Math.abs(value) >= 1e-4)
  ? value.toLocaleString("en", { maximumSignificantDigits: 6 }) : String(Number(value.toPrecision(6))));

const scaling = (isLog) => (isLog ? Math.log10 : Number);
const LETTER = 6.6;

/** An axis between two ends: where a value lies from 0 to 1, and its ticks with what they say. */
function axisOf(label, low, high, isLog, most, ticks = ticksOf(low, high, isLog, most).map((value) => [value, tickText(value)])) {
  const scaled = scaling(isLog), from = scaled(low), wide = scaled(high) - from;
  return { label, share: (value) => (scaled(value) - from) / wide, ticks };
}

/** Draw axes into an SVG of a width and a height; gives the box between them, and pixels of values. */
function drawAxes(svg, width, height, x, y) {
  const letters = Math.max(...y.ticks.map(([, said]) => said.length), 2);
  const box = { left: Math.round(Math.min(0.4 * width, 36 + LETTER * letters)), right: width - 14, top: 10, bottom: height - 42 };
  const px = (value) => box.left + x.share(value) * (box.right - box.left);
  const py = (value) => box.bottom - y.share(value) * (box.bottom - box.top);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  let end = -Infinity;
  for (const [value, said] of x.ticks) {
    const at = px(value), half = 0.5 * LETTER * said.length;
    svg.append(element("line", { class: "grid", x1: at, x2: at, y1: box.top, y2: box.bottom }));
    if (at - half < end) continue;
    end = at + half + LETTER;
    svg.append(element("text", { class: "x tick", x: at, y: box.bottom + 16, "text-anchor": "middle" }, said));
  }
  for (const [value, said] of y.ticks) {
    const at = py(value);
    svg.append(element("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }),
      element("text", { class: "y tick", x: box.left - 6, y: at, dy: 4, "text-anchor": "end" }, said));
  }
  svg.append(element("text", { class: "axis", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    element("text", { class: "axis", transform: `translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
  return { ...box, px, py };
}

// --- which designs a pointer means ------------------------------------------------------------------------

/** Pixels from the pointer within which a design is meant, and that it moves before it drags. */
const REACH = 14, STILL = 3;

/** Whether a place lies in a polygon: a line from there to the right crosses it an odd number of times. */
function isInside(path, x, y) {
  let is = false;
  path.forEach(([toX, toY], i) => {
    const [fromX, fromY] = path.at(i - 1);
    if (toY > y !== fromY > y && x < ((fromX - toX) * (y - toY)) / (fromY - toY) + toX) is = !is;
  });
  return is;
}

const cornersOf = ([[x, y], [toX, toY]]) => [[x, y], [toX, y], [toX, toY], [x, toY]];

/** What is selected after one more choice: Shift adds, Ctrl keeps what both hold, both take away. */
function combined({ shiftKey, ctrlKey, metaKey }, before, rows) {
  const had = new Set(before), has = new Set(rows), isCtrl = ctrlKey || metaKey;
  if (isCtrl) return before.filter((row) => has.has(row) !== shiftKey);
  return shiftKey ? [...before, ...rows.filter((row) => !had.has(row))] : rows;
}

// --- the scatter ------------------------------------------------------------------------------------------

/** Designs among which each is seen by itself: fewer are drawn larger and less transparent. */
const FEW = 500;

class Scatter {
  /** events: hover(row or -1), tap(row, event), select(rows, event), zoom(). */
  constructor(place, events) {
    Object.assign(this, { place, events, picked: null, marks: [], front: [], waiting: [], tool: "box" });
    [this.axes, this.canvas, this.svg] = ["svg", "canvas", "svg"].map((tag) => element(tag));
    place.append(this.axes, this.canvas, this.svg);
    new ResizeObserver(() => this.change()).observe(place);
    this.listen();
  }

  /** Show designs of a view; what somebody has zoomed into stays, unless the axes are others. */
  show(view, rows, front, isNew) {
    const { x, y, xLog, yLog, colours: { palette, share } } = view;
    const last = palette.length, shadeOf = (row) => {
      const part = canRun(row) ? share(row) : NaN;
      return Number.isNaN(part) ? last : Math.max(0, Math.min(last - 1, Math.floor(last * part)));
    };
    this.points = { across: numbersOf(x, rows, scaling(xLog)), up: numbersOf(y, rows, scaling(yLog)),
      shade: Uint16Array.from(rows, shadeOf), colours: [...palette, style("cannot")].map(pixelOf) };
    Object.assign(this, { view, rows, front });
    if (isNew || !this.isZoomed) this.fit();
    this.change();
  }

  /** Show all points, with some room. */
  fit() {
    const fitting = (values, isLog) => {
      let [low, high] = extent(values);
      if (!(low <= high)) [low, high] = [0, 1];
      const room = high > low ? 0.04 * (high - low) : isLog ? 0.1 : Math.abs(low) * 0.1 || 1;
      return [low - room, high + room];
    };
    this.ends = { x: fitting(this.points.across, this.view.xLog), y: fitting(this.points.up, this.view.yLog) };
    this.isZoomed = false;
  }

  /** Show other ends of the axes, in logarithms where they are logarithmic. */
  zoom(ends) {
    Object.assign(this, { ends, isZoomed: true });
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
    if (this.isStale) return;
    this.isStale = true;
    requestAnimationFrame(() => {
      this.isStale = false;
      if (this.view) this.draw();
      for (const done of this.waiting.splice(0)) setTimeout(done);
    });
  }

  /** Waits until the frame that shows the last change is done. */
  async painted() {
    if (this.isStale) await new Promise((done) => { this.waiting.push(done); });
  }

  draw() {
    const { view, svg, canvas, ends } = this, { clientWidth: width, clientHeight: height } = this.place;
    const axis = (way, isLog, most) => {
      const [low, high] = ends[way].map((end) => (isLog ? 10 ** end : end)), column = view[way];
      const names = isNames(column) ? column.texts.map((name, i) => [i, name]).filter(([i]) => i >= low && i <= high) : undefined;
      return axisOf(heading(column), low, high, isLog, most, names);
    };
    this.box = drawAxes(this.axes, width, height, axis("x", view.xLog, width / 90), axis("y", view.yLog, height / 60));
    const { left, top, right, bottom } = this.box, ratio = devicePixelRatio;
    Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
    this.paint(Math.round((right - left) * ratio), Math.round((bottom - top) * ratio), ratio);
    this.layer = element("g", { class: "marks" });
    this.outline = element("path", { class: "outline" });
    svg.replaceChildren(...this.frontPath(), this.layer, this.outline);
    this.mark(this.marks);
  }

  /** Pixels of a scaled number along a way, in the box. */
  along(way) {
    const [low, high] = this.ends[way], { left, right, top, bottom } = this.box;
    return way === "x" ? (value) => left + ((value - low) / (high - low)) * (right - left)
      : (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  }

  paint(width, height, ratio) {
    const { canvas, points, picked, rows } = this, isFew = rows.length < FEW;
    const key = [width, height, ratio * (isFew ? 4.5 : 3)];
    if (this.key !== key.join()) {
      Object.assign(canvas, { width, height });
      [this.disks, this.key] = [new Disks(...key), key.join()];
    }
    const { disks, box: { left, top } } = this, toX = this.along("x"), toY = this.along("y");
    points.x = points.across.map((value) => (toX(value) - left) * ratio);
    points.y = points.up.map((value) => (toY(value) - top) * ratio);
    disks.pixels.fill(0);
    if (picked) {
      disks.lay(points, 0.95, (i) => picked[rows[i]]);
      disks.lay(points, isFew ? 0.35 : 0.15, (i) => !picked[rows[i]]);
    } else disks.lay(points, isFew ? 0.95 : 0.75, () => true);
    disks.finish(canvas.getContext("2d"));
  }

  /** Where a design is drawn. */
  placeOf(row) {
    const { x, y } = this.view;
    return [this.box.px(number(x, row)), this.box.py(number(y, row))];
  }

  isSeen([x, y]) {
    const { left, right, top, bottom } = this.box;
    return x >= left && x <= right && y >= top && y <= bottom;
  }

  /** The front as stairs, behind which all is beaten, and a ring around each of its designs. */
  frontPath() {
    const places = this.front.map((row) => this.placeOf(row)), { left, right, top, bottom } = this.box;
    const clip = `polygon(${cornersOf([[left, top], [right, bottom]]).map((corner) => corner.map((at) => `${at}px`).join(" "))}) view-box`;
    const stairs = places.map(([x, y], i) => (!i ? `M${x} ${y}` : this.view.betterX === "less" ? `H${x}V${y}` : `V${y}H${x}`));
    const rings = places.filter((place) => this.isSeen(place));
    return [element("path", { class: "front", d: stairs.join(""), style: { clipPath: clip } }),
      ...rings.map(([cx, cy]) => element("circle", { class: "front", cx, cy, r: this.rows.length < FEW ? 6.5 : 5 }))];
  }

  /** Mark designs: [row, letter, class]. */
  mark(marks) {
    this.marks = marks;
    if (!this.layer) return;
    const seen = marks.map(([row, ...rest]) => [this.placeOf(row), ...rest]).filter(([place]) => this.isSeen(place));
    this.layer.replaceChildren(...seen.flatMap(([[cx, cy], letter, name]) => [
      element("circle", { class: name, cx, cy, r: 8 }), element("text", { class: name, x: cx + 9, y: cy - 5 }, letter)]));
  }

  // --- pointer

  listen() {
    const { svg } = this, at = ({ clientX, clientY }) => {
      const box = svg.getBoundingClientRect();
      return [clientX - box.left, clientY - box.top];
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.button || !this.isSeen(at(event))) return;
      this.drag = { path: [at(event)], ends: this.ends };
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!this.drag) {
        this.events.hover(this.nearest(at(event)));
        return;
      }
      this.drag.path.push(...event.getCoalescedEvents().map(at), at(event));
      this.dragged();
    });
    svg.addEventListener("pointerup", (event) => {
      const { path } = this.drag ?? {}, to = at(event);
      if (!path) return;
      const isMoved = path.some(([x, y]) => Math.hypot(x - path[0][0], y - path[0][1]) > STILL);
      this.drag = null;
      this.outline.setAttribute("d", "");
      if (isMoved) this.dropped([...path, to], event);
      else if (this.nearest(to) >= 0) this.events.tap(this.nearest(to), event);
    });
    svg.addEventListener("pointercancel", () => {
      this.drag = null;
      this.outline.setAttribute("d", "");
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const times = Math.exp(event.deltaY / 600), middle = at(event).map((_, k) => this.shareOf(at(event))[k]);
      const ends = ([low, high], share) => {
        const fixed = low + share * (high - low);
        return [fixed + (low - fixed) * times, fixed + (high - fixed) * times];
      };
      this.zoom({ x: ends(this.ends.x, middle[0]), y: ends(this.ends.y, middle[1]) });
    }, { passive: false });
  }

  /** Where a place lies between the ends of the axes. */
  shareOf([x, y]) {
    const { left, right, top, bottom } = this.box;
    return [(x - left) / (right - left), (bottom - y) / (bottom - top)];
  }

  /** Both axes between two places. */
  endsBetween(from, to) {
    const shares = [this.shareOf(from), this.shareOf(to)];
    const ends = (k, [low, high]) => shares.map((share) => low + share[k] * (high - low)).sort((a, b) => a - b);
    return { x: ends(0, this.ends.x), y: ends(1, this.ends.y) };
  }

  dragged() {
    const { path, ends } = this.drag, from = path[0], to = path[path.length - 1];
    if (this.tool === "pan") {
      this.ends = ends;
      const { left, right, top, bottom } = this.box, [x, y] = [from[0] - to[0], from[1] - to[1]];
      this.zoom(this.endsBetween([left + x, bottom + y], [right + x, top + y]));
      return;
    }
    const outline = this.tool === "lasso" ? path : cornersOf([from, to]);
    this.outline.setAttribute("d", `M${outline.map((place) => place.join(" ")).join("L")}Z`);
  }

  dropped(path, event) {
    if (this.tool === "pan") return;
    const ends = [path[0], path[path.length - 1]];
    if (this.tool === "zoom") this.zoom(this.endsBetween(...ends));
    else this.events.select(this.within(this.tool === "lasso" ? path : cornersOf(ends)), event);
  }

  /** Rows of the designs in a polygon. */
  within(path) {
    const [left, right] = extent(path.map(([x]) => x)), [top, bottom] = extent(path.map(([, y]) => y));
    const toX = this.along("x"), toY = this.along("y"), { across, up } = this.points;
    return Array.from(this.rows).filter((_, i) => {
      const x = toX(across[i]), y = toY(up[i]);
      return x >= left && x <= right && y >= top && y <= bottom && isInside(path, x, y);
    });
  }

  /** The design nearest to a place, or -1 where none is near. */
  nearest([x, y]) {
    const toX = this.along("x"), toY = this.along("y"), { across, up } = this.points;
    let nearest = -1, least = REACH;
    for (let i = 0; i < across.length; i++) {
      const away = Math.hypot(toX(across[i]) - x, toY(up[i]) - y);
      if (away < least) [nearest, least] = [this.rows[i], away];
    }
    return nearest;
  }

  /** The plot as a picture: axes, points, and what lies over them, with the colours that they have. */
  async saved() {
    const { clientWidth: width, clientHeight: height } = this.place, ratio = devicePixelRatio;
    const canvas = element("canvas", { width: width * ratio, height: height * ratio }), context = canvas.getContext("2d");
    const layer = async (svg) => {
      const copied = svg.cloneNode(true), looks = ["fill", "stroke", "strokeWidth", "font", "clipPath"];
      [...svg.children].forEach((node, i) => looks.forEach((look) => { copied.children[i].style[look] = getComputedStyle(node)[look]; }));
      for (const [name, value] of Object.entries({ width, height, xmlns: "http://www.w3.org/2000/svg" })) copied.setAttribute(name, value);
      const picture = new Image();
      picture.src = `data:image/svg+xml,${encodeURIComponent(copied.outerHTML)}`;
      await picture.decode();
      context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    };
    await layer(this.axes);
    context.drawImage(this.canvas, this.box.left * ratio, this.box.top * ratio);
    await layer(this.svg);
    return new Promise((done) => { canvas.toBlob(done); });
  }
}

/** What the colours mean. */
function drawLegend(place, column, { palette, names, ends, isLog }, isAnyUnable) {
  const dot = (colour) => element("i", { style: { background: colour } });
  const key = (...content) => element("span", { class: "key" }, ...content);
  const bar = element("span", { class: "ramp", style: { background: gradient } });
  const [low, high] = (ends ?? []).map((end) => digits(isLog ? 10 ** end : end));
  place.replaceChildren(element("strong", {}, heading(column)),
    ...(names ? names.map((name, i) => key(dot(palette[i]), name || "can run")) : [key(low, bar, high + (isLog ? " (log)" : ""))]),
    ...(isAnyUnable ? [key(dot("var(--cannot)"), "cannot run")] : []));
}
const gradient = `linear-gradient(to right, ${SHADES.filter((_, i) => i % 16 === 0).join(", ")})`;
