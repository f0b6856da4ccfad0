// The chat: a conversation kept in this browser, answers streamed from the server.

import { curlLine, streamAnswer, words } from "./api.js";
import { announce, byId, copyButton, digits, download, h, milliseconds, plural, store } from "./dom.js";
import { render } from "./markdown.js";
import { samplerPanel } from "./sampler.js";

const PATH = "v1/chat/completions";

// {role, content} of a person; of a model also {model, sent, stats, error, stopped}. `sent` is the request
// without its messages, which are the conversation before the answer and the system prompt.
let messages = [];
let running = null; // AbortController of the answer under way
let models = { chosen: () => "", contextOf: () => null };
let panel = null;
let editing = -1;

const isMessage = (one) => (one?.role === "user" || one?.role === "assistant") && typeof one.content === "string";

const save = () => store.write("conversation", messages);

/** What goes to the server before message `end`; answers without a word are left out. */
function conversation(end, system) {
  const before = messages.slice(0, end).filter((one) => one.content !== "");
  return [...(system ? [{ role: "system", content: system }] : []), ...before.map(({ role, content }) => ({ role, content }))];
}

function requestOf(index) {
  const { system, fields } = messages[index].sent;
  const { model, ...rest } = fields;
  return { model, messages: conversation(index, system), ...rest };
}

// -- one message

function statsText(one) {
  const stats = one.stats;
  if (!stats) {
    return "";
  }
  const parts = [];
  if (stats.ttftMs !== null) {
    parts.push(`first token ${milliseconds(stats.ttftMs)}`);
  }
  if (stats.tokensPerS !== null) {
    parts.push(`${digits(stats.tokensPerS)} tokens/s`);
  }
  parts.push(plural(stats.tokens, "token"), milliseconds(stats.totalMs));
  const context = models.contextOf(one.model);
  if (stats.promptTokens !== null && context) {
    parts.push(`context ${stats.promptTokens + stats.tokens} of ${context}`);
  }
  if (one.stopped) {
    parts.push("stopped by you");
  } else if (stats.finish === "length") {
    parts.push("ended by the token limit");
  }
  return parts.join("  ·  ");
}

function requestPanel(index, id) {
  const body = requestOf(index);
  const json = JSON.stringify(body, null, 2);
  const curl = curlLine(PATH, body);
  const part = (title, text, kind) =>
    h(
      "div",
      { class: "code" },
      h("div", { class: "code-head" }, h("span", { text: title }), copyButton("Copy", () => text)),
      h("pre", { tabIndex: 0, "aria-label": title, class: kind }, h("code", { text })),
    );
  return h("div", { class: "request", id }, part(`POST /${PATH}`, json, "raw"), part("The same for a shell", curl, "curl"));
}

function messageNode(index) {
  const one = messages[index];
  const own = one.role === "user";
  const name = own ? "You" : one.model || "Model";
  const body = h("div", { class: "body" });
  const stats = h("p", { class: "stats" });
  const problem = h("p", { class: "error", hidden: true });
  const tools = h("div", { class: "tools" });
  const node = h("article", { class: `message ${one.role}`, "aria-label": `${name}, message ${index + 1}` }, h("h2", { text: name }), body, problem, stats, tools);
  node.show = () => {
    if (own) {
      body.textContent = one.content;
    } else {
      render(body, one.content);
    }
    stats.textContent = statsText(one);
    stats.hidden = stats.textContent === "";
    problem.hidden = !one.error;
    problem.textContent = one.error ?? "";
    node.setAttribute("aria-busy", String(one === running?.answer));
  };
  node.show();
  if (editing === index) {
    body.replaceWith(editor(index));
    return node;
  }
  if (running) {
    return node;
  }
  const button = (label, action, more = {}) => tools.append(h("button", { type: "button", class: "quiet", text: label, on: { click: action }, ...more }));
  tools.append(copyButton("Copy", () => one.content));
  button("Edit", () => edit(index));
  if (!own) {
    button("Regenerate", () => regenerate(index));
    if (one.sent) {
      const id = `request-${index}`;
      button(
        "Request",
        (event) => {
          const open = byId(id);
          open?.remove();
          event.currentTarget.setAttribute("aria-expanded", String(!open));
          if (!open) {
            const opened = requestPanel(index, id);
            node.append(opened);
            opened.scrollIntoView({ block: "nearest" });
          }
        },
        { "aria-expanded": "false", "aria-controls": id },
      );
    }
  }
  return node;
}

function editor(index) {
  const own = messages[index].role === "user";
  const after = messages.length - index - 1;
  const text = h("textarea", { rows: 4, "aria-label": "Edit the message", value: messages[index].content });
  const close = () => {
    editing = -1;
    draw();
    byId("messages").children[index]?.querySelector("button")?.focus();
  };
  const keep = () => {
    if (text.value.trim() === "") {
      text.focus();
      return;
    }
    editing = -1;
    messages.length = index + 1;
    messages[index] = own ? { role: "user", content: text.value } : { ...messages[index], content: text.value, error: undefined };
    save();
    draw();
    if (own) {
      answer();
    } else {
      byId("prompt").focus();
    }
  };
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      keep();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  });
  return h(
    "div",
    { class: "editor" },
    text,
    h("p", { class: "hint", text: after > 0 ? `Saving removes the ${plural(after, "message")} after this one.` : "Nothing follows this message." }),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", text: own ? "Save and send" : "Save", on: { click: keep } }), h("button", { type: "button", text: "Cancel", on: { click: close } })),
  );
}

