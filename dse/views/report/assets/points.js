// The designs as disks, laid into pixels by the page itself: half a second is what a canvas takes to draw so many paths.

/** Places of a disk's middle within a pixel, each way: as fine as eyes tell. */
const PLACES = 4;

/** Disks of a radius in pixels, one for each place of the middle within its pixel: steps to pixels, and how much of each is covered. */
function disks(radius, reach, width) {
  return Array.from({ length: PLACES * PLACES }, (_, place) => {
    const middleX = ((place % PLACES) + 0.5) / PLACES, middleY = (Math.floor(place / PLACES) + 0.5) / PLACES;
    const steps = [], shares = [];
    for (let y = -reach; y <= reach; y++) {
      for (let x = -reach; x <= reach; x++) {
        const share = Math.min(1, radius + 0.5 - Math.hypot(x + 0.5 - middleX, y + 0.5 - middleY));
        if (share > 0) {
          steps.push(y * width + x);
          shares.push(share);
        }
      }
    }
    return { steps: Int32Array.from(steps), shares: Float64Array.from(shares) };
  });
}

/** Colours as halves of pixels, each of two bytes with a free byte above: red and blue, green and opacity. */
function halves(colours) {
  const numbers = colours.map((hex) => parseInt(hex.slice(1), 16));
  return {
    redBlue: Int32Array.from(numbers, (rgb) => (rgb >> 16) | ((rgb & 0xff) << 16)),
    greenFull: Int32Array.from(numbers, (rgb) => ((rgb >> 8) & 0xff) | 0xff0000),
  };
}

/** Bytes that an opacity has been multiplied into, without it: [opacity, byte]. Images hold them so. */
const UNMULTIPLIED = new Uint8ClampedArray(1 << 16);
for (let opacity = 1; opacity < 256; opacity++) {
  for (let byte = 0; byte < 256; byte++) UNMULTIPLIED[(opacity << 8) | byte] = (255 * byte) / opacity;
}

/** A pixel as good as covered has less than this left of 255. */
const OPEN = 3;

/** An image of disks with a margin around it, in which those at its edge lie whole: none has to be cut. */
class Disks {
  constructor(width, height, radius) {
    this.reach = Math.ceil(radius) + 1;
    this.margin = 2 * this.reach;
    this.canvas = element("canvas", { width: width + 2 * this.margin, height: height + 2 * this.margin });
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Int32Array(this.image.data.buffer);
    this.disks = disks(radius, this.reach, this.canvas.width);
  }

  /**
   * Lay disks under those that are there, the last design first: what is covered already is skipped, which is most of a
   * crowd. ``at`` gives pixels from numbers, ``wanted`` whether a design is drawn now.
   */
  lay(points, at, alpha, wanted) {
    const { pixels, disks, reach, margin } = this, { across, up, shade, colours } = points;
    const { width, height } = this.canvas, most = width - reach, lowest = height - reach;
    const weights = disks.map(({ shares }) => Int32Array.from(shares, (share) => Math.round(256 * alpha * share)));
    for (let i = across.length - 1; i >= 0; i--) {
      const x = margin + at.x + at.wide * across[i], y = margin + at.y + at.high * up[i];
      if (!(x >= reach && x < most && y >= reach && y < lowest && wanted(i))) continue;
      const place = ((PLACES * y) & (PLACES - 1)) * PLACES + ((PLACES * x) & (PLACES - 1));
      const { steps } = disks[place], weight = weights[place], from = (y | 0) * width + (x | 0);
      const redBlue = colours.redBlue[shade[i]], greenFull = colours.greenFull[shade[i]];
      for (let k = 0; k < steps.length; k++) {
        const pixel = from + steps[k], is = pixels[pixel], open = 255 - (is >>> 24);
        if (open < OPEN) continue;
        // two bytes at once: each has a byte above it for its product with a share of up to 255
        const share = (open * weight[k] + 128) >> 8;
        pixels[pixel] = (is + ((Math.imul(redBlue, share) >>> 8) & 0xff00ff) + (Math.imul(greenFull, share) & 0xff00ff00)) | 0;
      }
    }
  }

