#!/usr/bin/env python3
"""The web page of `trine serve` in headless Chromium, used as a person would.

Usage: page_test.py TRINE_BINARY [unittest arguments]. Needs selenium (requirements.txt), chromium and chromium-driver.
PAGE_SHOTS=DIRECTORY keeps pictures of every view.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import unittest

os.environ["SE_AVOID_STATS"] = "true"
os.environ["NO_PROXY"] = "*"

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import LARGE, SMALL, SOURCE, Server  # noqa: E402

TRINE = ""
KEY = "page-key-0123456789abcdef"
STYLE = (SOURCE / "src" / "server" / "page" / "style.css").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> [go](javascript:alert(1))"


def start_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in color[:3])]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def quantile(q, buckets):
    """Prometheus' histogram_quantile() over [(upper bound, cumulative count)]."""
    total = buckets[-1][1]
    rank, lower, below = q * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower


class Page(unittest.TestCase):
    """One browser and one server for all cases of a class."""

    args = ()
    env = {}
    model = [LARGE, SMALL]
    allowed_log = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(TRINE, *cls.args, model=cls.model, **cls.env)
        cls.addClassCleanup(cls.server.stop)
        cls.browser = start_browser()
        cls.addClassCleanup(cls.browser.quit)
        cls.origin = f"http://127.0.0.1:{cls.server.port}"
        cls.browser.get(cls.origin + "/")  # storage belongs to an origin

    def setUp(self):
        self.browser.get_log("browser")
        self.browser.execute_script("localStorage.clear(); sessionStorage.clear()")
        self.open()

    def tearDown(self):
        found = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        self.assertEqual([text for text in found if not any(part in text for part in self.allowed_log)], [])
        # Nothing but this server was asked for anything.
        asked = self.run_script("return performance.getEntriesByType('resource').map(e => e.name)")
        self.assertEqual([url for url in asked if not url.startswith(self.origin + "/") and not url.startswith(f"blob:{self.origin}")], [])
        self.assertFalse([url for url in asked if KEY in url])

    # -- steps of a person

    def open(self, view="chat"):
        self.browser.get("about:blank")
        self.browser.get(f"{self.origin}/#{view}")
        if not self.env:
            self.until(lambda: self.get("#model").get_attribute("value"), "the models are listed")

    def run_script(self, text, *args):
        return self.browser.execute_script(text, *args)

    def get(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def until(self, accept, what, timeout=20):
        return WebDriverWait(self.browser, timeout, 0.02, ignored_exceptions=(Exception,)).until(lambda _: accept(), what)

    def set(self, name, value, prefix="chat"):
        self.get(f"#{prefix}-{name}").send_keys(Keys.CONTROL + "a", Keys.NULL, Keys.BACKSPACE, str(value))

    def ask(self, text, **settings):
        for name, value in settings.items():
            self.set(name, value)
        self.get("#prompt").send_keys(text + Keys.ENTER)

    def wait_answer(self, messages):
        self.until(lambda: len(self.all(".message")) == messages and self.get("#send").is_displayed(), f"{messages} messages")
        return self.run_script("return [...document.querySelectorAll('.message')].at(-1).querySelector('.body').textContent")

    def press(self, label, message=-1):
        node = self.all(".message")[message]
        next(b for b in node.find_elements(By.CSS_SELECTOR, ".tools button") if b.text == label).click()

    def raw_request(self):
        self.press("Request")
        pre = self.get("pre.raw")
        return json.loads(pre.text), self.get("pre.curl").text

    def shot(self, name):
        if os.environ.get("PAGE_SHOTS"):
            self.browser.save_screenshot(str(pathlib.Path(os.environ["PAGE_SHOTS"]) / f"{name}.png"))


class Files(unittest.TestCase):
    """The files as HTTP, without a browser."""

    def test_headers_tags_and_types(self):
        with Server(TRINE, model=SMALL, TRINE_API_KEY=KEY) as server:
            status, headers, body = server.get("/")
            self.assertEqual(status, 200)
            paths = {"/": "text/html; charset=utf-8"}
            types = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
            for file in (SOURCE / "src" / "server" / "page").iterdir():
                if file.suffix in types:
                    paths[f"/page/{file.name}"] = types[file.suffix]
            self.assertGreater(len(paths), 10)
            tags = set()
            for path, kind in paths.items():
                with self.subTest(path=path):
                    status, headers, text = server.get(path)
                    name = "index.html" if path == "/" else path.split("/")[-1]
                    self.assertEqual(text, (SOURCE / "src" / "server" / "page" / name).read_text(encoding="utf-8"))
                    self.assertEqual((status, headers["content-type"]), (200, kind))
                    self.assertEqual(headers["x-content-type-options"], "nosniff")
                    self.assertEqual(headers["cache-control"], "no-cache")
                    policy = headers["content-security-policy"]
                    for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'",
                                 "base-uri 'none'", "require-trusted-types-for 'script'"):
                        self.assertIn(rule, policy)
                    self.assertNotIn("unsafe", policy)
                    self.assertNotIn("*", policy)
                    tag = headers["etag"]
                    self.assertRegex(tag, r'^"[0-9a-f]{32}"$')
                    tags.add(tag)
                    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
                        status, headers, text = server.call("GET", path, headers={"If-None-Match": known})
                        self.assertEqual((status, text, headers["etag"]), (304, "", tag))
                        self.assertNotIn("content-length", headers)
                    self.assertEqual(server.call("GET", path, headers={"If-None-Match": '"other"'})[0], 200)
                    self.assertEqual(server.call("HEAD", path)[2], "")
            self.assertEqual(len(tags), len(paths))
            for path in ("/page/", "/page/nope.js", "/page/../page/app.js", "/page/app.js/", "/page/embed.cmake"):
                self.assertEqual(server.get(path)[0], 404, path)
            self.assertEqual(server.call("POST", "/", "{}")[0], 405)

    def test_the_page_can_be_left_out(self):
        with Server(TRINE, "--no-web-page", model=SMALL) as server:
            self.assertEqual([server.get(path)[0] for path in ("/", "/page/app.js", "/v1/models")], [404, 404, 200])
        with Server(TRINE, model=SMALL, TRINE_WEB_PAGE="false") as server:
            self.assertEqual(server.get("/")[0], 404)

    def test_no_inline_code_and_no_other_host(self):
        for file in (SOURCE / "src" / "server" / "page").iterdir():
            if file.suffix not in (".html", ".js", ".css"):
                continue
            text = file.read_text(encoding="utf-8")
            addresses = [a for a in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) if "www.w3.org" not in a]
            self.assertEqual(addresses, [], file.name)
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", file.name)
            if file.suffix == ".html":
                self.assertNotRegex(text, r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", file.name)

    def test_contrast_of_the_colours(self):
        names = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", STYLE))
        pairs = {name: [tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in value.split(", ")] for name, value in names.items()}
        text = [("text", b) for b in ("bg", "surface", "raised", "accent-soft")] + [("muted", b) for b in ("bg", "surface", "raised")]
        text += [("accent", "surface"), ("accent", "bg"), ("accent", "accent-soft"), ("on-accent", "accent"), ("on-mark", "mark")]
        text += [("bad", "bad-soft"), ("bad", "surface"), ("bad", "bg"), ("good", "surface"), ("good", "good-soft"), ("wait", "surface")]
        shapes = [("control", "surface"), ("control", "bg")] + [(f"series-{i}", "surface") for i in range(3)]
        for least, couples in ((4.5, text), (3.0, shapes)):
            for front, back in couples:
                for theme in (0, 1):
                    got = contrast(pairs[front][theme], pairs[back][theme])
                    self.assertGreaterEqual(got, least, f"{front} on {back}, {('light', 'dark')[theme]}")


class Chat(Page):
    def test_send_stream_and_measure(self):
        self.run_script("""
          window.lengths = new Set();
          new MutationObserver(() => { const body = document.querySelector('.message.assistant .body');
            if (body) window.lengths.add(body.textContent.length); }).observe(document.getElementById('messages'), {subtree: true, childList: true, characterData: true});
        """)
        self.ask("The engine", temperature=0, max_completion_tokens=400)
        shown = self.wait_answer(2)
        self.assertGreater(len(self.run_script("return [...window.lengths]")), 5, "it came piece by piece")
        body = {"model": "docs-8m", "messages": [{"role": "user", "content": "The engine"}], "temperature": 0, "max_completion_tokens": 400}
        _, _, whole = self.server.call("POST", "/v1/chat/completions", body)
        content = json.loads(whole)["choices"][0]["message"]["content"]
        squeeze = lambda text: re.sub(r"[\s*`#]+|code(?=Copy)|Copy", "", text)  # noqa: E731
        self.assertEqual(squeeze(shown)[:60], squeeze(content)[:60])
        tokens = json.loads(whole)["usage"]["completion_tokens"]
        self.assertRegex(self.text(".message.assistant .stats"), rf"^first token [\d.]+ m?s  ·  [\d.]+ tokens/s  ·  {tokens} tokens  ·  ")
        # Heard by screen readers when it is there.
        self.assertIn(content[:20].strip(), self.text("#announce"))
        self.assertEqual(self.get("#announce").get_attribute("aria-live"), "polite")
        # Kept in the browser, and only there.
        self.open()
        self.assertEqual(len(self.all(".message")), 2)
        self.shot("chat")

    def test_sampler_values_reach_the_request_and_the_server(self):
        values = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1, "presence_penalty": 0.2,
                  "frequency_penalty": 0.3, "seed": 11, "max_completion_tokens": 24}
        self.get("#system").send_keys("Be it so")
        self.set("stop", "zzzq\\n")
        self.ask("it's a 'test'", **values)
        shown = self.wait_answer(2)
        body, curl = self.raw_request()
        self.assertEqual({k: body[k] for k in values}, values)
        self.assertEqual(body["stop"], ["zzzq\n"])
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be it so"}, {"role": "user", "content": "it's a 'test'"}])
        # The line for a shell is the same request and gives the same answer.
        words = shlex.split(curl)
        self.assertEqual(json.loads(words[words.index("-d") + 1]), body)
        out = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=30, check=True).stdout
        events = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("data: {")]
        answer = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        self.assertEqual(re.sub(r"[\s*`#]+", "", shown), re.sub(r"[\s*`#]+", "", answer))
        # The other model, and an empty field is not sent.
        self.run_script("const m = document.getElementById('model'); m.value = 'docs-1m'")
        self.set("temperature", "")
        self.ask("Again")
        self.wait_answer(4)
        body, _ = self.raw_request()
        self.assertEqual(body["model"], "docs-1m")
        self.assertNotIn("temperature", body)
        self.assertEqual([m["role"] for m in body["messages"]], ["system", "user", "assistant", "user"])

    def test_wrong_values_are_named_and_not_sent(self):
        self.ask("Hello", temperature=300)
        self.assertEqual(self.text("#chat-problem"), "Not sent. Temperature: 300 is above 100.")
        self.assertEqual(self.get("#chat-temperature").get_attribute("aria-invalid"), "true")
        self.assertEqual((len(self.all(".message")), self.get("#prompt").get_attribute("value")), (0, "Hello"))
        self.set("temperature", "0")
        self.set("max_completion_tokens", "100000")
        self.ask("")
        self.wait_answer(2)
        self.assertIn("the context holds 2048", self.text(".message.assistant .error"))
        self.assertIn("100000", self.text(".message.assistant .error"))
        self.browser.get_log("browser")  # the browser's own note of a status 400

    def test_stop_with_the_button_and_escape(self):
        for way in ("button", "escape"):
            with self.subTest(way=way):
                self.get("#new-chat").click()
                # No end token: it would go on for thousands of tokens.
                self.ask("The engine", temperature=1, max_completion_tokens=1900, seed=4)
                self.until(lambda: len(self.text(".message.assistant .body")) > 20, "it began")
                if way == "button":
                    self.get("#stop").click()
                else:
                    self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
                kept = self.wait_answer(2)
                self.assertGreater(len(kept), 20)
                self.assertIn("stopped by you", self.text(".message.assistant .stats"))
                self.server.wait_metric("trine_requests_running", lambda value: value == 0)
                self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "prompt")

    def test_regenerate_and_edit_cut_what_follows(self):
        self.ask("One", temperature=1, seed=1, max_completion_tokens=12)
        first = self.wait_answer(2)
        self.ask("Two")
        self.wait_answer(4)
        self.press("Regenerate", 1)
        self.assertEqual(self.wait_answer(2), first)
        self.set("seed", 2)
        self.press("Regenerate", 1)
        self.until(lambda: self.wait_answer(2) != first, "another seed, another answer")
        self.ask("Three")
        self.wait_answer(4)
        self.press("Edit", 0)
        self.assertEqual(self.text(".editor .hint"), "Saving removes the 3 messages after this one.")
        editor = self.browser.switch_to.active_element
        editor.send_keys(Keys.ESCAPE)
        self.assertEqual(len(self.all(".message")), 4)
        self.press("Edit", 0)
        self.browser.switch_to.active_element.send_keys(" more" + Keys.ENTER)
        self.wait_answer(2)
        self.assertEqual(self.text(".message.user .body"), "One more")
        body, _ = self.raw_request()
        self.assertEqual(body["messages"], [{"role": "user", "content": "One more"}])

    def test_a_models_text_is_text(self):
        answer = HOSTILE + "\n\n```html\n<b>bold</b>\n```\n\n- one **two** `<i>`\n- three"
        self.run_script("localStorage.setItem('trine.conversation', JSON.stringify([{role: 'user', content: arguments[0]}, {role: 'assistant', content: arguments[1]}]))",
                        HOSTILE, answer)
        self.open()
        self.assertEqual(self.all(".message img, .message script, .message a, .message b, .message i"), [])
        self.assertEqual(self.text(".message.user .body"), HOSTILE)
        self.assertIn("<img src=x", self.text(".message.assistant .body"))
        self.assertEqual(self.text(".message .code pre"), "<b>bold</b>")
        self.assertEqual(self.text(".message .code-head span"), "html")
        self.assertEqual([e.text for e in self.all(".message li")], ["one two <i>", "three"])
        self.assertEqual((self.text(".message strong"), self.text(".message li code")), ("two", "<i>"))
        self.assertEqual(self.browser.title, "Chat · Trine")
        # Even a mistake of the page could not turn text into markup.
        refused = self.run_script("try { document.body.innerHTML = '<p>x</p>'; return 'done' } catch (e) { return e.name }")
        self.assertEqual(refused, "TypeError")
        self.browser.get_log("browser")

    def test_keyboard_only(self):
        active = lambda: self.browser.switch_to.active_element  # noqa: E731
        self.run_script("document.activeElement.blur()")
        seen = []
        for _ in range(60):
            webdriver.ActionChains(self.browser).send_keys(Keys.TAB).perform()
            node = active()
            if node.tag_name == "body":  # round the end
                continue
            if seen and node.get_attribute("id") == seen[0]:
                break
            seen.append(node.get_attribute("id") or node.text)
            ring = self.run_script("const s = getComputedStyle(document.activeElement); return s.outlineStyle + ' ' + s.outlineWidth")
            self.assertEqual(ring, "solid 2px", f"focus is seen on {seen[-1]}")
        wanted = ["skip", "to-chat", "to-compare", "to-charts", "theme", "model", "new-chat", "open-chat", "toggle-settings", "pane", "prompt", "send",
                  "chat-defaults", "system", "chat-temperature", "chat-seed", "chat-stop"]
        self.assertEqual([name for name in wanted if name not in seen], [])
        # Every control that is shown was reached.
        shown = self.run_script("return [...document.querySelectorAll('a, button, input, select, textarea')].filter(e => e.checkVisibility() && !e.disabled).map(e => e.id)")
        self.assertEqual([name for name in shown if name not in seen], [])
        self.get("#skip").send_keys(Keys.ENTER)
        self.assertEqual(active().get_attribute("id"), "chat-title")
        self.get("#prompt").send_keys("one", Keys.SHIFT + Keys.ENTER, Keys.NULL, "two")
        self.assertEqual(self.get("#prompt").get_attribute("value"), "one\ntwo")
        self.set("max_completion_tokens", 4)
        self.get("#prompt").send_keys(Keys.ENTER)
        self.wait_answer(2)
        self.get("#to-compare").send_keys(Keys.ENTER)
        self.until(lambda: active().get_attribute("id") == "compare-title", "the focus goes to the view")
        # Every field has a name.
        nameless = self.run_script("""return [...document.querySelectorAll('input, select, textarea, button, a')].filter(e =>
          !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)""")
        self.assertEqual(nameless, [])
        self.assertEqual(self.run_script("return ['header', 'nav', 'main'].map(t => document.querySelectorAll(t).length)"), [1, 1, 1])

    def contrasts(self):
        """Texts on the screen whose contrast is below 4.5 with what is painted behind them."""
        found = self.run_script("""
          const rgb = c => c.match(/[\\d.]+/g).map(Number);
          const out = [];
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          for (let node; node = walker.nextNode();) {
            const e = node.parentElement;
            if (!node.data.trim() || !e.checkVisibility() || e.closest('.unseen, .skip, option, :disabled, noscript')) continue;
            let back = e, color;
            for (; back; back = back.parentElement) { color = rgb(getComputedStyle(back).backgroundColor); if ((color[3] ?? 1) > 0) break; }
            const front = e.namespaceURI.endsWith('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color;
            out.push([node.data.trim().slice(0, 30), rgb(front), color ?? [255, 255, 255]]);
          }
          return out;""")
        self.assertGreater(len(found), 10)
        return [(text, round(contrast(a, b), 2)) for text, a, b in found if contrast(a, b) < 4.5]

    def test_themes_contrast_and_widths(self):
        self.ask("The engine", temperature=0, max_completion_tokens=20)
        self.wait_answer(2)
        self.press("Request")
        back = lambda: self.run_script("return getComputedStyle(document.body).backgroundColor")  # noqa: E731
        seen = {}
        for system in ("light", "dark"):
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": system}]})
            seen[system] = back()
            for view in ("chat", "compare", "charts"):
                self.get(f"#to-{view}").click()
                if view == "charts":
                    self.until(lambda: len(self.all(".card .plot")) == 7, "the charts are there")
                with self.subTest(system=system, view=view):
                    self.assertEqual(self.contrasts(), [])
                self.shot(f"{view}-{system}")
        self.assertNotEqual(seen["light"], seen["dark"])
        theme = self.get("#theme")
        for label, wanted in (("light", "light"), ("dark", "dark"), ("system", "dark")):
            theme.click()
            self.assertEqual((theme.text, back()), (f"Theme: {label}", seen[wanted]))
        theme.click()
        self.open()
        self.assertEqual((self.get("#theme").text, back()), ("Theme: light", seen["light"]))
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
        self.run_script("const m = document.querySelector('.message.assistant'); m.setAttribute('aria-busy', 'true')")
        moves = self.run_script("return getComputedStyle(document.querySelector('.message.assistant .body'), '::after').animationName")
        self.assertEqual(moves, "none")
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        for width in (390, 1920):
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False})
            for view in ("chat", "compare", "charts"):
                self.get(f"#to-{view}").click()
                self.assertEqual(self.run_script("return document.documentElement.scrollWidth"), width, view)
                wide = self.run_script("return [...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre')).map(e => e.outerHTML.slice(0, 80))")
                self.assertEqual(wide, [], view)
                self.shot(f"{view}-{width}")
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# A refused request is also noted by the browser itself.
Chat.allowed_log = ("status of 400",)


