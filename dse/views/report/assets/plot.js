// The plot: Bokeh draws it on a canvas, but for the points. Rebuilt when its axes change; constraints only move data.

const NAMES = ["#0072b2", "#e08a00", "#009e73", "#cc6ba4", "#56b4e9", "#d55e00", "#8b5fbf", "#8c8c00", "#7a4b2a", "#00a5a5"];
const RAMP = ["#440154", "#482878", "#3e4a89", "#31688e", "#26838e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

/** A colour of the page's style. */
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** So many colours, evenly along a ramp that readers without red or green cones see as one too. */
function ramp(count) {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return Array.from({ length: count }, (_, i) => {
    const at = (count > 1 ? i / (count - 1) : 0.3) * (RAMP.length - 1) * 0.96;
    const from = Math.floor(at), low = parts(RAMP[from]), high = parts(RAMP[Math.min(from + 1, RAMP.length - 1)]);
    const mixed = low.map((part, k) => Math.round(part + (high[k] - part) * (at - from)));
    return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  });
}

/** How a column is told by colour: a palette, and the number that stands for each design. */
function colouring(column, log, rows) {
  if (column.texts && column.texts.length <= 24) {
    const palette = isNames(column) && column.texts.length <= NAMES.length
      ? NAMES.slice(0, column.texts.length) : ramp(column.texts.length);
    return { palette, low: -0.5, high: palette.length - 0.5, value: (row) => stored(column, row), names: true };
  }
  const scaled = log ? (row) => Math.log10(number(column, row)) : (row) => number(column, row);
  let low = Infinity, high = -Infinity;
  for (const row of rows) {
    const value = scaled(row);
    if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  if (!(low < high)) [low, high] = Number.isFinite(low) ? [low - 1, low + 1] : [0, 1];
  return { palette: ramp(256), low, high, value: scaled, names: false, log };
}

/** A number as an axis measures it. */
const scaling = (log) => (log ? Math.log10 : (value) => value);

/** Ends of a range that holds all values, which are logarithms for a logarithmic one, with some room. */
function fitting(values, log) {
  let from = Infinity, to = -Infinity;
  for (const value of values) {
    if (value < from) from = value;
    if (value > to) to = value;
  }
  if (!(from <= to)) [from, to] = log ? [-1, 1] : [0, 1];
  const room = to > from ? 0.04 * (to - from) : log ? 0.1 : Math.abs(from) * 0.1 || 1;
  return log ? { start: 10 ** (from - room), end: 10 ** (to + room) } : { start: from - room, end: to + room };
}

class Plot {
  /** events: hover(row or -1), tap(row, whether others stay), select(rows, way), invert(), zoom(). */
  constructor(place, events) {
    this.element = place;
    this.events = events;
  }

  /** Draw these designs anew: other columns or scales. */
  async rebuild(view, rows, front) {
    this.view = view;
    this.points = new Points(this.points?.waiting);
    this.points.show(this.placed(rows), this.shades());
    const { across, up } = this.points;
    this.ranges = { x: new Bokeh.Range1d(fitting(across, view.xLog)), y: new Bokeh.Range1d(fitting(up, view.yLog)) };
    this.fitted = this.ends();
    this.front = new Bokeh.ColumnDataSource({ data: this.along(front) });
    this.marks = new Bokeh.ColumnDataSource({ data: { x: [], y: [], text: [], colour: [] } });
    const figure = this.figure();
    figure.add_renderers(this.points.layer);
    this.glyphs(figure);
    this.listen(figure);
    this.drawing = figure;
    await this.place(figure);
  }

  /** Put a figure in the place of the one before it, which stays in sight until this one is there. */
  async place(figure) {
    const holder = element("div", { style: { visibility: "hidden" } }), old = this.shown;
    this.element.append(holder);
    const shown = await Bokeh.Plotting.show(figure, holder);
    if (this.drawing !== figure) {  // other axes have been asked for since
      shown.remove();
      holder.remove();
      return;
    }
    while (this.element.firstElementChild !== holder) this.element.firstElementChild.remove();
    old?.remove();
    holder.style.visibility = "";
    this.shown = shown;
  }

  figure() {
    const { x, y, xLog, yLog } = this.view;
    const kind = (log) => (log ? "log" : "linear");
    // what they enclose is looked for in our points: none of Bokeh's glyphs is selected
    const box = new Bokeh.BoxSelectTool({ renderers: [] }), lasso = new Bokeh.LassoSelectTool({ renderers: [], continuous: false });
    const tools = [
      box, lasso, new Bokeh.PanTool(),
      new Bokeh.BoxZoomTool(), new Bokeh.WheelZoomTool({ modifiers: { ctrl: true } }), new Bokeh.ResetTool(), new Bokeh.SaveTool(),
    ];
    const figure = Bokeh.Plotting.figure({
      sizing_mode: "stretch_both", x_axis_type: kind(xLog), y_axis_type: kind(yLog), tools, output_backend: "canvas",
      x_range: this.ranges.x, y_range: this.ranges.y,
      background_fill_color: null, border_fill_color: null, outline_line_color: null, min_border: 12, lod_threshold: null,
    });
    figure.toolbar.logo = null;
    figure.toolbar.active_drag = box;
    this.tools = { rect: box, poly: lasso };
    this.dress(figure.below[0], x);
    this.dress(figure.left[0], y);
    for (const grid of figure.center) grid.grid_line_color = style("grid");
    return figure;
  }

  /** Labels and colours of an axis. */
  dress(axis, column) {
    const ink = style("ink"), quiet = style("quiet");
    axis.setv({
      axis_label: heading(column), axis_label_text_color: ink, axis_label_text_font: "system-ui, sans-serif",
      axis_label_text_font_style: "normal", axis_label_text_font_size: "14px", major_label_text_color: quiet,
      major_label_text_font_size: "12px", major_label_text_font: "system-ui, sans-serif", axis_line_color: quiet,
      major_tick_line_color: quiet, minor_tick_line_color: null,
    });
    if (isNames(column)) {
      axis.ticker = new Bokeh.FixedTicker({ ticks: column.texts.map((_, i) => i) });
      axis.major_label_overrides = new Map(column.texts.map((name, i) => [i, name]));
    }
  }

  /** The front, and above all the marks, in a layer of their own: they follow the pointer without the rest. */
  glyphs(figure) {
    const size = this.points.rows.length < FEW ? 9 : 6;
    const line = { source: this.front, line_color: style("front"), line_width: 1.5 };
    this.step = figure.step({ field: "x" }, { field: "y" }, this.stairs(), { ...line, line_alpha: 0.8 });
    const ring = figure.scatter({ field: "x" }, { field: "y" }, { ...line, size: size + 4, fill_color: null });
    const marked = { source: this.marks, line_color: { field: "colour" }, line_width: 3, size: 16, fill_color: null };
    const marks = figure.scatter({ field: "x" }, { field: "y" }, marked);
    const letters = figure.text({ field: "x" }, { field: "y" }, { field: "text" }, {
      source: this.marks, text_color: { field: "colour" }, text_font_style: "bold", text_font_size: "16px",
      text_font: "system-ui, sans-serif", x_offset: 9, y_offset: -5,
    });
    for (const renderer of [this.step, ring]) renderer.level = "annotation";
    for (const renderer of [marks, letters]) renderer.level = "overlay";
  }

  listen(figure) {
    figure.on_event("mousemove", (event) => this.moved(event));
    figure.on_event("tap", (event) => {
      const row = this.nearest(event.x, event.y);
      if (row >= 0) this.events.tap(row, event.modifiers.shift);
    });
    // which keys are held down says the end of the movement, which follows what it has enclosed
    let enclosed = null;
    figure.on_event("selectiongeometry", ({ geometry, final }) => { enclosed = final ? geometry : null; });
    figure.on_event("panend", ({ modifiers }) => {
      if (enclosed) this.events.select(this.within(enclosed), wayOf(modifiers, this.tools[enclosed.type]));
      enclosed = null;
    });
    for (const range of Object.values(this.ranges)) range.change.connect(() => this.zoomed());
    figure.on_event("reset", () => this.events.select([]));
    for (const tool of Object.values(this.tools)) {
      tool.clear.connect(() => this.events.select([]));
      tool.invert.connect(() => this.events.invert());
    }
  }

  /** Show these designs. */
  show(view, rows, front) {
    this.view = view;
    this.points.show(this.placed(rows), this.shades());
    if (this.ends() === this.fitted) this.fit();
    this.showFront(front);
  }

  /** Show all points; what somebody has zoomed into stays. */
  fit() {
    const { across, up } = this.points;
    for (const [range, values, log] of [[this.ranges.x, across, this.view.xLog], [this.ranges.y, up, this.view.yLog]]) {
      const { start, end } = fitting(values, log);
      range.setv({ start, end, reset_start: start, reset_end: end });
    }
    this.fitted = this.ends();
  }

  /** The ends of both ranges, to be compared. */
  ends() {
    const { x, y } = this.ranges;
    return [x.start, x.end, y.start, y.end].join();
  }

  showFront(front) {
    this.step.glyph.mode = this.stairs();
    this.front.data = this.along(front);
  }

  /** Colours of the points: those of the palette, and that of what cannot run or has no number. */
  shades() {
    return [...this.view.colours.palette, style("cannot")];
  }

  /** Where and in which of these colours designs are drawn. */
  placed(rows) {
    const { x, y, xLog, yLog, colours } = this.view, { palette, low, high, value } = colours;
    const across = numbersOf(x, rows, xLog), up = numbersOf(y, rows, yLog), shade = new Uint16Array(rows.length);
    for (let i = 0; i < rows.length; i++) {
      const part = canRun(rows[i]) ? (value(rows[i]) - low) / (high - low) : NaN;
      shade[i] = Number.isNaN(part) ? palette.length : Math.max(0, Math.min(palette.length - 1, Math.floor(palette.length * part)));
    }
    return { rows, across, up, shade };
  }

  /** Where a front runs. */
  along(front) {
    const { x, y } = this.view;
    return { x: front.map((row) => number(x, row)), y: front.map((row) => number(y, row)) };
  }

  /** Which way the stairs of a front go: what lies behind them is beaten. */
  stairs() {
    return this.view.betterX === "less" ? "after" : "before";
  }

  /** Mark designs: [row, letter, colour of the style]. */
  mark(marked) {
    const { x, y } = this.view;
    this.marks.data = {
      x: marked.map(([row]) => number(x, row)), y: marked.map(([row]) => number(y, row)),
      text: marked.map(([, letter]) => letter), colour: marked.map(([, , colour]) => style(colour)),
    };
  }

  /** Select designs; the others fade. */
  select(rows) {
    this.points.select(rows);
  }

  /** The ranges are others: by a tool, where nothing else has changed. */
  zoomed() {
    if (this.points.isStale) return;
    this.points.change();
    this.events.zoom();
  }

  /** Waits until the frame that shows the last change is done. */
  painted() {
    return this.points.painted();
  }

  /** Rows of the designs that a box or a lasso has enclosed. */
  within({ type, x0, x1, y0, y1, x, y }) {
    const across = scaling(this.view.xLog), up = scaling(this.view.yLog);
    const [xs, ys] = type === "rect" ? [[x0, x1], [y0, y1]] : [Array.from(x), Array.from(y)];
    return rowsWithin(this.points, xs.map(across), ys.map(up));
  }

  /** The pointer has moved: look once a frame. */
  moved(event) {
    const waits = this.pointer;
    this.pointer = event;
    if (waits) return;
    requestAnimationFrame(() => {
      const { x, y } = this.pointer;
      this.pointer = null;
      this.events.hover(this.nearest(x, y));
    });
  }

  /** The design nearest to a place in the plot, or -1 where none is near. */
  nearest(x, y) {
    const { x_range, y_range, inner_width, inner_height } = this.drawing;
    const across = scaling(this.view.xLog), up = scaling(this.view.yLog);
    const wide = inner_width / (across(x_range.end) - across(x_range.start));
    const high = inner_height / (up(y_range.end) - up(y_range.start));
    const found = nearestOf(this.points, across(x), up(y), wide, high);
    return found < 0 ? -1 : this.points.rows[found];
  }
}
