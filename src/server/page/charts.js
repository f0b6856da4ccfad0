// Live charts: the list of what is drawn, the drawing, and the table with the same numbers.
//
// A chart is shown when the server reports what it needs, so a feature that is off leaves no empty frame.

import { byId, digits, download, h, milliseconds, svg } from "./dom.js";
import { History, RESETS, Sample, parse, quantile } from "./metrics.js";

const DRAWN_MS = 5 * 60 * 1000;

const history = new History();
let model = "";
let windowMs = 30_000;

// -- what is drawn

const percent = (value) => `${digits(value)} %`;
const count = (value) => (Number.isInteger(value) ? String(value) : digits(value));
const perSecond = (value) => `${digits(value)} /s`;

/** p50, p95 and p99 of a histogram of seconds, in ms. */
const latency = (name) =>
  [0.5, 0.95, 0.99].map((q) => ({
    label: `p${q * 100}`,
    value(now, then) {
      const seconds = quantile(q, now.buckets(name, model), then.buckets(name, model));
      return seconds === null ? null : seconds * 1000;
    },
  }));

const gauge = (label, name, scale = 1) => ({
  label,
  value(now) {
    const value = now.sum(name, model);
    return value === null ? null : value * scale;
  },
});

const gained = (name, now, then) => (now.sum(name, model) ?? 0) - (then.sum(name, model) ?? 0);

const rate = (label, name) => ({
  label,
  value(now, then) {
    const seconds = (now.time - then.time) / 1000;
    return seconds > 0 ? gained(name, now, then) / seconds : null;
  },
});

const TTFT = "trine_time_to_first_token_seconds";
const TPOT = "trine_request_time_per_output_token_seconds";
const QUEUE = "trine_request_queue_time_seconds";

const CHARTS = [
  { id: "ttft", title: "Time to first token", note: "of answers that ended in the window", needs: [`${TTFT}_count`], format: milliseconds, series: latency(TTFT) },
  { id: "tpot", title: "Time per output token", note: "mean of each answer that ended in the window", needs: [`${TPOT}_count`], format: milliseconds, series: latency(TPOT) },
  { id: "queue", title: "Queue time", note: "from arrival to the first step", needs: [`${QUEUE}_count`], format: milliseconds, series: latency(QUEUE) },
  {
    id: "tokens",
    title: "Tokens per second",
    note: "computed tokens are those of prompts and answers",
    needs: ["trine_generation_tokens_total", "trine_iteration_tokens_sum"],
    format: perSecond,
    series: [rate("answers", "trine_generation_tokens_total"), rate("computed", "trine_iteration_tokens_sum")],
  },
  {
    id: "requests",
    title: "Requests",
    note: "rejected: refused in the window because the queue was full",
    needs: ["trine_requests_running", "trine_requests_waiting", "trine_requests_rejected_total"],
    format: count,
    whole: true,
    series: [gauge("running", "trine_requests_running"), gauge("waiting", "trine_requests_waiting"), { label: "rejected", value: (now, then) => gained("trine_requests_rejected_total", now, then) }],
  },
  {
    id: "kv",
    title: "Key/value cache",
    note: "pages in use by requests, and kept for the prefix cache",
    needs: ["trine_kv_pages", "trine_kv_pages_free", "trine_kv_pages_evictable"],
    format: percent,
    most: 100,
    series: [
      { label: "in use", value: (now) => share(now, (pages) => pages("trine_kv_pages") - pages("trine_kv_pages_free") - pages("trine_kv_pages_evictable")) },
      { label: "kept", value: (now) => share(now, (pages) => pages("trine_kv_pages_evictable")) },
    ],
  },
  {
    id: "prefix",
    title: "Prefix cache hits",
    note: "share of the looked-up prompt tokens that were found",
    needs: ["trine_prefix_cache_queries_total", "trine_prefix_cache_hits_total"],
    format: percent,
    most: 100,
    series: [
      {
        label: "hit rate",
        value(now, then) {
          const asked = gained("trine_prefix_cache_queries_total", now, then);
          return asked > 0 ? (100 * gained("trine_prefix_cache_hits_total", now, then)) / asked : null;
        },
      },
    ],
  },
];

