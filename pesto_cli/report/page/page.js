"use strict";

// SVG charts take their colours from the style sheet, so they follow the theme, also in print.
const FAINT = "var(--faint)", LINE = "var(--line)";
const MOST_FOUND = 50, MOST_NAMED = 3;
// The shortest visible part of a step, as a share of the step and in us; AROUND: the same around an op.
const FINEST = 1e-6, FINEST_US = 0.01, AROUND = 1e-4;

/** Returns the data of the page, decompressed by the browser. */
async function unpacked() {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  for (const graph of data.graphs) {
    graph.known = new Set(graph.names);
    graph.families = familiesOf(graph, data.made);
    graph.familyOf = [];
    for (const family of graph.families) for (const op of family.ops) graph.familyOf[op] = family;
  }
  for (const drawn of data.placements) {
    drawn.ops = data.graphs[drawn.graph];
    for (const each of [drawn, drawn.transfers]) each.start_us = timesUs(each.start_steps_ns);
  }
  return data;
}

/** Returns times in us; each step is the time in ns from the one before. */
function timesUs(steps) {
  let ns = 0;
  return steps.map((step) => (ns += step) / 1000);
}

/** Returns the ops of a graph by families: an op alone, or all ops that an op became when ops were split. */
function familiesOf({ names, types, whole, family, made }, words) {
  if (!whole) return names.map((name, op) => ({ name, type: types[op], what: types[op], ops: [op], text: `${name}\n${types[op]}`.toLowerCase() }));
  const found = whole.names.map((name, each) => ({ name, type: whole.types[each], ops: [] }));
  family.forEach((each, op) => found[each].ops.push(op));
  for (const each of found) {
    const count = (word) => each.ops.filter((op) => words[made[op]] === word).length, parts = count("part");
    const added = each.ops.length - parts - count("whole");
    const counts = [parts && `${parts} parts`, added && `${added} added`].filter(Boolean);
    each.what = [each.type, ...counts].join(", ");
    each.own = `${each.name}\n${each.type}`.toLowerCase();
    each.text = [each.own, ...each.ops.map((op) => `${names[op]}\n${types[op]}`.toLowerCase())].join("\n");
  }
  return found.filter((each) => each.ops.length);
}

/** Returns the width of row labels: that of the longest one, within limits. */
function widthOfLabels(width, rows) {
  const [least, of_letter] = width < 600 ? [84, 6.5] : [120, 7.5];
  const longest = Math.max(0, ...rows.map((row) => row.length));
  return Math.max(least, Math.min(of_letter * longest, 0.3 * width));
}

/** Returns Vega's settings for a page width; row labels have the same width, `labels`, in all charts. */
function config(width, labels) {
  const isNarrow = width < 600, size = isNarrow ? 10 : 12;
  const text = { labelColor: "var(--ink)", labelFontSize: size, titleColor: FAINT, titleFontSize: size, titleFontWeight: 400 };
  return {
    font: "system-ui, sans-serif",
    aria: false, // thousands of labels; the tables have the figures
    background: "transparent",
    view: { stroke: LINE },
    axis: { ...text, gridColor: LINE, domainColor: LINE, tickColor: LINE, labelLimit: labels },
    axisY: { minExtent: labels, maxExtent: labels },
    axisX: { tickCount: isNarrow ? 5 : 10, labelFlush: true },
    // On a narrow page, titles also stand above the row labels.
    title: { color: "var(--ink)", fontSize: isNarrow ? size : size + 1, fontWeight: 600, anchor: "start", frame: isNarrow ? "bounds" : "group", subtitleColor: FAINT, subtitleFontSize: size },
    legend: { ...text, columns: Math.max(1, Math.floor((width - labels) / 200)), offset: 8 },
  };
}

/** Returns a function that calls `call` when no other call follows within `ms` milliseconds. */
function settled(call, ms) {
  let soon;
  return (...values) => {
    clearTimeout(soon);
    soon = setTimeout(call, ms, ...values);
  };
}

/** Returns chart layers that mark ops: a frame around each bar, even a very short one, and its name. */
function marking({ x, x2, y }) {
  const data = { name: "marked" };
  const frame = { type: "bar", height: 21, filled: false, stroke: "var(--ink)", strokeWidth: 2, clip: true };
  const text = { type: "text", fill: "var(--ink)", fontWeight: 600, align: { expr: "datum.align" }, dx: { expr: "datum.dx" }, dir: "rtl", clip: true };
  return [
    { name: "marked", data, mark: frame, encoding: { x, x2, y } },
    { name: "marked_name", data, mark: text, encoding: { x: { ...x, field: "beside" }, y, text: { field: "name" } } },
  ];
}

