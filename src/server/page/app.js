// The frame around the three views: navigation, server state, models, key, theme.

import { address, call, hasKey, keyLooksRight, onKeyNeeded, onReachable, setKey, words } from "./api.js";
import { announce, byId, h } from "./dom.js";
import * as charts from "./charts.js";
import * as chat from "./chat.js";
import * as compare from "./compare.js";

const VIEWS = { chat: "Chat", compare: "Compare", charts: "Charts" };
const TICK_MS = 1000;
const STATE_EVERY = 5; // ticks
const METRICS_EVERY = 3; // ticks, while the charts are not looked at

let view = "chat";
let models = [];
let keyWanted = false; // the server asked for one
let keyRefused = false; // by the person, until they ask themselves

// -- views

function showView(moveFocus) {
  const asked = location.hash.slice(1);
  view = asked in VIEWS ? asked : "chat";
  for (const name of Object.keys(VIEWS)) {
    byId(name).hidden = name !== view;
    const link = byId(`to-${name}`);
    if (name === view) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  document.title = `${VIEWS[view]} · Trine`;
  if (moveFocus) {
    byId(view).querySelector("h1").focus();
  }
  charts.redraw();
}

// -- key

function keyDialog(refused) {
  const dialog = byId("key-dialog");
  const input = byId("key");
  const problem = byId("key-problem");
  if (dialog.open) {
    return dialog.waiting;
  }
  const say = (text) => {
    problem.textContent = text;
    problem.hidden = text === "";
    input.setAttribute("aria-invalid", String(text !== ""));
  };
  say(refused ? "The server did not accept this key." : "");
  input.value = "";
  byId("key-forget").hidden = !hasKey();
  dialog.waiting = new Promise((resolve) => {
    const form = byId("key-form");
    const done = (event) => {
      event.preventDefault();
      const value = input.value.trim();
      if (!keyLooksRight(value)) {
        say(value === "" ? "Type or paste a key." : "A key is made of letters, digits and signs of ASCII, without spaces.");
        return;
      }
      setKey(value);
      keyRefused = false;
      finish(true);
    };
    const forget = () => {
      setKey("");
      finish(false);
    };
    const cancel = () => finish(false);
    const finish = (given) => {
      form.removeEventListener("submit", done);
      byId("key-forget").removeEventListener("click", forget);
      byId("key-cancel").removeEventListener("click", cancel);
      dialog.removeEventListener("close", cancel);
      input.value = "";
      dialog.close();
      showKeyState();
      resolve(given);
    };
    form.addEventListener("submit", done);
    byId("key-forget").addEventListener("click", forget);
    byId("key-cancel").addEventListener("click", cancel);
    dialog.addEventListener("close", cancel);
  });
  dialog.showModal();
  input.focus();
  return dialog.waiting;
}

function showKeyState() {
  byId("key-button").hidden = !hasKey() && !keyWanted;
  byId("key-button").textContent = hasKey() ? "API key ✓" : "API key";
  byId("key-button").setAttribute("aria-label", hasKey() ? "API key: given" : "API key: none");
}

// -- models

async function loadModels(quiet) {
  const list = (await (await call("v1/models", { quiet })).json()).data;
  const ids = list.map((one) => one.id);
  if (ids.join("\n") === models.map((one) => one.id).join("\n") && models.length > 0) {
    models = list;
    return;
  }
  models = list;
  const select = byId("model");
  const chosen = select.value;
  select.replaceChildren(...ids.map((id) => h("option", { value: id, text: id })));
  select.value = ids.includes(chosen) ? chosen : (ids[0] ?? "");
  compare.setModels(ids);
  charts.setModels(ids);
}

// -- the server's state

const STATES = {
  ready: ["ok", "Ready"],
  loading: ["wait", "Loading a model"],
  no_model: ["wait", "No model is loaded"],
  queue_full: ["wait", "The queue is full"],
  draining: ["wait", "Shutting down"],
  gone: ["bad", "Not reachable"],
};

let state = "";

function showState(next) {
  if (state === next) {
    return;
  }
  const wasGone = state === "gone";
  state = next;
  const [kind, text] = STATES[next] ?? ["wait", next];
  const place = byId("state");
  place.className = `state ${kind}`;
  place.textContent = text;
  const gone = next === "gone";
  byId("gone").hidden = !gone;
  if (gone) {
    byId("gone").textContent = `The server at ${location.host} does not answer. It may have been stopped or be starting. The conversation is kept in this browser; this page tries again every ${STATE_EVERY} seconds.`;
  } else if (wasGone) {
    announce("The server answers again.");
  }
}

async function checkState() {
  try {
    // Open without a key; says in one word what is the matter.
    const answer = await fetch(address("health/ready"), { cache: "no-store", credentials: "omit" });
    showState((await answer.json()).status);
    return true;
  } catch {
    showState("gone");
    return false;
  }
}

async function takeMetrics() {
  try {
    charts.take(await (await call("metrics", { quiet: true })).text());
    byId("charts-problem").hidden = true;
  } catch (error) {
    byId("charts-problem").textContent = words(error);
    byId("charts-problem").hidden = false;
  }
}

// The server wants a key that this page does not have: nothing is asked of it in the background.
const locked = () => keyRefused && !hasKey();

async function tick(number) {
  if (!document.hidden) {
    const alive = number % STATE_EVERY !== 0 || (await checkState());
    if (alive && state !== "gone" && !locked()) {
      if (models.length === 0 || number % 15 === 0) {
        await loadModels(models.length > 0).catch(() => {});
      }
      if (view === "charts" || number % METRICS_EVERY === 0) {
        await takeMetrics();
      }
    }
  }
  setTimeout(() => tick(number + 1), TICK_MS);
}

// -- theme

const THEMES = ["system", "light", "dark"];

function setUpTheme() {
  const root = document.documentElement;
  const button = byId("theme");
  const show = () => (button.textContent = `Theme: ${root.dataset.theme ?? "system"}`);
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
    try {
      if (next === "system") {
        delete root.dataset.theme;
        localStorage.removeItem("trine.theme");
      } else {
        root.dataset.theme = next;
        localStorage.setItem("trine.theme", next);
      }
    } catch {
      // lasts as long as the page
    }
    show();
  });
  show();
}

// -- start

onKeyNeeded(async (refused) => {
  keyWanted = true;
  showKeyState();
  if (keyRefused) {
    return false;
  }
  const given = await keyDialog(refused);
  keyRefused = !given;
  return given;
});
onReachable((yes) => {
  if (!yes) {
    showState("gone");
  }
});

setUpTheme();
showKeyState();
chat.setUp({ chosen: () => byId("model").value, contextOf: (id) => models.find((one) => one.id === id)?.max_model_len ?? null });
compare.setUp();
charts.setUp();
showView(false);
addEventListener("hashchange", () => showView(true));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("key-dialog").open) {
    (view === "compare" ? compare : chat).stop();
  }
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId(view).querySelector("h1").focus();
});
byId("key-button").addEventListener("click", async () => {
  if (await keyDialog(false)) {
    models = [];
    await loadModels(false).catch(() => {});
  }
});
tick(0);