// What is kept of a page of /metrics.
const USED = new RegExp(`^(${[TTFT, TPOT, QUEUE].map((name) => `${name}_(bucket|count)`).join("|")}|${RESETS.join("|")}|${CHARTS.flatMap((chart) => chart.needs).join("|")})$`);

function share(now, pages) {
  const all = now.sum("trine_kv_pages", model) ?? 0;
  return all > 0 ? (100 * pages((name) => now.sum(name, model) ?? 0)) / all : null;
}

// -- one chart

/** The least of 1, 2, 2.5, 5 times a power of ten that is at least `value`. */
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9));
}

const ago = (ms) => (ms > 90_000 ? `${digits(ms / 60_000).replace(/\.?0+$/, "")} min` : `${Math.round(ms / 1000)} s`);

const cards = new Map();

function makeCard(chart) {
  const title = `chart-${chart.id}-title`;
  const picture = svg("svg", { class: "plot", "aria-hidden": "true", focusable: "false" });
  const cells = chart.series.map(() => ["now", "least", "most"].map(() => h("td")));
  const table = h(
    "table",
    { "aria-labelledby": title },
    h("thead", {}, h("tr", {}, ...["", "Now", "Lowest", "Highest"].map((text) => (text ? h("th", { scope: "col", text }) : h("td"))))),
    h("tbody", {}, ...chart.series.map((series, i) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: `key key-${i}`, "aria-hidden": "true" }), series.label), ...cells[i]))),
  );
  const csv = h("button", { type: "button", class: "quiet", text: "CSV", "aria-label": `${chart.title} as CSV` });
  const node = h("section", { class: "card", id: `chart-${chart.id}`, "aria-labelledby": title }, h("div", { class: "card-head" }, h("h2", { id: title, text: chart.title }), csv), h("p", { class: "hint", text: chart.note }), picture, table);
  const card = { node, picture, cells, points: [], basis: "" };
  csv.addEventListener("click", () => download(`${chart.id}.csv`, csvText(chart, card.points), "text/csv"));
  cards.set(chart.id, card);
  return card;
}

function csvText(chart, points) {
  const rows = points.map(({ time, values }) => [new Date(time).toISOString(), ...values.map((value) => value ?? "")].join(","));
  return `${["time", ...chart.series.map((series) => series.label)].join(",")}\n${rows.join("\n")}\n`;
}

/** Brings a card's points up to the newest sample. Those it has stay: they depend on the past only. */
function extend(chart, card) {
  const basis = `${history.epoch} ${windowMs} ${model}`;
  if (card.basis !== basis) {
    card.basis = basis;
    card.points = [];
  }
  const from = history.samples.at(-1).time - DRAWN_MS;
  const known = card.points.at(-1)?.time ?? -Infinity;
  history.samples.forEach((sample, index) => {
    if (sample.time > known && sample.time >= from) {
      const then = history.start(index, windowMs);
      card.points.push({ time: sample.time, values: chart.series.map((series) => series.value(sample, then)) });
    }
  });
  card.points = card.points.filter(({ time }) => time >= from);
}

const HEIGHT = 150;
const LEFT = 66;
const BOTTOM = 20;

