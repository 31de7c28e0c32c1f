// The model: a list of operations on numbers of single precision, run on many designs at once.
//
// A plan says which leaves vary along x, along y, or both; the others are the same for all designs. Operations are
// done as often as what they depend on: once, once a value of x, once a value of y, or once a design. Values lie in one
// array, those that vary along x as vectors, and places are used again as soon as nothing needs their value.

/** Values of x that are computed at once: so many that a call costs little, so few that all stay in the cache. */
const WIDTH = 512;

/** Round halves to even. */
function even(value) {
  const low = Math.floor(value), rest = value - low;
  return rest < 0.5 ? low : rest > 0.5 ? low + 1 : low % 2 === 0 ? low : low + 1;
}

const awayFromZero = (value) => Math.sign(value) * Math.floor(Math.abs(value) + 0.5);

/** The nearest whole number of 32 bits towards 0; 0 for what is no number. */
const whole = (value) => (Number.isNaN(value) ? 0 : Math.max(-2147483648, Math.min(2147483647, Math.trunc(value))));

/**
 * What the operations do: n results from o on, of inputs from a, b and c on, which go on by p, q and r: by 1 where they
 * vary along x, by 0 where they are the same. Storing into F rounds to single precision.
 */
function kernelsOn(F, I) {
  const one = (of) => (o, n, a, p) => { for (let i = 0; i < n; i++) F[o + i] = of(F[a + i * p]); };
  const two = (of) => (o, n, a, p, b, q) => { for (let i = 0; i < n; i++) F[o + i] = of(F[a + i * p], F[b + i * q]); };
  const ofWhole = (of) => (o, n, a, p, b, q) => { for (let i = 0; i < n; i++) I[o + i] = of(I[a + i * p], I[b + i * q]); };
  const compared = (of) => (o, n, a, p, b, q) => { for (let i = 0; i < n; i++) F[o + i] = of(I[a + i * p], I[b + i * q]) ? 1 : 0; };
  // The most frequent ones are written out: a loop that calls is as fast only where nothing else calls from it. Sums and
  // products, two of three operations, go on by four.
  // Of two inputs one of which is the same for all, that one is read once.
  return {
    add(o, n, a, p, b, q) {
      const end = o + n, most = end - 3;
      if (p & q) {
        for (; o < most; o += 4, a += 4, b += 4) {
          F[o] = F[a] + F[b];
          F[o + 1] = F[a + 1] + F[b + 1];
          F[o + 2] = F[a + 2] + F[b + 2];
          F[o + 3] = F[a + 3] + F[b + 3];
        }
        for (; o < end; o++, a++, b++) F[o] = F[a] + F[b];
      } else {
        const y = F[p ? b : a];
        if (!p) a = b;
        for (; o < most; o += 4, a += 4) {
          F[o] = F[a] + y;
          F[o + 1] = F[a + 1] + y;
          F[o + 2] = F[a + 2] + y;
          F[o + 3] = F[a + 3] + y;
        }
        for (; o < end; o++, a++) F[o] = F[a] + y;
      }
    },
    sub(o, n, a, p, b, q) {
      if (p & q) for (let i = 0; i < n; i++) F[o + i] = F[a + i] - F[b + i];
      else if (p) for (let i = 0, y = F[b]; i < n; i++) F[o + i] = F[a + i] - y;
      else for (let i = 0, x = F[a]; i < n; i++) F[o + i] = x - F[b + i * q];
    },
    mul(o, n, a, p, b, q) {
      const end = o + n, most = end - 3;
      if (p & q) {
        for (; o < most; o += 4, a += 4, b += 4) {
          F[o] = F[a] * F[b];
          F[o + 1] = F[a + 1] * F[b + 1];
          F[o + 2] = F[a + 2] * F[b + 2];
          F[o + 3] = F[a + 3] * F[b + 3];
        }
        for (; o < end; o++, a++, b++) F[o] = F[a] * F[b];
      } else {
        const y = F[p ? b : a];
        if (!p) a = b;
        for (; o < most; o += 4, a += 4) {
          F[o] = F[a] * y;
          F[o + 1] = F[a + 1] * y;
          F[o + 2] = F[a + 2] * y;
          F[o + 3] = F[a + 3] * y;
        }
        for (; o < end; o++, a++) F[o] = F[a] * y;
      }
    },
    div(o, n, a, p, b, q) {
      if (p & q) for (let i = 0; i < n; i++) F[o + i] = F[a + i] / F[b + i];
      else if (p) for (let i = 0, y = F[b]; i < n; i++) F[o + i] = F[a + i] / y;
      else for (let i = 0, x = F[a]; i < n; i++) F[o + i] = x / F[b + i * q];
    },
    max(o, n, a, p, b, q) {
      if (p & q) for (let i = 0; i < n; i++) F[o + i] = Math.max(F[a + i], F[b + i]);
      else if (p) for (let i = 0, y = F[b]; i < n; i++) F[o + i] = Math.max(F[a + i], y);
      else for (let i = 0, x = F[a]; i < n; i++) F[o + i] = Math.max(x, F[b + i * q]);
    },
    min(o, n, a, p, b, q) {
      if (p & q) for (let i = 0; i < n; i++) F[o + i] = Math.min(F[a + i], F[b + i]);
      else if (p) for (let i = 0, y = F[b]; i < n; i++) F[o + i] = Math.min(F[a + i], y);
      else for (let i = 0, x = F[a]; i < n; i++) F[o + i] = Math.min(x, F[b + i * q]);
    },
    gt(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] > F[b + i * q] ? 1 : 0; },
    ge(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] >= F[b + i * q] ? 1 : 0; },
    lt(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] < F[b + i * q] ? 1 : 0; },
    le(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] <= F[b + i * q] ? 1 : 0; },
    eq(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] === F[b + i * q] ? 1 : 0; },
    ne(o, n, a, p, b, q) { for (let i = 0; i < n; i++) F[o + i] = F[a + i * p] !== F[b + i * q] ? 1 : 0; },
    sqrt(o, n, a, p) { for (let i = 0; i < n; i++) F[o + i] = Math.sqrt(F[a + i * p]); },
    ceil(o, n, a, p) { for (let i = 0; i < n; i++) F[o + i] = Math.ceil(F[a + i * p]); },
    floor(o, n, a, p) { for (let i = 0; i < n; i++) F[o + i] = Math.floor(F[a + i * p]); },
    // Bits are chosen, so that the cases may be whole numbers.
    select_n(o, n, a, p, b, q, c, r) { for (let i = 0; i < n; i++) I[o + i] = F[a + i * p] !== 0 ? I[c + i * r] : I[b + i * q]; },
    to_whole(o, n, a, p) { for (let i = 0; i < n; i++) I[o + i] = whole(F[a + i * p]); },
    to_number(o, n, a, p) { for (let i = 0; i < n; i++) F[o + i] = I[a + i * p]; },
    neg: one((x) => -x), abs: one(Math.abs), sign: one(Math.sign), exp: one(Math.exp), exp2: one((x) => 2 ** x),
    log: one(Math.log), log2: one(Math.log2), log1p: one(Math.log1p), expm1: one(Math.expm1), tanh: one(Math.tanh),
    not: one((x) => 1 - x), is_finite: one((x) => (Number.isFinite(x) ? 1 : 0)), round: one(even), round_away: one(awayFromZero),
    pow: two((x, y) => (x === 1 ? 1 : x ** y)), rem: two((x, y) => x % y),
    add_i: ofWhole((x, y) => x + y), sub_i: ofWhole((x, y) => x - y), mul_i: ofWhole(Math.imul),
    div_i: ofWhole((x, y) => x / y), max_i: ofWhole(Math.max), min_i: ofWhole(Math.min),
    neg_i: ofWhole((x) => -x), and_i: ofWhole((x, y) => x & y), or_i: ofWhole((x, y) => x | y),
    xor_i: ofWhole((x, y) => x ^ y), not_i: ofWhole((x) => ~x),
    eq_i: compared((x, y) => x === y), ne_i: compared((x, y) => x !== y), lt_i: compared((x, y) => x < y),
    le_i: compared((x, y) => x <= y), gt_i: compared((x, y) => x > y), ge_i: compared((x, y) => x >= y),
  };
}

