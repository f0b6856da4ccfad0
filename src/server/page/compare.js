// Two configurations, one prompt: both answers side by side, the first token that differs marked.
//
// Tokens are compared, not characters: by id within one model, by the bytes they stand for between two,
// whose vocabularies may differ.

import { streamAnswer, words } from "./api.js";
import { announce, byId, digits, h, milliseconds, plural, store } from "./dom.js";
import { samplerPanel } from "./sampler.js";

const ALTERNATIVES = 5;
const SIDES = ["a", "b"];
const DEFAULTS = { a: { temperature: "0", max_completion_tokens: "128" }, b: { temperature: "1", seed: "1", max_completion_tokens: "128" } };

const panels = {};
let running = null;

const modelOf = (side) => byId(`compare-${side}-model`).value;

/** The first place where two lists of tokens differ, or -1 when they are the same. */
export function firstDifference(a, b, same) {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; ++i) {
    if (!same(a[i], b[i])) {
      return i;
    }
  }
  return a.length === b.length ? -1 : shorter;
}

/** Texts of tokens in order. Characters that several tokens make up stand with the last of them. */
export function tokenTexts(tokens) {
  const decoder = new TextDecoder();
  return tokens.map((token, i) => decoder.decode(new Uint8Array(token.bytes), { stream: i + 1 < tokens.length }));
}

const sameId = (a, b) => a.id === b.id;
const sameBytes = (a, b) => a.bytes.length === b.bytes.length && a.bytes.every((byte, i) => byte === b.bytes[i]);

function bodyOf(side, prompt, system) {
  return {
    model: modelOf(side),
    messages: [...(system ? [{ role: "system", content: system }] : []), { role: "user", content: prompt }],
    ...panels[side].body(),
    logprobs: true,
    top_logprobs: ALTERNATIVES,
    return_token_ids: true,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

/** One side's answer: {tokens: [{id, bytes, text, logprob, top}], stats, error}. */
async function ask(side, body, signal) {
  const out = { model: body.model, tokens: [], stats: null, error: null, text: "" };
  const host = byId(`compare-${side}-text`);
  host.textContent = "";
  const entries = [];
  const ids = [];
  let frame = 0;
  try {
    out.stats = await streamAnswer(body, signal, (choice, stats) => {
      out.stats = stats;
      entries.push(...(choice.logprobs?.content ?? []));
      ids.push(...(choice.token_ids ?? []));
      out.text += choice.delta?.content ?? "";
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        host.textContent = out.text;
      });
    });
  } catch (error) {
    out.error = signal.aborted ? "Stopped by you." : words(error);
  }
  cancelAnimationFrame(frame);
  host.textContent = out.text;
  if (entries.length !== ids.length) {
    out.error ??= `The server told ${ids.length} token ids and ${entries.length} log-probabilities; they cannot be compared.`;
  }
  out.tokens = ids.slice(0, entries.length).map((id, i) => ({ id, text: entries[i].token, bytes: entries[i].bytes ?? [], logprob: entries[i].logprob, top: entries[i].top_logprobs ?? [] }));
  return out;
}

const quoted = (text) => `“${text.replaceAll("\n", "⏎")}”`;

function tokenName(token) {
  return token ? `${quoted(token.text)} (id ${token.id})` : "nothing: it ends here";
}

function showTokens(side, answer, at, other) {
  const texts = tokenTexts(answer.tokens);
  const host = byId(`compare-${side}-text`);
  if (answer.tokens.length === 0) {
    return;
  }
  const shared = at < 0 ? texts.length : at;
  const nodes = [h("span", { class: "same", text: texts.slice(0, shared).join("") })];
  if (at >= 0) {
    const marked = at < texts.length ? texts[at] : "";
    const label = at < texts.length ? `token ${at + 1}, the first that differs from ${other}` : `the answer ends here, ${other} goes on`;
    nodes.push(h("mark", { title: label, "data-token": at < texts.length ? answer.tokens[at].id : "end", text: marked.trim() === "" ? marked.replaceAll("\n", "⏎\n") || "∎" : marked }), h("span", { text: texts.slice(at + 1).join("") }));
  }
  host.replaceChildren(...nodes);
}

const chance = (logprob) => `${digits(100 * Math.exp(logprob))} %`;

function alternatives(a, b) {
  const row = (token) => (token ? h("tr", {}, h("td", { class: "token", text: quoted(token.token) }), h("td", { text: chance(token.logprob) })) : null);
  const table = (name, token) =>
    h(
      "table",
      { class: "alternatives" },
      h("caption", { text: `${name}: what the model holds likely here` }),
      h("thead", {}, h("tr", {}, h("th", { scope: "col", text: "Token" }), h("th", { scope: "col", text: "Probability" }))),
      h("tbody", {}, ...(token ? token.top.map(row) : [h("tr", {}, h("td", { colspan: 2, text: "the answer has ended" }))])),
    );
  return h("div", { class: "pair" }, table("A", a), table("B", b));
}

