// The plot: Bokeh draws it on a canvas. Rebuilt when its axes change; constraints and selections only move data.

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

/** Ends of a range that holds all values, with some room. */
function fitting(values, log) {
  let low = Infinity, high = -Infinity;
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (!(low <= high)) [low, high] = log ? [0.1, 10] : [0, 1];
  const [from, to] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
  const room = to > from ? 0.04 * (to - from) : log ? 0.1 : Math.abs(from) * 0.1 || 1;
  return log ? { start: 10 ** (from - room), end: 10 ** (to + room) } : { start: from - room, end: to + room };
}

/** Pixels from the pointer within which a design is meant. */
const REACH = 14;

class Plot {
  /** events: hover(row or -1), tap(row, whether others stay), select(rows). */
  constructor(place, events) {
    this.place = place;
    this.events = events;
    this.rows = new Int32Array(0);
    this.position = new Map();
    this.quiet = false;
  }

  /** Draw these designs anew: other columns or scales. */
  async rebuild(view, rows, front) {
    this.view = view;
    const data = this.numbers(rows);
    this.points = new Bokeh.ColumnDataSource({ data });
    this.ranges = { x: new Bokeh.Range1d(fitting(data.x, view.xLog)), y: new Bokeh.Range1d(fitting(data.y, view.yLog)) };
    this.fitted = this.ends();
    this.front = new Bokeh.ColumnDataSource({ data: this.along(front) });
    this.marks = new Bokeh.ColumnDataSource({ data: { x: [], y: [], text: [], colour: [] } });
    const figure = this.figure();
    this.glyphs(figure);
    this.points.selected.change.connect(() => this.selected());
    figure.on_event("mousemove", (event) => this.moved(event));
    figure.on_event("tap", (event) => {
      const row = this.nearest(event.x, event.y);
      if (row >= 0) this.events.tap(row, event.modifiers.shift);
    });
    this.drawing = figure;
    const old = this.shown;
    this.shown = await Bokeh.Plotting.show(figure, this.place);
    if (old) {
      old.remove();
      while (this.place.childElementCount > 1) this.place.firstElementChild.remove();
    }
  }

  figure() {
    const { x, y, xLog, yLog } = this.view;
    const kind = (log) => (log ? "log" : "linear");
    const box = new Bokeh.BoxSelectTool();
    const tools = [
      box, new Bokeh.LassoSelectTool({ continuous: false }), new Bokeh.PanTool(),
      new Bokeh.BoxZoomTool(), new Bokeh.WheelZoomTool({ modifiers: { ctrl: true } }), new Bokeh.ResetTool(), new Bokeh.SaveTool(),
    ];
    const figure = Bokeh.Plotting.figure({
      sizing_mode: "stretch_both", x_axis_type: kind(xLog), y_axis_type: kind(yLog), tools, output_backend: "canvas",
      x_range: this.ranges.x, y_range: this.ranges.y,
      background_fill_color: null, border_fill_color: null, outline_line_color: null, min_border: 12, lod_threshold: null,
    });
    figure.toolbar.logo = null;
    figure.toolbar.active_drag = box;
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

  glyphs(figure) {
    const { palette, low, high } = this.view.colours;
    this.mapper = new Bokeh.LinearColorMapper({ palette, low, high, nan_color: style("cannot") });
    const colour = { field: "c", transform: this.mapper };
    const few = this.rows.length < 500, size = few ? 9 : 6;
    const looks = { source: this.points, fill_color: colour, line_color: null, fill_alpha: few ? 0.95 : 0.75 };
    // a circle is drawn in half the time of a marker of the same looks
    figure.circle({ field: "x" }, { field: "y" }, { value: size / 2, units: "screen" }, {
      ...looks, nonselection_fill_alpha: few ? 0.35 : 0.15, nonselection_line_color: null, selection_fill_alpha: 0.95,
    });
    const line = { source: this.front, line_color: style("front"), line_width: 1.5 };
    this.step = figure.step({ field: "x" }, { field: "y" }, this.stairs(), { ...line, line_alpha: 0.8 });
    const ring = figure.scatter({ field: "x" }, { field: "y" }, { ...line, size: size + 4, fill_color: null });
    const marked = { source: this.marks, line_color: { field: "colour" }, line_width: 3, size: 16, fill_color: null };
    const marks = figure.scatter({ field: "x" }, { field: "y" }, marked);
    figure.text({ field: "x" }, { field: "y" }, { field: "text" }, {
      source: this.marks, text_color: { field: "colour" }, text_font_style: "bold", text_font_size: "16px",
      text_font: "system-ui, sans-serif", x_offset: 9, y_offset: -5,
    });
    for (const renderer of [this.step, ring, marks]) renderer.level = "annotation";
  }

  /** Show these designs. */
  show(view, rows, front) {
    this.view = view;
    const { palette, low, high } = view.colours;
    this.mapper.setv({ palette, low, high });
    this.quietly(() => {
      if (this.points.selected.indices.length) this.points.selected.indices = [];
      this.points.data = this.numbers(rows);
    });
    if (this.ends() === this.fitted) this.fit();
    this.showFront(front);
  }

  /** Show all points; what somebody has zoomed into stays. */
  fit() {
    const { x, y } = this.points.data;
    for (const [range, values, log] of [[this.ranges.x, x, this.view.xLog], [this.ranges.y, y, this.view.yLog]]) {
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

  /** Where and in which colour designs are drawn. */
  numbers(rows) {
    const { x, y, colours } = this.view;
    this.rows = rows;
    this.position = null;
    const across = new Float64Array(rows.length), up = new Float64Array(rows.length), tint = new Float64Array(rows.length);
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i];
      across[i] = number(x, row);
      up[i] = number(y, row);
      tint[i] = canRun(row) ? colours.value(row) : NaN;
    }
    return { x: across, y: up, c: tint };
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

  /** Select designs, as far as they are shown. */
  select(rows) {
    if (rows.length) this.position ??= new Map(Array.from(this.rows, (row, i) => [row, i]));
    const indices = rows.map((row) => this.position.get(row)).filter((i) => i !== undefined);
    this.quietly(() => { this.points.selected.indices = indices; });
  }

  quietly(change) {
    this.quiet = true;
    change();
    this.quiet = false;
  }

  selected() {
    if (this.quiet) return;
    const rows = Array.from(this.points.selected.indices, (i) => this.rows[i]);
    this.events.select(rows);
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
    const { xLog, yLog } = this.view, { x_range, y_range, inner_width, inner_height } = this.drawing;
    const along = (log) => (log ? Math.log10 : (value) => value);
    const across = along(xLog), up = along(yLog), data = this.points.data;
    const wide = inner_width / (across(x_range.end) - across(x_range.start));
    const high = inner_height / (up(y_range.end) - up(y_range.start));
    const atX = across(x), atY = up(y);
    let found = -1, least = REACH * REACH;
    for (let i = 0; i < this.rows.length; i++) {
      const dx = (across(data.x[i]) - atX) * wide, dy = (up(data.y[i]) - atY) * high, far = dx * dx + dy * dy;
      if (far < least) [found, least] = [i, far];
    }
    return found < 0 ? -1 : this.rows[found];
  }
}
