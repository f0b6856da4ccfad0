// Requests to the server that gave out this page, and errors in words.
//
// The key lives in sessionStorage: it goes with the tab. It is sent as a header, never in an address.

const KEY = "trine.key";
let key = "";
try {
  key = sessionStorage.getItem(KEY) ?? "";
} catch {
  // lasts as long as the page
}

export const hasKey = () => key !== "";

export function setKey(value) {
  key = value;
  try {
    if (value === "") {
      sessionStorage.removeItem(KEY);
    } else {
      sessionStorage.setItem(KEY, value);
    }
  } catch {
    // kept in memory
  }
}

/** What can be a key: printable ASCII, as in a header. */
export const keyLooksRight = (value) => /^[\x21-\x7e]+$/.test(value);

export const address = (path) => new URL(path, document.baseURI).href;

/** An error the server told. */
export class ApiError extends Error {
  constructor(status, body, retryAfter) {
    const told = body?.error ?? {};
    super(typeof told.message === "string" && told.message !== "" ? told.message : `the server answered with status ${status}`);
    this.status = status;
    this.param = told.param ?? null;
    this.code = told.code ?? null;
    this.retryAfter = retryAfter;
  }
}

/** The server did not answer, or not to the end. */
export class Unreachable extends Error {}

/** Called when the server wants a key; resolves to true when there is a new one. */
let askForKey = async () => false;
export const onKeyNeeded = (ask) => (askForKey = ask);

let reachable = () => {};
export const onReachable = (tell) => (reachable = tell);

/** fetch() with the key; asks for one and tries again when the server wants it. `quiet` does not ask. */
export async function call(path, { body, signal, quiet = false } = {}) {
  for (;;) {
    const used = key;
    const headers = {};
    if (used !== "") {
      headers.Authorization = `Bearer ${used}`;
    }
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    let answer;
    try {
      answer = await fetch(address(path), {
        method: body === undefined ? "GET" : "POST",
        body: body === undefined ? undefined : JSON.stringify(body),
        headers,
        signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      reachable(false);
      throw new Unreachable("no answer");
    }
    reachable(true);
    if (answer.status === 401 && !quiet && (key !== used || (await askForKey(used !== "")))) {
      continue;
    }
    if (!answer.ok) {
      const retry = Number(answer.headers.get("Retry-After"));
      throw new ApiError(answer.status, await answer.json().catch(() => null), retry > 0 ? retry : null);
    }
    return answer;
  }
}

/** Server-sent events of a request, in order; data as parsed JSON. Throws when they end too early. */
export async function* events(path, body, signal) {
  const answer = await call(path, { body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        throw new Unreachable("cut");
      }
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) {
          continue;
        }
        const data = line.slice(5).trim();
        if (data === "[DONE]") {
          return;
        }
        const event = JSON.parse(data);
        if (event.error) {
          throw new ApiError(200, event, null);
        }
        yield event;
      }
    }
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) {
      throw error;
    }
    throw new Unreachable("cut");
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** An error for people: what happened and what to do. */
export function words(error) {
  if (error instanceof Unreachable) {
    return error.message === "cut"
      ? "The connection ended before the answer was complete. The server may have been stopped; what came is kept."
      : `The server at ${location.host} does not answer. It may have been stopped or be starting; this page goes on trying.`;
  }
  if (!(error instanceof ApiError)) {
    return `This page made a mistake: ${error.message}`;
  }
  const told = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  const full = /[.!?]$/.test(told) ? told : `${told}.`;
  if (error.status === 401) {
    return "The server needs a valid API key. “API key” at the top takes one.";
  }
  if (error.status === 429) {
    return `The server has too much to do. ${full}${error.retryAfter ? ` Try again in ${error.retryAfter} s.` : ""}`;
  }
  if (error.code === "shutting_down") {
    return "The server is shutting down and takes no new work.";
  }
  return error.param ? `The server refused the request because of “${error.param}”. ${full}` : full;
}

/** The request as a line for a shell. The key stays out of it. */
export function curlLine(path, body) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl -N", quote(address(path)), "-H 'Content-Type: application/json'"];
  if (hasKey()) {
    parts.push('-H "Authorization: Bearer $TRINE_API_KEY"');
  }
  parts.push("-d", quote(JSON.stringify(body)));
  return parts.join(" ");
}

/** Streams a conversation's answer and measures it. `onToken` gets each event's choice (or null). The
 *  result's times count from when the request was sent. */
export async function streamAnswer(body, signal, onChoice) {
  const result = { ttftMs: null, totalMs: 0, tokens: 0, promptTokens: null, tokensPerS: null, finish: null, warnings: [] };
  const started = performance.now();
  let last = started;
  const settle = () => {
    result.totalMs = performance.now() - started;
    const decodeMs = last - started - (result.ttftMs ?? 0);
    result.tokensPerS = result.tokens > 1 && decodeMs > 0 ? ((result.tokens - 1) * 1000) / decodeMs : null;
  };
  try {
    for await (const event of events("v1/chat/completions", body, signal)) {
      const usage = event.usage;
      if (usage) {
        result.promptTokens = usage.prompt_tokens;
        if (usage.completion_tokens > result.tokens) {
          last = performance.now();
          // The first chunk carries a role and no token: what counts is the first token.
          result.ttftMs ??= last - started;
          result.tokens = usage.completion_tokens;
        }
      }
      if (Array.isArray(event.warnings)) {
        result.warnings = event.warnings;
      }
      const choice = event.choices?.[0];
      if (choice) {
        result.finish = choice.finish_reason ?? result.finish;
        settle();
        onChoice(choice, result);
      }
    }
    return result;
  } finally {
    settle();
  }
}
