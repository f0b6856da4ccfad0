// A model's answer as nodes: fenced code, headings, lists, and in a line `code`, **strong**, *stress*.
// Everything else is text as it is. Addresses are not made into links: what a model says is not to be
// followed with one press.

import { copyButton, h } from "./dom.js";

/** Splits text into blocks: {kind: "code", language, text} and {kind: "text", text}. A fence that is not
 *  closed yet (an answer under way) is code. */
export function blocks(source) {
  const out = [];
  let text = [];
  let code = null;
  const flush = () => {
    const joined = text.join("\n").replace(/^\n+|\s+$/g, "");
    if (joined !== "") {
      out.push({ kind: "text", text: joined });
    }
    text = [];
  };
  for (const line of source.split("\n")) {
    if (code === null) {
      const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/.exec(line);
      if (fence) {
        flush();
        code = { fence: fence[1], language: fence[2].trim().split(/\s+/)[0], lines: [] };
      } else if (line.trim() === "") {
        flush();
      } else {
        text.push(line);
      }
    } else if (line.trim().startsWith(code.fence) && /^[`~]+$/.test(line.trim())) {
      out.push({ kind: "code", language: code.language, text: code.lines.join("\n") });
      code = null;
    } else {
      code.lines.push(line);
    }
  }
  flush();
  if (code !== null) {
    out.push({ kind: "code", language: code.language, text: code.lines.join("\n") });
  }
  return out;
}

function inline(text) {
  const out = [];
  // Bounded, so that no text makes the search slow.
  const pattern = /(`{1,3})([^`]|[^`][^]{0,1000}?[^`])\1(?!`)|\*\*(\S|\S[^]{0,1000}?\S)\*\*|(?<![\w*])\*([^\s*]|[^\s*][^*]{0,1000}?[^\s*])\*(?![\w*])/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    out.push(text.slice(at, match.index));
    if (match[1] !== undefined) {
      out.push(h("code", { text: match[2] }));
    } else if (match[3] !== undefined) {
      out.push(h("strong", { text: match[3] }));
    } else {
      out.push(h("em", { text: match[4] }));
    }
    at = match.index + match[0].length;
  }
  out.push(text.slice(at));
  return out.filter((part) => part !== "");
}

const BULLET = /^\s*[-*+]\s+(.*)$/;
const NUMBER = /^\s*(\d{1,9})[.)]\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;

/** Runs of lines of one kind inside a block of text. */
function textNodes(text) {
  const nodes = [];
  let plain = [];
  let list = null;
  const flushPlain = () => {
    if (plain.length > 0) {
      nodes.push(h("p", {}, ...inline(plain.join("\n"))));
      plain = [];
    }
  };
  for (const line of text.split("\n")) {
    const heading = HEADING.exec(line);
    const bullet = BULLET.exec(line);
    const number = NUMBER.exec(line);
    if (bullet || number) {
      flushPlain();
      const tag = bullet ? "ul" : "ol";
      if (list === null || list.localName !== tag) {
        list = h(tag, number && number[1] !== "1" ? { start: number[1] } : {});
        nodes.push(list);
      }
      list.append(h("li", {}, ...inline(bullet ? bullet[1] : number[2])));
      continue;
    }
    if (list !== null && /^\s+\S/.test(line)) {
      list.lastElementChild.append("\n", ...inline(line.trim()));
      continue;
    }
    list = null;
    if (heading) {
      flushPlain();
      nodes.push(h("p", { class: "heading" }, ...inline(heading[1])));
    } else {
      plain.push(line);
    }
  }
  flushPlain();
  return nodes;
}

function blockNode(block) {
  if (block.kind === "text") {
    return h("div", { class: "text" }, ...textNodes(block.text));
  }
  return h(
    "div",
    { class: "code" },
    h("div", { class: "code-head" }, h("span", { text: block.language || "code" }), copyButton("Copy", () => block.text)),
    h("pre", { tabIndex: 0, "aria-label": `Code${block.language ? `, ${block.language}` : ""}` }, h("code", { text: block.text })),
  );
}

/** Shows `source` inside `host`. Blocks that did not change since the last call keep their nodes, so that
 *  an answer under way costs what is new in it. */
export function render(host, source) {
  const wanted = blocks(source);
  const shown = host.blocks ?? [];
  let same = 0;
  while (same < wanted.length && same < shown.length && wanted[same].kind === shown[same].kind && wanted[same].text === shown[same].text && wanted[same].language === shown[same].language) {
    ++same;
  }
  while (host.childNodes.length > same) {
    host.lastChild.remove();
  }
  host.append(...wanted.slice(same).map(blockNode));
  host.blocks = wanted;
}
