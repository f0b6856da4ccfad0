// The panel of sampler settings. A field left empty is not sent: the model's own default counts.

import { h } from "./dom.js";

const number = (name, label, min, max, step, hint, more = {}) => ({ name, label, min, max, step, hint, ...more });

/** In the order they are shown. Ranges are those of docs/api.md. */
export const FIELDS = [
  number("temperature", "Temperature", 0, 100, 0.1, "0 always takes the likeliest token"),
  number("top_p", "Top p", 0, 1, 0.05, "likeliest tokens up to this sum", { above: true }),
  number("top_k", "Top k", -1, 2147483647, 1, "so many likeliest; 0 is all", { whole: true }),
  number("min_p", "Min p", 0, 1, 0.01, "share of the likeliest one"),
  number("repetition_penalty", "Repetition", 0.01, 100, 0.05, "of prompt and answer; 1 is none"),
  number("presence_penalty", "Presence", -2, 2, 0.1, "once a token was said"),
  number("frequency_penalty", "Frequency", -2, 2, 0.1, "for each time it was said"),
  number("seed", "Seed", 0, Number.MAX_SAFE_INTEGER, 1, "same seed, same answer", { whole: true }),
  number("max_completion_tokens", "Max tokens", 1, 2147483647, 1, "of an answer", { whole: true }),
];

const MOST_STOPS = 16;

/** A text typed into a number field: {value} (undefined when empty) or {problem}. */
export function readNumber(field, text) {
  const trimmed = text.trim();
  if (trimmed === "") {
    return { value: undefined };
  }
  const value = Number(trimmed);
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed) || !Number.isFinite(value)) {
    return { problem: `“${trimmed}” is not a number` };
  }
  if (field.whole && !Number.isInteger(value)) {
    return { problem: `${trimmed} is not a whole number` };
  }
  if (value > field.max) {
    return { problem: `${trimmed} is above ${field.max}` };
  }
  if (value < field.min || (field.above && value === field.min)) {
    return { problem: field.above ? `${trimmed} is not above ${field.min}` : `${trimmed} is below ${field.min}` };
  }
  return { value };
}

/** Stop texts, one a line; \n and \t stand for the characters. */
export function readStops(text) {
  const stops = text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.replace(/\\([nt\\])/g, (_, c) => ({ n: "\n", t: "\t", "\\": "\\" })[c]));
  if (stops.length > MOST_STOPS) {
    return { problem: `${stops.length} texts; at most ${MOST_STOPS}` };
  }
  return { value: stops.length > 0 ? stops : undefined };
}

/** The panel: {node, body() -> fields of a request, problems() -> texts, values(), set(values)}. `prefix` makes
 *  ids of its own; `changed` is called at every change with the raw values. */
export function samplerPanel(prefix, values, changed) {
  const inputs = new Map();
  const reads = new Map();

  function row(name, label, hint, input, read) {
    const id = `${prefix}-${name}`;
    const problem = h("span", { class: "problem", id: `${id}-problem`, hidden: true });
    input.id = id;
    input.setAttribute("aria-describedby", `${id}-hint ${id}-problem`);
    input.value = values[name] ?? "";
    const check = () => {
      const got = read(input.value);
      reads.set(name, { label, ...got });
      problem.hidden = got.problem === undefined;
      problem.textContent = got.problem ?? "";
      input.setAttribute("aria-invalid", String(got.problem !== undefined));
    };
    input.addEventListener("input", () => {
      check();
      changed(panel.values());
    });
    inputs.set(name, { input, check });
    check();
    return h("div", { class: "field" }, h("label", { for: id, text: label }), input, h("span", { class: "hint", id: `${id}-hint`, text: hint }), problem);
  }

  const rows = FIELDS.map((field) =>
    row(
      field.name,
      field.label,
      field.hint,
      h("input", { type: "text", inputmode: field.whole ? "numeric" : "decimal", autocomplete: "off", placeholder: "default", spellcheck: "false" }),
      (text) => readNumber(field, text),
    ),
  );
  const stop = row("stop", "Stop", "texts that end the answer, one a line; \\n is a line's end", h("textarea", { rows: 2, spellcheck: "false", placeholder: "none" }), readStops);
  stop.classList.add("wide");

  const panel = {
    node: h("div", { class: "sampler" }, ...rows, stop),
    values: () => Object.fromEntries([...inputs].map(([name, { input }]) => [name, input.value])),
    set(next) {
      for (const [name, { input, check }] of inputs) {
        input.value = next[name] ?? "";
        check();
      }
      changed(panel.values());
    },
    body() {
      const out = {};
      for (const [name, read] of reads) {
        if (read.value !== undefined) {
          out[name] = read.value;
        }
      }
      return out;
    },
    problems: () => [...reads.values()].filter((read) => read.problem !== undefined).map((read) => `${read.label}: ${read.problem}`),
  };
  return panel;
}