function edit(index) {
  editing = index;
  draw();
  const text = byId("messages").children[index].querySelector("textarea");
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
}

// -- the whole

function draw() {
  const host = byId("messages");
  byId("empty").hidden = messages.length > 0;
  host.replaceChildren(...messages.map((_, index) => messageNode(index)));
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
  for (const id of ["new-chat", "save-chat", "open-chat"]) {
    byId(id).disabled = running !== null;
  }
  byId("save-chat").disabled ||= messages.length === 0;
}

const nearEnd = (pane) => pane.scrollHeight - pane.scrollTop - pane.clientHeight < 80;

function complain(text) {
  const place = byId("chat-problem");
  place.textContent = text;
  place.hidden = text === "";
}

/** Asks for the answer to the conversation as it is. */
async function answer() {
  const problems = panel.problems();
  complain(problems.length > 0 ? `Not sent. ${problems.join("; ")}.` : "");
  if (problems.length > 0 || running) {
    return;
  }
  const fields = { model: models.chosen(), ...panel.body(), stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  const one = { role: "assistant", content: "", model: fields.model, sent: { system: byId("system").value, fields } };
  messages.push(one);
  const control = new AbortController();
  running = { control, answer: one };
  draw();
  byId("stop").focus();
  announce("Answering");
  const pane = byId("pane");
  pane.scrollTop = pane.scrollHeight;
  const node = byId("messages").lastElementChild;
  let frame = 0;
  const show = () => {
    frame = 0;
    const follow = nearEnd(pane);
    node.show();
    if (follow) {
      pane.scrollTop = pane.scrollHeight;
    }
  };
  try {
    await streamAnswer(requestOf(messages.length - 1), control.signal, (choice, stats) => {
      one.content += choice.delta?.content ?? "";
      one.stats = stats;
      if (stats.warnings.length > 0) {
        one.error = stats.warnings.join(" ");
      }
      frame ||= requestAnimationFrame(show);
    });
  } catch (error) {
    if (control.signal.aborted) {
      one.stopped = true;
    } else {
      one.error = words(error);
    }
  }
  cancelAnimationFrame(frame);
  const focused = document.activeElement === byId("stop");
  const follow = nearEnd(pane);
  running = null;
  save();
  draw();
  if (follow) {
    pane.scrollTop = pane.scrollHeight;
  }
  if (focused || document.activeElement === document.body) {
    byId("prompt").focus();
  }
  announce(one.error ?? `${one.stopped ? "Stopped. " : ""}${one.content}`);
}

function send() {
  const prompt = byId("prompt");
  if (running || prompt.value.trim() === "") {
    return;
  }
  const problems = panel.problems();
  if (problems.length > 0) {
    complain(`Not sent. ${problems.join("; ")}.`);
    return;
  }
  editing = -1;
  messages.push({ role: "user", content: prompt.value });
  prompt.value = "";
  fit(prompt);
  answer();
}

function regenerate(index) {
  messages.length = index;
  answer();
}

export function stop() {
  running?.control.abort();
}

function fit(text) {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, 220)}px`;
}

async function open(file) {
  try {
    const read = JSON.parse(await file.text());
    if (!Array.isArray(read?.messages) || read.messages.length === 0) {
      throw new Error("it has no list of messages");
    }
    const bad = read.messages.findIndex((one) => !isMessage(one) && one?.role !== "system");
    if (bad >= 0) {
      throw new Error(`message ${bad + 1} has no text or an unknown role`);
    }
    const system = read.messages.find((one) => one.role === "system");
    messages = read.messages.filter(isMessage).map(({ role, content }) => ({ role, content }));
    if (system) {
      byId("system").value = String(system.content);
    }
    complain("");
    save();
    draw();
  } catch (error) {
    complain(`${file.name} is no saved conversation: ${error.message}`);
  }
}

export function setUp(choice) {
  models = choice;
  const kept = store.read("conversation", []);
  messages = Array.isArray(kept) ? kept.filter(isMessage) : [];
  const settings = store.read("settings", {});
  const system = byId("system");
  system.value = typeof settings.system === "string" ? settings.system : "";
  const keep = () => store.write("settings", { ...panel.values(), system: system.value });
  panel = samplerPanel("chat", settings, keep);
  byId("chat-sampler").append(panel.node);
  system.addEventListener("input", keep);
  byId("chat-defaults").addEventListener("click", () => {
    system.value = "";
    panel.set({});
  });

  const prompt = byId("prompt");
  prompt.addEventListener("input", () => fit(prompt));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", () => {
    messages = [];
    editing = -1;
    complain("");
    save();
    draw();
    prompt.focus();
  });
  byId("save-chat").addEventListener("click", () => {
    const text = JSON.stringify({ messages: conversation(messages.length, system.value) }, null, 2);
    download("conversation.json", text, "application/json");
  });
  const file = byId("chat-file");
  byId("open-chat").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    if (file.files.length > 0) {
      open(file.files[0]);
    }
    file.value = "";
  });
  const toggle = byId("toggle-settings");
  const setOpen = (isOpen) => {
    byId("chat-settings").hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
  };
  toggle.addEventListener("click", () => setOpen(byId("chat-settings").hidden));
  setOpen(matchMedia("(min-width: 62rem)").matches);
  draw();
}