class Machine {
  /** A machine for a program, as dse/views/live/program.py writes it. */
  constructor(program) {
    this.program = program;
    this.known = program.inputs + program.constants.length;
    this.count = program.operations.length / 4;
    this.isWhole = new Set(program.whole);
    this.plans = new Map();
    this._hold(this.known + this.count + 700 * WIDTH);
  }

  /** Have room for this many numbers. */
  _hold(size) {
    const bytes = new ArrayBuffer(4 * size);
    this.F = new Float32Array(bytes);
    this.I = new Int32Array(bytes);
    this.program.constants.forEach(([kind, value], i) => {
      (kind === "i" ? this.I : this.F)[this.program.inputs + i] = typeof value === "number" ? value : NUMBERS[value];
    });
    const kernels = kernelsOn(this.F, this.I);
    this.kernels = this.program.names.map((name) => kernels[name]);
    if (this.kernels.includes(undefined)) throw new Error(`no operation ${this.program.names.find((name) => !kernels[name])}`);
  }

  /**
   * What is computed how often for these outputs, where inputs vary along x (1), y (2) or both (3).
   *
   * With values of the other inputs: of choices that these decide only the case that holds is left, and no sum with 0
   * and no product with 0 or 1, as in dse/doors/scalars/operations.py. That takes a moment, which many designs repay.
   */
  plan(varying, outputs, base = null) {
    const key = base ? null : `${[...varying].map(([input, level]) => `${input}:${level}`)}|${outputs}`;
    let found = this.plans.get(key);
    if (!found) {
      if (this.plans.size > 24) this.plans.delete(this.plans.keys().next().value);
      found = this._planned(varying, outputs, base);
      if (key) this.plans.set(key, found);
    }
    if (found.size > this.F.length) this._hold(found.size);
    return found;
  }