function draw(chart, card) {
  const { picture, points } = card;
  const width = Math.max(picture.clientWidth, 200);
  const all = points.flatMap(({ values }) => values).filter((value) => value !== null);
  const highest = Math.max(0, ...all);
  let top = chart.most ?? (highest > 0 ? niceCeiling(highest) : 1);
  if (chart.whole) {
    top = Math.max(2 * Math.ceil(top / 2), 4); // its half is whole too
  }
  const end = points.at(-1)?.time ?? 0;
  // A page that was just opened shows its first minute, not a wide empty frame.
  const span = Math.min(DRAWN_MS, Math.max(60_000, end - (points[0]?.time ?? end)));
  const x = (time) => LEFT + ((width - LEFT - 8) * (time - end + span)) / span;
  const y = (value) => 8 + (HEIGHT - BOTTOM - 8) * (1 - Math.min(value, top) / top);
  const nodes = [];
  for (const part of [0, 0.5, 1]) {
    nodes.push(svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(part * top), y2: y(part * top) }));
    nodes.push(svg("text", { class: "tick", x: LEFT - 8, y: y(part * top) + 4, "text-anchor": "end" }, chart.format(part * top)));
  }
  for (const [age, label, anchor] of [[span, `${ago(span)} ago`, "start"], [span / 2, ago(span / 2), "middle"], [0, "now", "end"]]) {
    nodes.push(svg("text", { class: "tick", x: x(end - age), y: HEIGHT - 4, "text-anchor": anchor }, label));
  }
  chart.series.forEach((_, i) => {
    let path = "";
    let open = false;
    for (const { time, values } of points) {
      if (values[i] !== null) {
        path += `${open ? "L" : "M"}${x(time).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      }
      open = values[i] !== null;
    }
    nodes.push(svg("path", { class: `line line-${i}`, d: path }));
    const latest = points.at(-1);
    if (latest && latest.values[i] !== null) {
      nodes.push(svg("circle", { class: `dot dot-${i}`, cx: x(latest.time), cy: y(latest.values[i]), r: 3 }));
    }
  });
  picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  picture.replaceChildren(...nodes);
}

function fillTable(chart, card) {
  card.cells.forEach((cells, i) => {
    const values = card.points.map(({ values }) => values[i]);
    const known = values.filter((value) => value !== null);
    const texts = [values.at(-1) ?? null, known.length > 0 ? Math.min(...known) : null, known.length > 0 ? Math.max(...known) : null];
    cells.forEach((cell, k) => {
      const text = texts[k] === null ? "–" : chart.format(texts[k]);
      if (cell.textContent !== text) {
        cell.textContent = text;
      }
    });
  });
}

// -- the whole

function show() {
  const latest = history.samples.at(-1);
  if (!latest || byId("charts").hidden) {
    return;
  }
  const host = byId("chart-cards");
  const shown = CHARTS.filter((chart) => chart.needs.every((name) => latest.has(name)));
  for (const chart of CHARTS) {
    if (!shown.includes(chart)) {
      cards.get(chart.id)?.node.remove();
    }
  }
  for (const chart of shown) {
    const card = cards.get(chart.id) ?? makeCard(chart);
    if (!card.node.isConnected) {
      host.append(card.node);
    }
    extend(chart, card);
    draw(chart, card);
    fillTable(chart, card);
  }
  byId("charts-none").hidden = shown.length > 0;
}

/** Takes a page of /metrics. */
export function take(text) {
  const series = parse(text);
  for (const name of series.keys()) {
    if (!USED.test(name)) {
      series.delete(name);
    }
  }
  history.add(new Sample(Date.now(), series));
  show();
}

export const redraw = show;

export function setModels(ids) {
  const select = byId("charts-model");
  const chosen = select.value;
  select.replaceChildren(h("option", { value: "", text: "All models" }), ...ids.map((id) => h("option", { value: id, text: id })));
  select.value = ids.includes(chosen) ? chosen : "";
  model = select.value;
  byId("charts-model-field").hidden = ids.length < 2;
}

export function setUp() {
  byId("charts-window").addEventListener("change", (event) => {
    windowMs = Number(event.target.value) * 1000;
    show();
  });
  byId("charts-model").addEventListener("change", (event) => {
    model = event.target.value;
    show();
  });
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) >= 1) {
      width = entry.contentRect.width;
      requestAnimationFrame(show);
    }
  }).observe(byId("chart-cards"));
}
