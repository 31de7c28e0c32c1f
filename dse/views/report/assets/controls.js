// Controls: choices of columns, constraints, the legend.

const byId = (id) => document.getElementById(id);

/** An element with attributes and content, all of it text. */
function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...content);
  return made;
}

/** Fill a select with columns, by kind. */
function offer(select, shown) {
  const groups = [["Design", axes], ["Metrics", metrics]];
  for (const [label, own] of groups) {
    const listed = own.filter((column) => shown(column));
    if (!listed.length) continue;
    const options = listed.map((column) =>
      element("option", { value: columns.indexOf(column), title: column.about }, heading(column)));
    select.append(element("optgroup", { label }, ...options));
  }
}

/** Whether a logarithm shows a column better. */
function wantsLog(column) {
  if (isNames(column)) return false;
  const [low, high] = extent(column);
  return low > 0 && high > 30 * low;
}

// --- constraints ------------------------------------------------------------------------------------------

/** A constraint on a column: its element, and the test of a design. */
function constraint(column, changed, removed) {
  const remove = element("button", { type: "button", "aria-label": `Remove the constraint on ${column.label}`, onclick: () => removed() }, "✕");
  const head = element("div", { class: "head" }, element("strong", { title: column.about }, heading(column)), remove);
  const made = column.texts && column.texts.length <= 40 ? ofSet(column, changed) : ofRange(column, changed);
  return { column, test: made.test, element: element("div", { class: "filter", role: "group", "aria-label": heading(column) }, head, made.element) };
}

/** Some of a column's values. */
function ofSet(column, changed) {
  const kept = new Uint8Array(column.texts.length).fill(1);
  const boxes = column.texts.map((name, i) => {
    const box = element("input", { type: "checkbox", checked: true, onchange: () => { kept[i] = box.checked ? 1 : 0; changed(); } });
    return element("label", { class: "check" }, box, name);
  });
  return { element: element("div", { class: "set" }, ...boxes), test: (row) => kept[stored(column, row)] === 1 };
}

/** Numbers from and up to. */
function ofRange(column, changed) {
  const [least, most] = extent(column);
  let low = -Infinity, high = Infinity;
  const input = (label, placeholder, take) => element("input", {
    type: "number", step: "any", "aria-label": `${heading(column)} ${label}`, placeholder: digits(placeholder).replaceAll(",", ""),
    oninput: (event) => { take(event.target.value === "" ? undefined : Number(event.target.value)); changed(); },
  });
  const from = input("at least", least, (value) => { low = value ?? -Infinity; });
  const to = input("at most", most, (value) => { high = value ?? Infinity; });
  const test = (row) => {
    const value = number(column, row);
    return (value >= low && value <= high) || (Number.isNaN(value) && low === -Infinity && high === Infinity);
  };
  return { element: element("div", { class: "range" }, from, "to", to), test };
}

// --- legend -----------------------------------------------------------------------------------------------

/** What the colours mean. */
function drawLegend(place, column, colours, anyCannot) {
  const keys = [element("strong", {}, heading(column))];
  const dot = (colour) => element("i", { style: { background: colour } });
  if (colours.names) {
    column.texts.forEach((name, i) => keys.push(element("span", { class: "key" }, dot(colours.palette[i]), name || "can run")));
  } else {
    const end = (value) => digits(colours.log ? 10 ** value : value);
    const shades = colours.palette.filter((_, i) => i % 16 === 0).join(", ");
    const bar = element("span", { class: "ramp", style: { background: `linear-gradient(to right, ${shades})` } });
    keys.push(element("span", { class: "key" }, end(colours.low), bar, end(colours.high) + (colours.log ? " (log)" : "")));
  }
  if (anyCannot) keys.push(element("span", { class: "key" }, dot("var(--cannot)"), "cannot run"));
  place.replaceChildren(...keys);
}