  /** The input that the result of operation k equals, by what is known of the others; -1 where there is none. */
  _sameAs(k, [a, b, c], level) {
    const name = this.program.names[this.program.operations[4 * k]], { F } = this;
    const is = (value, number) => value >= 0 && !level[value] && F[value] === number;
    if (name === "select_n") return level[a] ? (b === c ? b : -1) : F[a] !== 0 ? c : b;
    if (name === "add") return is(a, 0) ? b : is(b, 0) ? a : -1;
    if (name === "sub") return is(b, 0) ? a : -1;
    if (name === "mul") return is(a, 1) || is(b, 0) ? b : is(b, 1) || is(a, 0) ? a : -1;
    if (name === "div") return is(b, 1) || is(a, 0) ? a : -1;
    if (name === "max") return is(a, -Infinity) || is(b, Infinity) ? b : is(b, -Infinity) || is(a, Infinity) ? a : -1;
    if (name === "min") return is(a, Infinity) || is(b, -Infinity) ? b : is(b, Infinity) || is(a, -Infinity) ? a : -1;
    return -1;
  }

  /** Of each value how often it is computed, and the value that it equals. */
  _levels(varying, wanted, base) {
    const { known, count, program: { operations } } = this;
    const level = new Uint8Array(known + count), same = Int32Array.from({ length: known + count }, (_, i) => i);
    for (const [input, at] of varying) level[input] = at;
    if (base) this.F.set(base);
    for (let k = 0; k < count; k++) {
      if (!wanted[known + k]) continue;
      const inputs = [1, 2, 3].map((j) => { const value = operations[4 * k + j]; return value < 0 ? -1 : same[value]; });
      let of = 0;
      for (const input of inputs) if (input >= 0) of |= level[input];
      level[known + k] = of;
      if (!base) continue;
      const [a, b, c] = inputs;
      if (!of) this.kernels[operations[4 * k]](known + k, 1, a, 0, Math.max(b, 0), 0, Math.max(c, 0), 0);
      else if ((same[known + k] = this._sameAs(k, inputs, level)) < 0) same[known + k] = known + k;
    }
    return { level, same };
  }

  /** Mark what outputs need, by way of what is the same. */
  _wanted(outputs, same) {
    const { known, count, program } = this, wanted = new Uint8Array(known + count);
    for (const output of outputs) wanted[same(program.outputs[output])] = 1;
    for (let k = count - 1; k >= 0; k--) {
      if (wanted[known + k]) for (let j = 1; j < 4; j++) if (program.operations[4 * k + j] >= 0) wanted[same(program.operations[4 * k + j])] = 1;
    }
    return wanted;
  }

