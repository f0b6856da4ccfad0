// The server's numbers from /metrics, kept as a sliding history, and what is worked out of them.
//
// Percentiles come from what a histogram gained between two samples, interpolated inside a bucket as
// Prometheus' histogram_quantile() does: the same numbers a dashboard on the same server shows.

/** Prometheus' text as a map: name -> list of {labels, value}. */
export function parse(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) {
      continue;
    }
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) {
      continue;
    }
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/([a-zA-Z_]\w*)="((?:\\.|[^"\\])*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    const value = match[3] === "+Inf" ? Infinity : Number(match[3]);
    if (!out.has(match[1])) {
      out.set(match[1], []);
    }
    out.get(match[1]).push({ labels, value });
  }
  return out;
}

/** A sample: its time in ms, and for a model ("" is all) sums of series. */
export class Sample {
  constructor(time, series) {
    this.time = time;
    this.series = series;
  }

  has(name) {
    return this.series.has(name);
  }

  /** The sum over a model's series, or null when there is none. */
  sum(name, model) {
    let out = null;
    for (const { labels, value } of this.series.get(name) ?? []) {
      if (model === "" || labels.model_name === undefined || labels.model_name === model) {
        out = (out ?? 0) + value;
      }
    }
    return out;
  }

  /** A histogram's cumulative counts by upper bound, ascending. */
  buckets(name, model) {
    const bounds = new Map();
    for (const { labels, value } of this.series.get(`${name}_bucket`) ?? []) {
      if (model === "" || labels.model_name === model) {
        const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
        bounds.set(bound, (bounds.get(bound) ?? 0) + value);
      }
    }
    return [...bounds].sort((a, b) => a[0] - b[0]);
  }
}

/** The q-quantile of what a histogram gained from `then` to `now` (lists of [bound, cumulative count]); null
 *  without a new value. A value past the last bound counts as that bound. */
export function quantile(q, now, then) {
  const before = new Map(then);
  const gained = now.map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]);
  const total = gained.length > 0 ? gained[gained.length - 1][1] : 0;
  if (total <= 0) {
    return null;
  }
  const rank = q * total;
  let lower = 0;
  let below = 0;
  for (const [bound, count] of gained) {
    if (count >= rank && count > below) {
      return bound === Infinity ? lower : lower + ((bound - lower) * (rank - below)) / (count - below);
    }
    lower = bound === Infinity ? lower : bound;
    below = count;
  }
  return lower;
}

// The longest window before the longest stretch that is drawn.
const KEEP_MS = 11 * 60 * 1000;

/** Counters that always grow while there is work; one that fell tells of another process. */
export const RESETS = ["trine_http_requests_total", "trine_steps_total"];

export class History {
  samples = [];
  epoch = 0; // changes when the past is dropped

  add(sample) {
    const last = this.samples.at(-1);
    // A counter that fell: another process answers now, and the past says nothing about it.
    const fell = last && RESETS.some((name) => (sample.sum(name, "") ?? 0) < (last.sum(name, "") ?? 0));
    if (fell) {
      this.samples = [];
      ++this.epoch;
    }
    this.samples.push(sample);
    while (sample.time - this.samples[0].time > KEEP_MS) {
      this.samples.shift();
    }
  }

  /** The sample a window begins with: the newest that is at least `ms` older than sample `index`, else the
   *  oldest there is. */
  start(index, ms) {
    const limit = this.samples[index].time - ms;
    let at = index;
    while (at > 0 && this.samples[at].time > limit) {
      --at;
    }
    return this.samples[at];
  }
}