/** The bars of a placement's Gantt chart: short ones are merged unless the chart is zoomed in. */
class Bars {
  constructor(data, drawn) {
    this.data = data;
    this.drawn = drawn;
    const { layer } = drawn.over_time.vconcat[0];
    [this.chart] = layer;
    this.marking = marking(this.chart.encoding);
    layer.push(...this.marking);
    this.coloured = new Set(this.chart.encoding.color.scale.domain);
  }

  drawnIn(view) {
    this.view = view;
    this.merged = view.data(this.chart.data.name);
    this.single = false;
    if (this.marked !== undefined) this.mark(this.marked);
  }

  /** Marks some ops. */
  mark(ops) {
    this.marked = ops;
    return this.view?.data("marked", ops.map((op) => this.frame(op))).runAsync();
  }

  /** Returns the frame of an op; its name is drawn on the side with more space. */
  frame(op) {
    const { device, start_us, took_us, us_per_unit, makespan_us } = this.drawn;
    const from = start_us[op] / us_per_unit, to = (start_us[op] + took_us[op]) / us_per_unit;
    const side = start_us[op] + took_us[op] / 2 > makespan_us / 2
      ? { beside: from, align: "right", dx: -5 } : { beside: to, align: "left", dx: 5 };
    return { row: this.data.devices[device[op]], from, to, name: this.drawn.ops.names[op], ...side };
  }

  /** Shows every op and transfer near a part of the step, if there are few enough. */
  async show(from, to) {
    if (!this.merged.some((bar) => !this.isOne(bar))) return;
    const some = this.within(2 * from - to, 2 * to - from) ?? this.within(from, to);
    if (!some && !this.single) return;
    this.single = Boolean(some);
    await this.view.data(this.chart.data.name, some ?? this.merged).runAsync();
  }

  isOne(bar) {
    return this.drawn.ops.known.has(bar.name);
  }

  within(from, to) {
    const { devices, most_bars, added } = this.data, { types, names, made, output_bytes } = this.drawn.ops;
    const { device, start_us, took_us, transfers, us_per_unit } = this.drawn, found = [];
    const kind = (op) => (made && added[this.data.made[made[op]]]) ?? types[op];
    const add = (row, op, type, start, took, bytes, kind = type) => {
      const bar = { row, from: start / us_per_unit, to: (start + took) / us_per_unit, took, name: names[op], type, bytes };
      if (took > 0 && bar.to > from && bar.from < to)
        found.push({ ...bar, colour: this.coloured.has(kind) ? kind : "other types" });
    };
    start_us.forEach((start, op) => add(devices[device[op]], op, types[op], start, took_us[op], output_bytes[op], kind(op)));
    transfers.start_us.forEach((start, each) =>
      add(transfers.row[each], transfers.op[each], "transfer", start, transfers.took_us[each], transfers.bytes[each]));
    return found.length > most_bars ? null : found;
  }
}