class Compare(Page):
    def compare(self, a, b, prompt="The engine", models=("docs-8m", "docs-8m")):
        for side, values, model in zip("ab", (a, b), models):
            self.run_script("const m = document.getElementById(arguments[0]); m.value = arguments[1]", f"compare-{side}-model", model)
            for name in ("temperature", "seed", "max_completion_tokens"):
                self.set(name, values.get(name, ""), prefix=f"compare-{side}")
        field = self.get("#compare-prompt")
        field.clear()
        field.send_keys(prompt + Keys.ENTER)
        self.until(lambda: self.get("#compare-run").is_displayed() and "Asking" not in self.text("#compare-verdict"), "both answered", 30)
        return self.text("#compare-verdict")

    def ids(self, model, values):
        body = {"model": model, "messages": [{"role": "user", "content": "The engine"}], "return_token_ids": True, **values}
        return json.loads(self.server.call("POST", "/v1/chat/completions", body)[2])["choices"][0]["token_ids"]

    def test_first_difference_and_identical(self):
        self.open("compare")
        same = {"temperature": 1, "seed": 7, "max_completion_tokens": 24}
        for together in (False, True):
            count = len(self.ids("docs-8m", same))
            self.assertEqual(self.compare(same, same), f"Identical: all {count} tokens are the same (compared by token id).")
            self.assertEqual(self.all("mark"), [])
            self.assertIn("same", self.get("#compare-verdict").get_attribute("class"))
            self.get("#compare-together").click()
        # Two seeds that part in the middle, as the API itself tells.
        same = {"temperature": 0.1, "seed": 1, "max_completion_tokens": 24}
        a = self.ids("docs-8m", same)
        for seed in range(2, 60):
            other = {**same, "seed": seed}
            b = self.ids("docs-8m", other)
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), 0)
            if at >= 2:
                break
        self.assertGreaterEqual(at, 2)
        said = self.compare(same, other)
        self.assertRegex(said, rf"^First difference at token {at + 1}: A has .* \(id {a[at]}\), B has .* \(id {b[at]}\) \(compared by token id\)\.$")
        marks = self.all("#compare-answers mark")
        self.assertEqual([m.get_attribute("data-token") for m in marks], [str(a[at]), str(b[at])])
        shared = self.run_script("return [...document.querySelectorAll('.answer .same')].map(e => e.textContent)")
        self.assertEqual(shared[0], shared[1])
        self.assertEqual(shared[0], json.loads(self.server.call("POST", "/detokenize", {"tokens": a[:at]})[2])["prompt"])
        rows = [row.text.split("\n")[0] for row in self.all(".figures tbody tr")]
        self.assertEqual(len(rows), 4)
        self.assertRegex(rows[0], r"^First token [\d.]+ m?s [\d.]+ m?s$")
        self.assertRegex(rows[1], r"^Tokens/s [\d.]+ [\d.]+$")
        self.assertEqual(len(self.all(".alternatives tbody tr")), 10)
        self.shot("compare-result")

    def test_the_end_is_a_difference_and_two_models_compare_bytes(self):
        self.open("compare")
        short = {"temperature": 0, "max_completion_tokens": 5}
        said = self.compare(short, {**short, "max_completion_tokens": 9})
        self.assertRegex(said, r"^First difference at token 6: A has nothing: it ends here, B has ")
        self.assertEqual([m.get_attribute("data-token") for m in self.all("mark")][0], "end")
        said = self.compare(short, short, models=("docs-8m", "docs-1m"))
        self.assertIn("compared by the bytes of each token", said)

    def test_errors_are_told(self):
        self.open("compare")
        self.assertEqual(self.compare({}, {"temperature": -1}), "Not sent. B, Temperature: -1 is below 0.")
        said = self.compare({"max_completion_tokens": 4}, {"max_completion_tokens": 99999})
        self.assertRegex(said, r"^Not compared\. B: .*the context holds 2048")