  /** Show what has been laid. */
  finish() {
    const { pixels } = this;
    for (let i = 0; i < pixels.length; i++) {
      const is = pixels[i], opacity = is >>> 24, key = opacity << 8;
      if (opacity === 0 || opacity === 255) continue;
      pixels[i] = (opacity << 24) | (UNMULTIPLIED[key | ((is >> 16) & 0xff)] << 16)
        | (UNMULTIPLIED[key | ((is >> 8) & 0xff)] << 8) | UNMULTIPLIED[key | (is & 0xff)];
    }
    this.context.putImageData(this.image, 0, 0);
  }

  clear() {
    this.pixels.fill(0);
  }
}

/** Designs among which each is seen by itself: fewer are drawn larger and less transparent. */
const FEW = 500;

/** Designs in a plot: where they are, in which of the colours, and which are selected. */
class Points {
  /** waiting: what is called when a frame is done, handed on from axes to axes. */
  constructor(waiting = []) {
    this.layer = new PointsLayer();
    this.layer.points = this;
    this.rows = new Int32Array(0);
    this.picked = null;
    this.waiting = waiting;
  }

  /** Draw designs ``across`` and ``up`` the axes, in logarithms where those are; ``shade`` is a position among the colours. */
  show({ rows, across, up, shade }, colours) {
    Object.assign(this, { rows, across, up, shade, colours: halves(colours) });
    this.change();
  }

  /** Select rows; the others fade. */
  select(rows) {
    if (!rows.length && !this.picked) return;
    this.picked = rows.length ? new Uint8Array(page.size) : null;
    for (const row of rows) this.picked[row] = 1;
    this.change();
  }

  change() {
    this.laid = "";
    this.layer.change.emit();
  }

  get isStale() {
    return this.laid === "";
  }

  /** Waits until the frame that shows the last change is done. */
  async painted() {
    if (this.isStale) await new Promise((done) => { this.waiting.push(done); });
  }

  /** Paint the points of a frame; they are laid anew where they, its ranges, its size or the resolution are others. */
  paint(context, { bbox, x_scale, y_scale, x_range, y_range }) {
    const { a: ratio, e: shift } = context.getTransform();
    const left = Math.floor(ratio * bbox.left + shift), top = Math.floor(ratio * bbox.top + shift);
    const [x, wide] = pixelsAlong(x_scale, x_range, ratio, shift - left);
    const [y, high] = pixelsAlong(y_scale, y_range, ratio, shift - top);
    const few = this.rows.length < FEW, radius = ratio * (few ? 4.5 : 3);
    const size = [Math.ceil(ratio * bbox.width) + 1, Math.ceil(ratio * bbox.height) + 1, radius];
    const laid = [x, wide, y, high, ...size].join();
    if (laid !== this.laid) {
      if (size.join() !== this.size) [this.disks, this.size] = [new Disks(...size), size.join()];
      this.lay({ x, wide, y, high }, few);
      this.laid = laid;
    }
    for (const done of this.waiting.splice(0)) setTimeout(done);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.disks.canvas, left - this.disks.margin, top - this.disks.margin);
  }

  lay(at, few) {
    const { disks, rows, picked } = this;
    disks.clear();
    if (picked) {
      disks.lay(this, at, 0.95, (i) => picked[rows[i]]);
      disks.lay(this, at, few ? 0.35 : 0.15, (i) => !picked[rows[i]]);
    } else disks.lay(this, at, few ? 0.95 : 0.75, () => true);
    disks.finish();
  }
}

/** What a scale makes of a number, or of its logarithm where it is logarithmic: pixels at 0, and pixels a unit. */
function pixelsAlong(scale, range, ratio, shift) {
  const along = scale instanceof Bokeh.LogScale ? Math.log10 : (value) => value;
  const { start, end } = range, from = ratio * scale.compute(start) + shift, to = ratio * scale.compute(end) + shift;
  const step = (to - from) / (along(end) - along(start));
  return [from - step * along(start), step];
}

const { Renderer, RendererView } = Bokeh.require("models/renderers/renderer");

/** Paints when Bokeh paints the glyphs of a plot, on the screen or into the image that is saved. */
class PointsLayerView extends RendererView {
  connect_signals() {
    super.connect_signals();
    this.connect(this.model.change, () => this.request_paint());
  }

  // before its version 3.7 Bokeh hands over no context
  _paint(context = this.layer.ctx) {
    this.model.points.paint(context, this.plot_view.frame);
  }
}

/** The place of points among what Bokeh draws. */
class PointsLayer extends Renderer {
  static {
    this.prototype.default_view = PointsLayerView;
    this.override({ level: "glyph" });
  }
}