class Placement {
  constructor(data, index, find) {
    this.drawn = data.placements[index];
    this.bars = new Bars(data, this.drawn);
    const step_us = this.drawn.makespan_us || 1;
    this.until = step_us / this.drawn.us_per_unit;
    this.least = Math.min(step_us, Math.max(FINEST * step_us, FINEST_US)) / this.drawn.us_per_unit;
    this.place = document.getElementById(`placement-${index}`);
    this.find = find;
    for (const button of this.place.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", () => this.zoom(button.dataset.zoom));
  }

  async draw() {
    const width = this.place.clientWidth;
    if (width === 0 || width === this.width) return;
    this.width = width;
    const range = this.range();
    const { over_time, busy, layers } = this.drawn;
    const labels = widthOfLabels(width, busy.encoding.y.scale.domain), inner = width - labels - 24;
    for (const chart of [...over_time.vconcat, busy]) chart.width = inner;
    layers.width = width - 8;
    this.bars.marking[1].mark.limit = inner / 2 - 8;
    const options = { mode: "vega-lite", renderer: "svg", actions: false, config: config(width, labels) };
    for (const chart of this.charts ?? []) chart.finalize();
    const places = [...this.place.querySelectorAll("[data-chart]")];
    this.charts = await Promise.all(places.map((place) => vegaEmbed(place, this.drawn[place.dataset.chart], options)));
    this.view = this.charts[0].view;
    this.bars.drawnIn(this.view);
    this.view.addEventListener("click", (_, item) => item?.datum?.name && this.open(item.datum));
    const look = settled((from, to) => this.bars.show(from, to), 100);
    this.view.addSignalListener("zoom_from", (_, range) => {
      if (range) this.show(...range);
      look(...(range ?? [0, this.until]));
    });
    await this.showUs(...range);
  }

  /** Returns the visible part of the step, in us. */
  range() {
    const { us_per_unit } = this.drawn, [from, to] = this.view?.signal("zoom_from") ?? [0, this.until];
    return to - from < this.until ? [from * us_per_unit, to * us_per_unit] : [0, Infinity];
  }

  showUs(from, to) {
    return this.show(from / this.drawn.us_per_unit, to / this.drawn.us_per_unit);
  }

  /** Finds the op of a bar, or zooms in to the ops of a merged bar. */
  open(bar) {
    if (this.bars.isOne(bar)) this.find(bar.name);
    else this.show(bar.from - (bar.to - bar.from) / 2, bar.to + (bar.to - bar.from) / 2);
  }

  /** Shows a part of the step; it is moved if it lies outside, and extended if it is too short. */
  async show(from, to) {
    const missing = Math.max(0, this.least - (to - from));
    const length = Math.min(to - from + missing, this.until);
    const start = Math.min(Math.max(0, from - missing / 2), this.until - length);
    const [before, after] = this.view.signal("zoom_from") ?? [0, this.until];
    const isThere = (one, other) => Math.abs(one - other) < 1e-6 * length;
    if (isThere(start, before) && isThere(start + length, after)) return;
    await this.view.signal("zoom_from", [start, start + length]).runAsync();
  }

  zoom(how) {
    const [from, to] = this.view.signal("zoom_from") ?? [0, this.until];
    const quarter = (to - from) / 4;
    const moves = { in: [1, -1], out: [-2, 2], left: [-1, -1], right: [1, 1] };
    if (how === "all") this.show(0, this.until);
    else this.show(from + moves[how][0] * quarter, to + moves[how][1] * quarter);
  }
}

/**
 * The table of ops whose name or type contains the query: an exact match first, then the longest.
 *
 * The ops of a family are folded into one row, unless only they match the query.
 */
class Search {
  constructor(data) {
    this.data = data;
    this.query = document.getElementById("query");
    this.rows = document.querySelector("#ops tbody");
    this.isOpen = new Map(); // families that were folded or unfolded by hand
    this.query.addEventListener("input", () => {
      this.isOpen.clear();
      this.fill();
    });
  }

  show(placement) {
    const { took_us, unit, ops } = placement.drawn;
    document.getElementById("start").textContent = `start ${unit}`;
    this.placement = placement;
    const total = new Map(ops.families.map((family) => [family, family.ops.reduce((sum, op) => sum + took_us[op], 0)]));
    this.took = (family) => total.get(family);
    this.order = [...ops.families].sort((one, other) => total.get(other) - total.get(one));
    this.critical = new Set(placement.drawn.critical);
    if (this.chosen) placement.bars.mark(this.chosenOps());
    this.fill();
  }

  find(name) {
    const { names, familyOf } = this.placement.drawn.ops, op = names.indexOf(name);
    this.query.value = name;
    this.isOpen.set(familyOf[op].name, true);
    this.fill();
    this.choose(familyOf[op], op);
    this.rows.closest(".wide").scrollTop = 0;
    document.getElementById("find").scrollIntoView();
  }

  /** Marks an op, or else all ops of a family, in the table and in the chart. */
  choose(family, op) {
    this.chosen = { family: family.name, op: family.ops.length > 1 ? this.placement.drawn.ops.names[op] : undefined };
    for (const row of this.rows.rows) this.markRow(row);
    return this.placement.bars.mark(this.chosenOps());
  }

  /** Returns the chosen ops: in another placement, their indices and their number may differ. */
  chosenOps() {
    const { families, names } = this.placement.drawn.ops, { took_us } = this.placement.drawn;
    const ops = families.find((family) => family.name === this.chosen?.family)?.ops ?? [];
    const one = ops.filter((op) => names[op] === this.chosen.op), long = ops.filter((op) => took_us[op] > 0);
    return one.length ? one : long.length ? long : ops;
  }

  markRow(row) {
    const { names } = this.placement.drawn.ops, ops = row.dataset.family === this.chosen?.family ? this.chosenOps() : [];
    const isOne = ops.length === 1 && names[ops[0]] === this.chosen.op;
    if (row.dataset.op ? isOne && row.dataset.op === this.chosen.op : ops.length && !isOne) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }

  fill() {
    const { names, families } = this.placement.drawn.ops, query = this.query.value.trim().toLowerCase();
    const found = this.order.filter((family) => family.text.includes(query));
    const isCalled = (family) => family.name.toLowerCase() === query || family.ops.some((op) => names[op].toLowerCase() === query);
    if (query) found.sort((one, other) => isCalled(other) - isCalled(one));
    const more = found.length > MOST_FOUND ? `; the longest ${MOST_FOUND} are shown` : "";
    const count = (number) => number.toLocaleString("en");
    const split = families.length < names.length ? ` (${count(names.length)} with parts and added ops)` : "";
    document.getElementById("found").textContent = `${count(found.length)} of ${count(families.length)} ops${split}${more}`;
    this.rows.replaceChildren(...found.slice(0, MOST_FOUND).flatMap((family) => this.rowsOf(family, query)));
  }