Compare.allowed_log = ("status of 400",)


class Charts(Page):
    args = ("--max-waiting", "2", "--max-sequences", "1")
    model = LARGE  # slow enough for a queue that can be seen

    def table(self, chart):
        return {row[0]: row[1:] for row in self.run_script(
            "return [...document.querySelectorAll(`#chart-${arguments[0]} tbody tr`)].map(r => [...r.children].map(c => c.textContent))", chart)}

    def buckets(self, name):
        text = self.server.get("/metrics")[2]
        return [(float(le), float(count)) for le, count in re.findall(rf'^{name}_bucket{{.*le="(.*?)".*}} (\S+)$', text, re.M)]

    def test_tables_agree_with_metrics(self):
        self.open("charts")
        self.until(lambda: self.table("requests"), "the first sample")
        self.run_script("const w = document.getElementById('charts-window'); w.value = '300'; w.dispatchEvent(new Event('change'))")
        self.assertEqual(self.table("ttft")["p50"], ["–", "–", "–"], "no answer, no number")
        for i in range(12):
            self.server.complete(prompt="The engine " * (1 + 5 * i), max_tokens=4 + 3 * i)
        streams = [self.server.stream(max_tokens=1500, ignore_eos=True) for _ in range(3)]
        self.server.wait_metric("trine_requests_waiting", lambda value: value == 2)
        refused = sum(self.server.complete()[0] == 429 for _ in range(3))
        self.assertEqual(refused, 3)
        self.until(lambda: [self.table("requests")[k][0] for k in ("running", "waiting", "rejected")] == ["1", "2", "3"], "the queue is shown")
        self.assertRegex(self.table("kv")["in use"][0], r"^[\d.]+ %$")
        self.assertGreater(float(self.table("kv")["in use"][0].split()[0]), 0)
        for stream in streams:
            stream.close()
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)
        self.until(lambda: self.table("requests")["running"][0] == "0" and self.table("requests")["waiting"][0] == "0", "all has ended")
        for chart, name in (("ttft", "trine_time_to_first_token_seconds"), ("tpot", "trine_request_time_per_output_token_seconds"),
                            ("queue", "trine_request_queue_time_seconds")):
            buckets = self.buckets(name)
            self.assertGreaterEqual(buckets[-1][1], 12)
            for q in (50, 95, 99):
                wanted = 1000 * quantile(q / 100, buckets)
                shown = self.table(chart)[f"p{q}"][0]
                number, unit = shown.split()
                got = float(number) * (1000 if unit == "s" else 1)
                self.assertAlmostEqual(got, wanted, delta=0.01 * wanted, msg=f"{chart} p{q}: {shown}")
        hits = self.server.metric("trine_prefix_cache_hits_total") / self.server.metric("trine_prefix_cache_queries_total")
        self.assertAlmostEqual(float(self.table("prefix")["hit rate"][0].split()[0]), 100 * hits, delta=max(0.6, hits))
        self.assertGreater(float(self.table("tokens")["answers"][2].split()[0]), 0)
        # What is drawn ends where the table says.
        self.assertEqual(len(self.all(".plot")), 7)
        self.assertIn("L", self.get("#chart-ttft .line-0").get_attribute("d"))
        self.shot("charts")

    def test_quantiles_rates_and_restarts(self):
        got = self.browser.execute_async_script("""
          const done = arguments[0];
          import(new URL('page/metrics.js', document.baseURI)).then(({parse, Sample, History, quantile}) => {
            const page = (n) => `# HELP x y\\nx_bucket{model_name="a \\\\"b\\\\" {c}",le="0.1"} ${n}\\nx_bucket{model_name="a \\\\"b\\\\" {c}",le="1"} ${4 * n}\\n` +
              `x_bucket{model_name="a \\\\"b\\\\" {c}",le="+Inf"} ${5 * n}\\nx_total{model_name="d"} ${n}\\nx_total{model_name="e"} 1\\ntrine_steps_total ${n}\\n`;
            const one = new Sample(0, parse(page(2))), two = new Sample(1000, parse(page(6)));
            const history = new History();
            history.add(one); history.add(two);
            const start = history.start(1, 500).time;
            history.add(new Sample(2000, parse(page(1))));
            const b = (s) => s.buckets('x', '');
            done([[0.1, 0.5, 0.99].map(q => quantile(q, b(two), b(one))), quantile(0.5, b(one), b(one)), two.sum('x_total', 'd'), two.sum('x_total', ''),
                  two.sum('none', ''), Object.values(parse(page(1)).get('x_bucket')[0].labels), start, history.samples.length, history.epoch]);
          }).catch(e => done(String(e)));""")
        gained = [(0.1, 4.0), (1.0, 16.0), (float("inf"), 20.0)]
        self.assertEqual(len(got), 9, got)
        for have, q in zip(got[0], (0.1, 0.5, 0.99)):
            self.assertAlmostEqual(have, quantile(q, gained), places=12)
        self.assertEqual(got[1:], [None, 6, 7, None, ['a "b" {c}', "0.1"], 0, 1, 1])