  _planned(varying, outputs, base) {
    const { known, count, program: { operations } } = this;
    let wanted = this._wanted(outputs, (value) => value);
    const { level, same } = this._levels(varying, wanted, base);
    if (base) wanted = this._wanted(outputs, (value) => same[value]);
    const input = (k, j) => { const value = operations[4 * k + j]; return value < 0 ? -1 : same[value]; };
    const lists = [[], [], [], []], last = new Int32Array(known + count).fill(-1);
    for (let k = 0; k < count; k++) if (wanted[known + k]) lists[level[known + k]].push(k);
    // Vectors: those of x for good, those of both until their last use.
    for (const k of lists[3]) for (let j = 1; j < 4; j++) if (input(k, j) >= 0) last[input(k, j)] = k;
    for (const output of outputs) last[same[this.program.outputs[output]]] = count;
    const place = Int32Array.from({ length: known + count }, (_, i) => i), free = [];
    let end = known + count;
    const vector = () => { end += WIDTH; return end - WIDTH; };
    for (const [value, at] of varying) if (at & 1) place[value] = vector();
    for (const k of lists[1]) place[known + k] = vector();
    for (const k of lists[3]) {
      place[known + k] = free.pop() ?? vector();
      const over = new Set();
      for (let j = 1; j < 4; j++) {
        const value = input(k, j);
        if (value >= known && level[value] === 3 && last[value] === k) over.add(place[value]);
      }
      free.push(...over);
    }
    const code = lists.map((list) => {
      const steps = new Int32Array(8 * list.length);
      list.forEach((k, i) => {
        steps[8 * i] = operations[4 * k];
        steps[8 * i + 1] = place[known + k];
        for (let j = 1; j < 4; j++) {
          const value = Math.max(input(k, j), 0);
          steps[8 * i + 2 * j] = place[value];
          steps[8 * i + 2 * j + 1] = level[value] & 1;
        }
      });
      return steps;
    });
    const results = outputs.map((output) => same[this.program.outputs[output]]).map((value) => [place[value], level[value] & 1]);
    return { code, place, results, size: end };
  }

  _run(steps, n) {
    const { kernels } = this;
    for (let i = 0; i < steps.length; i += 8) {
      kernels[steps[i]](steps[i + 1], n, steps[i + 2], steps[i + 3], steps[i + 4], steps[i + 5], steps[i + 6], steps[i + 7]);
    }
  }

  /**
   * Outputs of designs, an array [y, x] each.
   *
   * base: values of all inputs; x, y: input → its values along x, or y; both: input → the function of (place along x,
   * place along y) that it is.
   */
  over(base, outputs, varying) {
    const rows = this.rows(base, outputs, varying);
    for (;;) {
      const { done, value } = rows.next();
      if (done) return value;
    }
  }

  /** The same a row at a time, folded or not: a caller that stops in between must not use the machine otherwise. */
  *rows(base, outputs, { x, y = new Map(), both = new Map() }, isFolded = false) {
    const levels = [...[...x.keys()].map((i) => [i, 1]), ...[...y.keys()].map((i) => [i, 2]), ...[...both.keys()].map((i) => [i, 3])];
    const { code, place, results } = this.plan(new Map(levels), outputs, isFolded ? base : null);
    const { F, I } = this;
    const nx = x.size ? x.values().next().value.length : 1, ny = y.size ? y.values().next().value.length : 1;
    const found = outputs.map(() => new Float64Array(nx * ny));
    F.set(base);
    this._run(code[0], 1);
    for (let from = 0; from < nx; from += WIDTH) {
      const n = Math.min(WIDTH, nx - from);
      for (const [input, values] of x) for (let i = 0; i < n; i++) F[place[input] + i] = values[from + i];
      this._run(code[1], n);
      for (let row = 0; row < ny; row++) {
        for (const [input, values] of y) F[place[input]] = values[row];
        for (const [input, of] of both) for (let i = 0; i < n; i++) F[place[input] + i] = of(from + i, row);
        this._run(code[2], 1);
        this._run(code[3], n);
        outputs.forEach((output, k) => {
          const [at, step] = results[k], numbers = this.isWhole.has(output) ? I : F;
          for (let i = 0; i < n; i++) found[k][row * nx + from + i] = numbers[at + i * step];
        });
        yield found;
      }
    }
    return found;
  }

  /** All outputs of one design. */
  at(base) {
    this.all ??= this.program.outputs.map((_, i) => i);
    return Float64Array.from(this.over(base, this.all, { x: new Map() }), (one) => one[0]);
  }
}

const NUMBERS = { inf: Infinity, "-inf": -Infinity, nan: NaN };