  rowsOf(family, query) {
    if (family.ops.length === 1) return [this.opRow(family, family.ops[0])];
    const isOpen = this.isOpen.get(family.name) ?? !family.own.includes(query);
    return [this.familyRow(family, isOpen), ...(isOpen ? family.ops.map((op) => this.opRow(family, op)) : [])];
  }

  opRow(family, op) {
    const { names, types, made } = this.placement.drawn.ops, { drawn } = this.placement;
    const isMember = family.ops.length > 1, word = made && isMember ? this.data.made[made[op]] : "whole";
    const type = word === "whole" || word === "part" ? types[op] : `${types[op]} (${word})`;
    const row = this.row(names[op], type, [op], drawn.took_us[op], () => this.zoomTo(family, op));
    row.dataset.family = family.name;
    if (isMember) row.dataset.op = names[op];
    this.markRow(row);
    return row;
  }

  familyRow(family, isOpen) {
    const row = this.row(family.name, family.what, family.ops, this.took(family), () => this.zoomTo(family));
    const fold = document.createElement("button");
    fold.className = "fold";
    fold.textContent = isOpen ? "\u25be" : "\u25b8";
    fold.setAttribute("aria-expanded", isOpen);
    fold.setAttribute("aria-label", `ops of ${family.name}`);
    fold.addEventListener("click", () => {
      const before = this.rows.closest(".wide").scrollTop;
      this.isOpen.set(family.name, !isOpen);
      this.fill();
      this.rows.closest(".wide").scrollTop = before;
      [...this.rows.rows].find((each) => each.dataset.family === family.name).querySelector(".fold").focus();
    });
    row.cells[0].prepend(fold);
    row.dataset.family = family.name;
    this.markRow(row);
    return row;
  }

  /** Returns a row for some ops: their devices, first start, time in total, and whether one is critical. */
  row(text, type, ops, took, click) {
    const { drawn } = this.placement, { devices } = this.data;
    const row = document.createElement("tr"), name = document.createElement("th"), button = document.createElement("button");
    button.textContent = text;
    button.title = "Show it in the chart above";
    button.addEventListener("click", click);
    name.scope = "row";
    name.append(button);
    row.append(name);
    const where = [...new Set(ops.map((op) => drawn.device[op]))].sort((one, other) => one - other);
    const on = where.length > MOST_NAMED ? `${where.length} devices` : where.map((device) => devices[device]).join(", ");
    const start = (Math.min(...ops.map((op) => drawn.start_us[op])) / drawn.us_per_unit).toFixed(3);
    const critical = ops.some((op) => this.critical.has(op)) ? "yes" : "";
    for (const [text, kind] of [[type], [on], [start, "number"], [took.toFixed(2), "number"], [critical]]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (kind) cell.className = kind;
      row.append(cell);
    }
    return row;
  }

  /** Shows an op, or else all ops of a family, in the chart. */
  async zoomTo(family, op) {
    const { drawn, place } = this.placement;
    await this.choose(family, op);
    const ops = this.chosenOps(), start = Math.min(...ops.map((each) => drawn.start_us[each]));
    const end = Math.max(...ops.map((each) => drawn.start_us[each] + drawn.took_us[each]));
    const around = Math.max((ops.length > 1 ? 1 : 4) * (end - start), AROUND / 2 * drawn.makespan_us);
    this.placement.showUs(start - around, end + around);
    place.querySelector(".tools").scrollIntoView();
  }
}

async function start() {
  const data = await unpacked(), search = new Search(data);
  const placements = data.placements.map((_, index) => new Placement(data, index, (name) => search.find(name)));
  let chosen;
  const choose = async (index) => {
    const range = chosen?.range();
    chosen = placements[index];
    for (const each of placements) each.place.hidden = each !== chosen;
    search.show(chosen);
    await chosen.draw();
    if (range) await chosen.showUs(...range);
  };
  for (const input of document.querySelectorAll("#switch input"))
    input.addEventListener("change", () => choose(Number(input.value)));
  document.getElementById("switch").hidden = placements.length === 1;
  document.getElementById("theme").addEventListener("change", (event) => {
    document.documentElement.style.colorScheme = event.target.value;
  });
  window.addEventListener("resize", settled(() => chosen.draw(), 200));
  await choose(0);
  document.body.dataset.drawn = "yes";
}

start();