class Keyed(Page):
    env = {"TRINE_API_KEY": KEY}
    model = SMALL
    allowed_log = ("status of 401",)

    def test_the_page_asks_for_the_key(self):
        self.until(lambda: self.get("#key-dialog").is_displayed(), "the page asks")
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "key")
        self.get("#key").send_keys("wrong-key-0123456789" + Keys.ENTER)
        self.until(lambda: self.text("#key-problem") == "The server did not accept this key.", "a wrong key is told")
        self.get("#key").send_keys("schlüssel" + Keys.ENTER)
        self.assertIn("ASCII", self.text("#key-problem"))
        self.get("#key").clear()
        self.get("#key").send_keys(KEY + Keys.ENTER)
        self.until(lambda: self.get("#model").get_attribute("value") == "docs-1m", "the models are listed")
        self.ask("Hello", max_completion_tokens=4)
        self.wait_answer(2)
        _, curl = self.raw_request()
        self.assertIn('-H "Authorization: Bearer $TRINE_API_KEY"', curl)
        self.assertNotIn(KEY, curl)
        kept = self.run_script("return [Object.values(sessionStorage).join(), Object.values(localStorage).join(), location.href, document.documentElement.outerHTML]")
        self.assertEqual([KEY in text for text in kept], [True, False, False, False])
        self.get("#key-button").click()
        self.get("#key-forget").click()
        self.assertEqual(self.run_script("return sessionStorage.length"), 0)

    def test_without_a_key_it_says_so(self):
        self.until(lambda: self.get("#key-dialog").is_displayed(), "the page asks")
        self.get("#key-cancel").click()
        self.ask("Hello")
        self.wait_answer(2)
        self.assertIn("needs a valid API key", self.text(".message.assistant .error"))


