// Colours, and designs as disks, laid into pixels by the page itself: a canvas takes long to draw so many.

const NAMES = ["#0072b2", "#e08a00", "#009e73", "#cc6ba4", "#56b4e9", "#d55e00", "#8b5fbf", "#8c8c00", "#7a4b2a", 
  "#00a5a5"];
const RAMP = ["#440154", "#482878", "#3e4a89", "#31688e", "#26838e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b",
  "#fde725"];
/** So many colours, evenly along a ramp that readers without red or green cones see as one too. */
function ramp(count) {
  const parts = RAMP.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: count }, (_, i) => {
    const at = (count > 1 ? i / (count - 1) : 0.3) * (RAMP.length - 1) * 0.96, from = Math.floor(at);
    const mixed = parts[from].map((part, k) => Math.round(part + (parts[from + 1][k] - part) * (at - from)));
    return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  });
}
const SHADES = ramp(256), GRADIENT = `linear-gradient(to right, ${SHADES.filter((_, i) => i % 16 === 0).join(", ")})`;
/** A colour as a pixel of an image: opacity, blue, green, red. */
function pixelOf(hex) {
  const rgb = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}
/** How a column is told by colour: a palette, and the place in it, from 0 to 1, of each design. */
function colouring(column, isLog, rows) {
  const { texts } = column, scaled = scaling(isLog);
  if (texts?.length <= 24) {
    const palette = isNames(column) && texts.length <= NAMES.length ? NAMES.slice(0, texts.length) : ramp(texts.length);
    return { palette, texts, share: (row) => (stored(column, row) + 0.5) / texts.length };
  }
  let [low, high] = extent(numbersOf(column, rows, scaled));
  if (!(low < high)) [low, high] = low === high ? [low - 1, low + 1] : [0, 1];
  const share = (row) => (scaled(number(column, row)) - low) / (high - low);
  return { palette: SHADES, share, ends: [low, high], isLog };
}
/** An image of disks with a margin around it, in which those at its edge lie whole: none has to be cut. */
class Disks {
  constructor(width, height, radius) {
    const reach = Math.ceil(radius) + 1, margin = 2 * reach;
    const image = new ImageData(width + 2 * margin, height + 2 * margin);
    Object.assign(this, { reach, margin, image, pixels: new Int32Array(image.data.buffer), steps: [], shares: [] });
    for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) {
      const share = Math.min(1, radius + 0.5 - Math.hypot(x, y));
      if (share <= 0) continue;
      this.steps.push(y * image.width + x);
      this.shares.push(share);
    }
  }
  /**
   * Lay disks under those that are there, the last design first: what is covered already is skipped, which is most of
   * a crowd. ``x`` and ``y`` are in pixels, ``shade`` places in ``colours``, ``isDrawn`` whether it is drawn now.
   */
  lay({ x, y, shade, colours }, alpha, isDrawn) {
    const { pixels, steps, reach, margin, image: { width, height } } = this;
    const weight = Int32Array.from(this.shares, (share) => Math.round(256 * alpha * share));
    // Two bytes at once: red and blue, green and opacity, each with a byte above it for its product with a share.
    const redBlue = colours.map((pixel) => pixel & 0xff00ff), green = colours.map((pixel) => (pixel >>> 8) & 0xff00ff);
    for (let i = x.length - 1; i >= 0; i--) {
      const column = margin + Math.floor(x[i]), row = margin + Math.floor(y[i]), from = row * width + column;
      const isInside = column >= reach && column < width - reach && row >= reach && row < height - reach;
      if (!isInside || !isDrawn(i)) continue;
      const first = redBlue[shade[i]], second = green[shade[i]];
      for (let k = 0; k < steps.length; k++) {
        const pixel = pixels[from + steps[k]], open = 255 - (pixel >>> 24);
        if (open < 3) continue;
        const share = (open * weight[k] + 128) >> 8;
        pixels[from + steps[k]] = (pixel + ((Math.imul(first, share) >>> 8) & 0xff00ff)
          + (Math.imul(second, share) & 0xff00ff00)) | 0;
      }
    }
  }
  /** Show what has been laid: images hold colours without the opacity that ours are multiplied with. */
  finish(context) {
    const { data } = this.image;
    for (let at = 3; at < data.length; at += 4) {
      const opacity = data[at];
      if (opacity > 0 && opacity < 255) for (let k = 1; k < 4; k++) data[at - k] = (255 * data[at - k]) / opacity;
    }
    context.putImageData(this.image, -this.margin, -this.margin);
  }
}
