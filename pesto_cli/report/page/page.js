"use strict";

// Charts as SVG take their colours from the style sheet, and so follow the theme and the printer.
const FAINT = "var(--faint)", LINE = "var(--line)";
const MOST_FOUND = 50;

/** The page's data, unpacked by the browser. */
async function unpacked() {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  data.known = new Set(data.names);
  return data;
}

/** Vega's settings for a page of some width; labels of rows take the same room in all charts. */
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
    title: { color: "var(--ink)", fontSize: size + 1, fontWeight: 600, anchor: "start", frame: "group" },
    legend: { ...text, columns: Math.max(2, Math.floor(width / 160)), offset: 8 },
  };
}

/** Calls what is given once it has not been asked to for a while. */
function settled(call, ms) {
  let soon;
  return (...values) => {
    clearTimeout(soon);
    soon = setTimeout(call, ms, ...values);
  };
}

/** The bars of a placement's Gantt chart: many short ones are merged until one looks closer. */
class Bars {
  constructor(data, drawn) {
    this.data = data;
    this.drawn = drawn;
    [this.chart] = drawn.over_time.vconcat[0].layer;
    this.coloured = new Set(this.chart.encoding.color.scale.domain);
  }

  drawnIn(view) {
    this.view = view;
    this.merged = view.data(this.chart.data.name);
    this.single = false;
  }

  /** Shows each op and transfer around a part of the step, if they are few enough. */
  async show(from, to) {
    if (!this.merged.some((bar) => !this.isOne(bar))) return;
    const some = this.within(2 * from - to, 2 * to - from) ?? this.within(from, to);
    if (!some && !this.single) return;
    this.single = Boolean(some);
    await this.view.data(this.chart.data.name, some ?? this.merged).runAsync();
  }

  isOne(bar) {
    return this.data.known.has(bar.name);
  }

  within(from, to) {
    const { devices, types, names, output_bytes, most_bars } = this.data;
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
    this.until = (this.drawn.makespan_us || 1) / this.drawn.us_per_unit;
    this.place = document.getElementById(`placement-${index}`);
    this.find = find;
    for (const button of this.place.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", () => this.zoom(button.dataset.zoom));
  }

  async draw() {
    const width = this.place.clientWidth;
    if (width === 0 || width === this.width) return;
    this.width = width;
    const labels = width < 600 ? 84 : 120, inner = width - labels - 24;
    const { over_time, busy, layers } = this.drawn;
    for (const chart of [...over_time.vconcat, busy]) chart.width = inner;
    layers.width = width - 8;
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
  }

  /** Finds the op of a bar, or looks at what the bar stands for. */
  open(bar) {
    if (this.bars.isOne(bar)) this.find(bar.name);
    else this.show(bar.from - (bar.to - bar.from) / 2, bar.to + (bar.to - bar.from) / 2);
  }

  /** Shows a part of the step, moved into it if it lies beyond. */
  async show(from, to) {
    const length = Math.min(to - from, this.until);
    const start = Math.min(Math.max(0, from), this.until - length);
    const [before, after] = this.view.signal("zoom_from") ?? [];
    if (start === before && start + length === after) return;
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

/** The table of ops: those whose name or type has the query in it, the longest first. */
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
    this.fill();
  }

  find(name) {
    this.query.value = name;
    this.fill();
    document.getElementById("find").scrollIntoView();
  }

  fill() {
    const { names, types } = this.data, query = this.query.value.trim().toLowerCase();
    const found = this.order.filter((op) => `${names[op]}\n${types[op]}`.toLowerCase().includes(query));
    const more = found.length > MOST_FOUND ? `, the longest ${MOST_FOUND} are shown` : "";
    document.getElementById("found").textContent =
      `${found.length.toLocaleString("en")} of ${names.length.toLocaleString("en")} ops${more}`;
    this.rows.replaceChildren(...found.slice(0, MOST_FOUND).map((op) => this.row(op)));
  }

  row(op) {
    const { names, types, devices } = this.data, { drawn } = this.placement;
    const row = document.createElement("tr"), name = document.createElement("th"), button = document.createElement("button");
    button.textContent = names[op];
    button.title = "Show it in the chart above";
    button.addEventListener("click", () => this.zoomTo(op));
    name.scope = "row";
    name.append(button);
    row.append(name);
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

  zoomTo(op) {
    const { drawn, place } = this.placement;
    const start = drawn.start_us[op], took = drawn.took_us[op], { us_per_unit } = drawn;
    const around = Math.max(took / 2, drawn.makespan_us / 200);
    this.placement.show((start - around) / us_per_unit, (start + took + around) / us_per_unit);
    place.querySelector(".tools").scrollIntoView();
  }
}

async function start() {
  const data = await unpacked(), search = new Search(data);
  const placements = data.placements.map((_, index) => new Placement(data, index, (name) => search.find(name)));
  let chosen;
  const choose = async (index) => {
    chosen = placements[index];
    for (const each of placements) each.place.hidden = each !== chosen;
    search.show(chosen);
    await chosen.draw();
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
