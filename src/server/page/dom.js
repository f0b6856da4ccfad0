// Small helpers that build nodes. Text is always set as text: nothing here reads markup.

/** An element. props: class, text, on (event handlers), data (dataset), hidden and the like as
 *  properties, everything else as attributes; null and undefined are left out. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

const PROPERTIES = new Set(["hidden", "disabled", "checked", "value", "tabIndex", "open", "selected"]);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) {
      continue;
    }
    if (name === "text") {
      node.textContent = value;
    } else if (name === "class") {
      node.setAttribute("class", value);
    } else if (name === "on") {
      for (const [event, handler] of Object.entries(value)) {
        node.addEventListener(event, handler);
      }
    } else if (name === "data") {
      Object.assign(node.dataset, value);
    } else if (PROPERTIES.has(name)) {
      node[name] = value;
    } else {
      node.setAttribute(name, String(value));
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Values kept in the browser; where storage is off or full they last as long as the page. */
export const store = {
  memory: new Map(),
  read(name, fallback) {
    try {
      const text = localStorage.getItem(`trine.${name}`) ?? this.memory.get(name);
      return text === undefined || text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  write(name, value) {
    const text = JSON.stringify(value);
    this.memory.set(name, text);
    try {
      localStorage.setItem(`trine.${name}`, text);
    } catch {
      // kept in memory
    }
  },
};

/** Says something to screen readers without moving the focus. */
export function announce(text) {
  byId("announce").textContent = text;
}

/** A button that copies what `text()` gives and says so. */
export function copyButton(label, text) {
  const button = h("button", { type: "button", class: "quiet", text: label });
  let timer = 0;
  button.addEventListener("click", async () => {
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      done = "Not allowed by the browser";
    }
    button.textContent = done;
    announce(done);
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** Offers `text` as a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Three digits that count: 0.123, 1.23, 12.3, 123, 1234. */
export function digits(value) {
  const size = Math.abs(value);
  const places = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toFixed(places);
}

export function milliseconds(ms) {
  return ms >= 10000 ? `${digits(ms / 1000)} s` : `${digits(ms)} ms`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