function statsTable(a, b) {
  const rows = [
    ["First token", (stats) => (stats?.ttftMs == null ? "–" : milliseconds(stats.ttftMs))],
    ["Tokens/s", (stats) => (stats?.tokensPerS == null ? "–" : digits(stats.tokensPerS))],
    ["Tokens", (stats) => String(stats?.tokens ?? 0)],
    ["Ended by", (stats) => ({ stop: "the model or a stop text", length: "the token limit" })[stats?.finish] ?? "–"],
  ];
  return h(
    "table",
    { class: "figures" },
    h("caption", { text: "Measured in this browser, from sending the request" }),
    h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col", text: "A" }), h("th", { scope: "col", text: "B" }))),
    h("tbody", {}, ...rows.map(([name, text]) => h("tr", {}, h("th", { scope: "row", text: name }), h("td", { text: text(a.stats) }), h("td", { text: text(b.stats) })))),
  );
}

function verdict(a, b) {
  const oneModel = a.model === b.model;
  const at = firstDifference(a.tokens, b.tokens, oneModel ? sameId : sameBytes);
  showTokens("a", a, at, "B");
  showTokens("b", b, at, "A");
  const how = oneModel ? "compared by token id" : "two models: compared by the bytes of each token";
  const sameEnd = a.stats?.finish === b.stats?.finish;
  let text;
  if (at < 0) {
    text = `Identical: all ${plural(a.tokens.length, "token")} are the same${sameEnd ? "" : ", but the answers ended for different reasons"} (${how}).`;
  } else {
    text = `First difference at token ${at + 1}: A has ${tokenName(a.tokens[at])}, B has ${tokenName(b.tokens[at])} (${how}).`;
  }
  return { at, text, same: at < 0 };
}

function showResult(answers) {
  const [a, b] = answers;
  const host = byId("compare-result");
  const place = byId("compare-verdict");
  const errors = answers.map((one, i) => (one.error ? `${SIDES[i].toUpperCase()}: ${one.error}` : "")).filter((text) => text !== "");
  if (errors.length > 0) {
    place.className = "verdict bad";
    place.textContent = `Not compared. ${errors.join(" ")}`;
    host.replaceChildren(statsTable(a, b));
    return;
  }
  const found = verdict(a, b);
  place.className = `verdict ${found.same ? "same" : "different"}`;
  place.textContent = found.text;
  host.replaceChildren(statsTable(a, b), ...(found.at < 0 ? [] : [alternatives(a.tokens[found.at], b.tokens[found.at])]));
}

async function run() {
  const prompt = byId("compare-prompt").value;
  const place = byId("compare-verdict");
  const problems = SIDES.flatMap((side) => panels[side].problems().map((text) => `${side.toUpperCase()}, ${text}`));
  if (prompt.trim() === "") {
    problems.push("The prompt is empty");
  }
  if (problems.length > 0) {
    place.className = "verdict bad";
    place.textContent = `Not sent. ${problems.join("; ")}.`;
    return;
  }
  running = new AbortController();
  const { signal } = running;
  byId("compare-run").hidden = true;
  byId("compare-stop").hidden = false;
  byId("compare-stop").focus();
  place.className = "verdict";
  place.textContent = "Asking…";
  byId("compare-result").replaceChildren();
  byId("compare-answers").hidden = false;
  byId("compare-answers").setAttribute("aria-busy", "true");
  const system = byId("compare-system").value;
  const bodies = SIDES.map((side) => bodyOf(side, prompt, system));
  SIDES.forEach((side) => (byId(`compare-${side}-text`).textContent = ""));
  const answers = [];
  if (byId("compare-together").checked) {
    answers.push(...(await Promise.all(SIDES.map((side, i) => ask(side, bodies[i], signal)))));
  } else {
    for (const [i, side] of SIDES.entries()) {
      answers.push(await ask(side, bodies[i], signal));
    }
  }
  running = null;
  byId("compare-run").hidden = false;
  byId("compare-stop").hidden = true;
  byId("compare-answers").setAttribute("aria-busy", "false");
  if (document.activeElement === document.body || document.activeElement === byId("compare-stop")) {
    byId("compare-run").focus();
  }
  showResult(answers);
  place.scrollIntoView({ block: "start" });
  announce(place.textContent);
}

export function stop() {
  running?.abort();
}

export function setModels(ids) {
  for (const side of SIDES) {
    const select = byId(`compare-${side}-model`);
    const chosen = select.value;
    select.replaceChildren(...ids.map((id) => h("option", { value: id, text: id })));
    select.value = ids.includes(chosen) ? chosen : (ids[side === "b" && ids.length > 1 ? 1 : 0] ?? "");
  }
}

export function setUp() {
  const kept = store.read("compare", {});
  const save = () => store.write("compare", { a: panels.a?.values(), b: panels.b?.values() });
  for (const side of SIDES) {
    panels[side] = samplerPanel(`compare-${side}`, kept[side] ?? DEFAULTS[side], save);
    byId(`compare-${side}-sampler`).append(panels[side].node);
  }
  byId("compare-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) {
      run();
    }
  });
  byId("compare-stop").addEventListener("click", stop);
  byId("compare-prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!running) {
        run();
      }
    }
  });
}