class Gone(Page):
    model = SMALL
    allowed_log = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")

    def test_a_server_that_goes_is_told(self):
        self.ask("Hello", max_completion_tokens=4)
        self.wait_answer(2)
        self.ask("The engine", max_completion_tokens=1900, temperature=1, seed=4)
        self.until(lambda: self.text(".message:last-child .body"), "it began")
        self.server.process.kill()
        self.server.process.wait()
        self.wait_answer(4)
        self.assertIn("ended before the answer was complete", self.text(".message:last-child .error"))
        # It notices by itself.
        self.until(lambda: self.get("#gone").is_displayed() and self.text("#state") == "Not reachable", "the page says it")
        self.assertEqual(self.get("#gone").get_attribute("role"), "alert")
        self.ask("Are you there?")
        self.wait_answer(6)
        self.assertIn("does not answer", self.text(".message:last-child .error"))
        with Server(TRINE, "--port", str(self.server.port), model=SMALL):
            self.until(lambda: not self.get("#gone").is_displayed() and self.text("#state") == "Ready", "it is back")
            self.press("Regenerate")
            self.until(lambda: self.get("#send").is_displayed() and not self.text(".message:last-child .error"), "an answer")
            self.assertEqual(len(self.all(".message")), 6)


if __name__ == "__main__":
    TRINE = sys.argv.pop(1)
    unittest.main()
