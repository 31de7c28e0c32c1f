// The model: a list of operations on numbers of single precision, run on many designs at once. What the operations do,
// kernelsOn, is written with the page (program.py).
//
// A plan says which leaves vary along x (1), along y (2), or both (3); the others are the same for all designs.
// Operations are done as often as what they depend on: once, once a value of x, once a value of y, or once a design.
// Values lie in one array, those along x as vectors, and places are used again as soon as nothing needs their value.
/** Values of x that are computed at once: so many that a call costs little, so few that all stay in the cache. */
const WIDTH = 512;
const WORDS = { inf: Infinity, "-inf": -Infinity, nan: NaN };
/** Round halves to even, or away from 0; the nearest whole number of 32 bits towards 0, and 0 for what is no number. */
const even = (value) => (Math.abs(value % 1) === 0.5 ? 2 * Math.round(value / 2) : Math.round(value));
const away = (value) => Math.sign(value) * Math.floor(Math.abs(value) + 0.5);
const whole = (value) => (Number.isNaN(value) ? 0 : Math.max(-2147483648, Math.min(2147483647, Math.trunc(value))));
/** A whole power by squaring, each product rounded to single precision. */
function power(base, exponent) {
  let product = exponent & 1 ? base : 1, square = base;
  for (let bits = Math.abs(exponent) >> 1; bits; bits >>= 1) {
    square = Math.fround(square * square);
    if (bits & 1) product = Math.fround(product * square);
  }
  return exponent < 0 ? 1 / product : product;
}
class Machine {
  /** A machine for a program, as program.py writes it. */
  constructor(program) {
    this.known = program.inputs + program.constants.length;
    this.count = program.operations.length / 4;
    this.inputs = Array.from({ length: this.count }, (_, k) =>
      program.operations.slice(4 * k + 1, 4 * k + 4).filter((value) => value >= 0));
    Object.assign(this, { program, isWhole: new Set(program.whole), plans: new Map() });
    this.reserve(this.known + this.count + 700 * WIDTH);
  }
  /** Have room for this many numbers. */
  reserve(size) {
    const bytes = new ArrayBuffer(4 * size), { inputs, constants } = this.program;
    this.F = new Float32Array(bytes);
    this.I = new Int32Array(bytes);
    constants.forEach(([kind, value], i) => { (kind === "i" ? this.I : this.F)[inputs + i] = WORDS[value] ?? value; });
    this.kernels = kernelsOn(this.F, this.I);
  }
  /** What is computed how often for these outputs, and where its values lie. */
  plan(varying, outputs) {
    const { known, count, inputs, plans, program: { operations } } = this, length = known + count;
    const key = `${[...varying].join(";")}|${outputs}`, values = outputs.map((output) => this.program.outputs[output]);
    if (plans.has(key)) return plans.get(key);
    // The last operation that needs a value, from the end; how often each is computed, from the beginning.
    const last = new Int32Array(length).fill(-1), level = new Uint8Array(length), lists = [[], [], [], []];
    for (const value of values) last[value] = count;
    for (let k = count - 1; k >= 0; k--) {
      if (last[known + k] >= 0) for (const input of inputs[k]) last[input] = Math.max(last[input], k);
    }
    for (const [input, along] of varying) level[input] = along;
    for (let k = 0; k < count; k++) {
      level[known + k] = inputs[k].reduce((levels, input) => levels | level[input], 0);
      if (last[known + k] >= 0) lists[level[known + k]].push(k);
    }
    // Vectors: those of x for good, those of both until their last use.
    const place = Int32Array.from({ length }, (_, i) => i), free = [];
    let size = length;
    const vector = () => { size += WIDTH; return size - WIDTH; };
    for (const [input, along] of varying) if (along & 1) place[input] = vector();
    for (const k of lists[1]) place[known + k] = vector();
    for (const k of lists[3]) {
      place[known + k] = free.pop() ?? vector();
      const isOver = (value) => value >= known && level[value] === 3 && last[value] === k;
      free.push(...new Set(inputs[k].filter(isOver).map((value) => place[value])));
    }
    const read = (value) => [place[value], level[value] & 1];
    const stepOf = (k) => [operations[4 * k], place[known + k], ...inputs[k].flatMap(read)];
    const code = lists.map((list) => list.map(stepOf));
    if (plans.size > 24) plans.delete(plans.keys().next().value);
    plans.set(key, { code, place, results: values.map(read) });
    if (size > this.F.length) this.reserve(size);
    return plans.get(key);
  }
  run(steps, n) {
    const { kernels } = this;
    for (const step of steps) kernels[step[0]](step[1], n, step[2], step[3], step[4], step[5], step[6], step[7]);
  }
  /**
   * Outputs of designs, an array [y, x] each, a row at a time: a caller that stops must not use the machine otherwise.
   *
   * base: values of all inputs; x, y: input → its values along x, or y; both: input → the function of (place along x,
   * place along y) that it is.
   */
  *rows(base, outputs, { x, y = new Map(), both = new Map() }) {
    const levels = [x, y, both].flatMap((inputs, i) => [...inputs.keys()].map((input) => [input, i + 1]));
    const { code, place, results } = this.plan(new Map(levels), outputs), { F, I } = this;
    const nx = x.values().next().value?.length ?? 1, ny = y.values().next().value?.length ?? 1;
    const numbers = outputs.map(() => new Float64Array(nx * ny));
    F.set(base);
    this.run(code[0], 1);
    for (let from = 0; from < nx; from += WIDTH) {
      const n = Math.min(WIDTH, nx - from);
      for (const [input, values] of x) F.set(values.subarray(from, from + n), place[input]);
      this.run(code[1], n);
      for (let row = 0; row < ny; row++) {
        for (const [input, values] of y) F[place[input]] = values[row];
        for (const [input, of] of both) for (let i = 0; i < n; i++) F[place[input] + i] = of(from + i, row);
        this.run(code[2], 1);
        this.run(code[3], n);
        outputs.forEach((output, k) => {
          const [at, step] = results[k], stored = this.isWhole.has(output) ? I : F;
          for (let i = 0; i < n; i++) numbers[k][row * nx + from + i] = stored[at + i * step];
        });
        yield numbers;
      }
    }
  }
  /** The same at once. */
  over(base, outputs, varying) { return [...this.rows(base, outputs, varying)].at(-1); }
  /** All outputs of one design. */
  at(base) {
    this.all ??= this.program.outputs.map((_, i) => i);
    return Float64Array.from(this.over(base, this.all, { x: new Map() }), ([value]) => value);
  }
}
