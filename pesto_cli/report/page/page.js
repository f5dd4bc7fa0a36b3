"use strict";

// SVG charts take their colours from the style sheet, so they follow the theme, also in print.
const FAINT = "var(--faint)", LINE = "var(--line)";
const MOST_FOUND = 50;
// The shortest visible part of a step, as a share of the step and in us; AROUND: the same around an op.
const FINEST = 1e-6, FINEST_US = 0.01, AROUND = 1e-4;

/** Returns the data of the page, decompressed by the browser. */
async function unpacked() {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  for (const graph of data.graphs) graph.known = new Set(graph.names);
  for (const drawn of data.placements) drawn.ops = data.graphs[drawn.graph];
  return data;
}

/** Returns Vega's settings for a page width; row labels have the same width, `labels`, in all charts. */
function config(width, labels) {
  const size = width < 600 ? 10 : 12;
  const text = { labelColor: "var(--ink)", labelFontSize: size, titleColor: FAINT, titleFontSize: size, titleFontWeight: 400 };
  return {
    font: "system-ui, sans-serif",
    aria: false, // thousands of labels; the tables have the figures
    background: "transparent",
    view: { stroke: LINE },
    axis: { ...text, gridColor: LINE, domainColor: LINE, tickColor: LINE, labelLimit: labels },
    axisY: { minExtent: labels, maxExtent: labels },
    axisX: { tickCount: width < 600 ? 5 : 10, labelFlush: true },
    title: { color: "var(--ink)", fontSize: size + 1, fontWeight: 600, anchor: "start", frame: "group", subtitleColor: FAINT, subtitleFontSize: size },
    legend: { ...text, columns: Math.max(2, Math.floor(width / 160)), offset: 8 },
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

/** Returns chart layers that mark an op: a frame around its bar, even a very short one, and its name. */
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

  /** Marks an op; its name is drawn on the side with more space. */
  mark(op) {
    this.marked = op;
    const { device, start_us, took_us, us_per_unit, makespan_us } = this.drawn;
    const from = start_us[op] / us_per_unit, to = (start_us[op] + took_us[op]) / us_per_unit;
    const side = start_us[op] + took_us[op] / 2 > makespan_us / 2
      ? { beside: from, align: "right", dx: -5 } : { beside: to, align: "left", dx: 5 };
    const row = this.data.devices[device[op]], name = this.drawn.ops.names[op];
    return this.view?.data("marked", [{ row, from, to, name, ...side }]).runAsync();
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
    const { devices, most_bars } = this.data, { types, names, output_bytes } = this.drawn.ops;
    const { device, start_us, took_us, transfers, us_per_unit } = this.drawn, found = [];
    const add = (row, op, type, start, took, bytes) => {
      const bar = { row, from: start / us_per_unit, to: (start + took) / us_per_unit, took, name: names[op], type, bytes };
      if (took > 0 && bar.to > from && bar.from < to)
        found.push({ ...bar, colour: this.coloured.has(type) ? type : "other types" });
    };
    start_us.forEach((start, op) => add(devices[device[op]], op, types[op], start, took_us[op], output_bytes[op]));
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
    const labels = width < 600 ? 84 : 120, inner = width - labels - 24;
    const { over_time, busy, layers } = this.drawn;
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

/** The table of ops whose name or type contains the query: an exact match first, then the longest. */
class Search {
  constructor(data) {
    this.data = data;
    this.query = document.getElementById("query");
    this.rows = document.querySelector("#ops tbody");
    this.query.addEventListener("input", () => this.fill());
  }

  show(placement) {
    const { took_us, unit } = placement.drawn;
    document.getElementById("start").textContent = `start ${unit}`;
    this.placement = placement;
    this.order = [...took_us.keys()].sort((one, other) => took_us[other] - took_us[one]);
    this.critical = new Set(placement.drawn.critical);
    this.chosen = placement.drawn.ops.names.indexOf(this.name);
    if (this.chosen >= 0) placement.bars.mark(this.chosen);
    this.fill();
  }

  find(name) {
    this.query.value = name;
    this.fill();
    this.choose(this.placement.drawn.ops.names.indexOf(name));
    this.rows.closest(".wide").scrollTop = 0;
    document.getElementById("find").scrollIntoView();
  }

  /** Marks an op in the table and in the chart. */
  choose(op) {
    this.chosen = op;
    this.name = this.placement.drawn.ops.names[op]; // in another graph, the op may have another index
    for (const row of this.rows.rows) this.markRow(row);
    return this.placement.bars.mark(op);
  }

  markRow(row) {
    if (Number(row.dataset.op) === this.chosen) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }

  fill() {
    const { names, types } = this.placement.drawn.ops, query = this.query.value.trim().toLowerCase();
    const found = this.order.filter((op) => `${names[op]}\n${types[op]}`.toLowerCase().includes(query));
    const isCalled = (op) => names[op].toLowerCase() === query;
    found.sort((one, other) => isCalled(other) - isCalled(one));
    const more = found.length > MOST_FOUND ? `; the longest ${MOST_FOUND} are shown` : "";
    document.getElementById("found").textContent =
      `${found.length.toLocaleString("en")} of ${names.length.toLocaleString("en")} ops${more}`;
    this.rows.replaceChildren(...found.slice(0, MOST_FOUND).map((op) => this.row(op)));
  }

  row(op) {
    const { drawn } = this.placement, { names, types } = drawn.ops, { devices } = this.data;
    const row = document.createElement("tr"), name = document.createElement("th"), button = document.createElement("button");
    button.textContent = names[op];
    button.title = "Show it in the chart above";
    button.addEventListener("click", () => this.zoomTo(op));
    name.scope = "row";
    name.append(button);
    row.append(name);
    row.dataset.op = op;
    this.markRow(row);
    const start = (drawn.start_us[op] / drawn.us_per_unit).toFixed(3), took = drawn.took_us[op].toFixed(2);
    for (const [text, kind] of [
      [types[op]], [devices[drawn.device[op]]], [start, "number"], [took, "number"], [this.critical.has(op) ? "yes" : ""],
    ]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (kind) cell.className = kind;
      row.append(cell);
    }
    return row;
  }

  async zoomTo(op) {
    const { drawn, place } = this.placement, start = drawn.start_us[op], end = start + drawn.took_us[op];
    const around = Math.max(4 * (end - start), AROUND / 2 * drawn.makespan_us);
    await this.choose(op);
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
