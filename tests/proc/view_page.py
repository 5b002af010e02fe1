# SPDX-License-Identifier: BSD-3-Clause
"""Pages of `tutti view` in headless Chromium, driven as a person would: for
view.sh. Real clicks, through Debian's chromedriver; no library.

    view_page.py PAGE RANKS [SHOTS]    one page; SHOTS: a folder for pictures

Prints TAP lines without numbers ("ok - ..."), and exits with 0 when all hold;
77: no browser here. Times are told, not judged: machines differ."""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request

LIMIT = 120  # seconds: for what hangs


class Browser:
    def __init__(self, *more_options, limit=LIMIT):
        self.limit = limit
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0", "--allowed-ips=127.0.0.1"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = None
        for line in self.driver.stdout:
            found = re.search(r"successfully on port (\d+)", line)
            if found:
                port = found[1]
                break
        self.base = "http://127.0.0.1:%s/session" % port
        options = {"args": ["--headless=new", "--no-sandbox",
                            "--disable-dev-shm-usage", "--disable-gpu",
                            "--hide-scrollbars", "--window-size=1440,1300",
                            *more_options]}
        made = self.ask("", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.base += "/" + made["sessionId"]

    def ask(self, path, body=None, method=None):
        request = urllib.request.Request(
            self.base + path, method=method or ("POST" if body is not None
                                                else "GET"),
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.limit) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self.ask("/url", {"url": url})

    def run(self, script, *args):
        return self.ask("/execute/sync", {"script": script,
                                          "args": list(args)})

    def click(self, css):
        found = self.ask("/element", {"using": "css selector", "value": css})
        self.ask("/element/%s/click" % next(iter(found.values())), {})

    def press(self, key):
        keys = [{"type": "keyDown", "value": key},
                {"type": "keyUp", "value": key}]
        self.ask("/actions", {"actions": [{"type": "key", "id": "keys",
                                           "actions": keys}]})

    def logs(self, kind):
        return self.ask("/se/log", {"type": kind})

    def shot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("/screenshot")))

    def close(self):
        try:
            self.ask("", method="DELETE")
        except OSError:
            pass
        self.driver.terminate()
        self.driver.wait()


class Checks:
    def __init__(self, browser, shots, name):
        self.browser, self.shots, self.name = browser, shots, name
        self.n_failed = 0

    def check(self, what, holds, found=""):
        self.n_failed += not holds
        print("%s - %s%s" % ("ok" if holds else "not ok", what,
                             "" if holds else "\n# found: %r" % (found,)))

    def is_(self, what, found, wanted):
        self.check(what, found == wanted, found)

    def state(self, name):
        return self.browser.run("return tuttiView.state[arguments[0]]", name)

    def awaits(self, script):
        end = time.monotonic() + LIMIT
        while not self.browser.run("return " + script):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def shoot(self, what):
        if self.shots:
            self.browser.shot(os.path.join(self.shots, "%s-%s.png" %
                                           (self.name, what)))


# Pixels of the canvas near to a colour given as "#rrggbb".
NEAR = """
const c = document.getElementById(arguments[0]), want = arguments[1];
const w = [1, 3, 5].map(i => parseInt(want.substr(i, 2), 16));
const copy = new OffscreenCanvas(c.width, c.height);
const g = copy.getContext('2d', {willReadFrequently: true});
g.drawImage(c, 0, 0);
const d = g.getImageData(0, 0, c.width, c.height).data;
let n = 0;
for (let i = 0; i < d.length; i += 4)
  if (d[i + 3] > 200 && Math.abs(d[i] - w[0]) + Math.abs(d[i + 1] - w[1]) +
      Math.abs(d[i + 2] - w[2]) < 24) n++;
return n;"""
REQUESTS = ("http:", "https:", "ws:", "wss:", "ftp:")


# What is written on canvases from here on.
NOTE_TEXTS = """
const of = CanvasRenderingContext2D.prototype, fillText = of.fillText;
window.texts = [];
of.fillText = function (text, ...rest) {
  window.texts.push(String(text));
  return fillText.call(this, text, ...rest);
};"""


def written(c):
    """The texts on the canvases, drawn anew in the other theme."""
    c.browser.run(NOTE_TEXTS)
    c.browser.click("#theme")
    c.awaits("window.texts.length > 0")
    c.browser.click("#theme")
    return c.browser.run("return window.texts")


def tables(c):
    """Rates are in the unit of the head, and what is left out is said."""
    b = c.browser
    unit, rows = b.run(
        "return [document.getElementById('busbw-unit').textContent,"
        "[...document.querySelectorAll('#planners tbody tr')]"
        ".map(r => [r.dataset.planner, r.cells[3].textContent])]")
    c.is_("the unit of rates", unit, b.run("return tuttiView.data.busbw_unit"))
    told = b.run("return tuttiView.data.planners.filter(p => p.busbw_GBps)"
                 ".map(p => [p.planner, p.busbw_GBps])")
    scale = {"GB/s": 1, "Mbit/s": 8000}.get(unit, 0)
    shown = {planner: float(text) for planner, text in rows if text != "-"}
    c.check("rates are in it", all(
        abs(shown[planner] / (rate * scale) - 1) < 1e-3
        for planner, rate in told), (unit, rows))
    runs = b.run("return tuttiView.runs.map(r => [r.planner, r.name, r.every, "
                 "r.n_chunks])")
    missing = [p for p, _ in rows if p not in [r[0] for r in runs]]
    said = b.run("return document.getElementById('left-out').textContent")
    c.check("what is not played is named", bool(missing) == bool(said) and
            all(p in said for p in missing), (missing, said))
    for at, (_, name, every, n_chunks) in enumerate(runs):
        if every < 2:
            continue
        b.run("const s = document.getElementById('shown'); s.value = %d;"
              "s.dispatchEvent(new Event('change'))" % at)
        told = b.run(
            "return document.getElementById('time-legend').textContent")
        c.check("%s: how many chunks are shown" % name, "%s: %d of %d chunks" %
                (name, -(-n_chunks // every), n_chunks) in told, told)
        load = b.run("return tuttiView.runs[%d].ready.most" % at)
        c.check("links are as busy as with all", 0 < load <= 1.02, load)


def opens(c, page, ranks):
    b = c.browser
    b.open("file://%s#theme=light" % page)
    c.check("it is painted", c.awaits("tuttiView.painted_ms > 0"))
    told = b.run("return [tuttiView.painted_ms, performance.now(), "
                 "(performance.getEntriesByName('first-contentful-paint')[0] "
                 "|| {}).startTime]")
    print("# first picture %.0f ms after the script began, first paint of the "
          "page at %.0f ms" % (told[0], told[2] or -1))
    c.is_("all ranks are there", b.run(
        "return tuttiView.data.network.nodes.filter(v => v[2] >= 0).length"),
        ranks)
    names = b.run("return tuttiView.data.network.nodes"
                  ".filter(v => v[2] >= 0 && v[1] === 'host')"
                  ".map(v => [v[0], v[2]])")
    if ranks <= 16:
        texts = written(c)
        c.check("every host has its name in the network",
                not [n for n, r in names if n not in texts], texts)
        c.check("and in the time line",
                not [n for n, r in names if "%s  %d" % (n, r) not in texts],
                texts)
    c.check("the bottleneck is red in the picture",
            b.run(NEAR, "network", "#d0212f") > 20)
    c.check("and is named", "ottleneck" in b.run(
        "return document.getElementById('limit').textContent"))
    blue, orange = (b.run(NEAR, "times", colour)
                    for colour in ("#0072b2", "#e08700"))
    c.check("the time line has bars", blue + orange > 30, (blue, orange))
    c.shoot("open")


def steps(c):
    b = c.browser
    b.click("#step")
    c.is_("Step goes to steps", c.state("byStep"), True)
    where = "return document.getElementById('where').textContent"
    c.check("to the first", c.awaits(
        "document.getElementById('where').textContent.startsWith('step 1 ')"),
        b.run(where))
    n_steps = b.run("return tuttiView.runs[tuttiView.state.shown]"
                    ".steps.length")
    b.click("#step")
    wanted = "step %d of %d" % (min(2, n_steps), n_steps)
    c.check("then on", c.awaits(
        "document.getElementById('where').textContent.startsWith('%s')" %
        wanted), b.run(where))
    c.shoot("step")
    b.click("#back")
    c.check("and back", abs(c.state("step") - 0.5) < 1e-9, c.state("step"))
    b.click("#by-time")
    c.is_("Time goes to time", c.state("byStep"), False)


def plays(c):
    b = c.browser
    b.click("#first")
    c.is_("at the start", c.state("t"), 0)
    b.click("#play")
    c.is_("it plays", c.state("playing"), True)
    c.check("time goes on", c.awaits("tuttiView.state.t > 0"))
    b.click("#play")
    c.is_("it pauses", c.state("playing"), False)
    at = c.state("t")
    time.sleep(0.2)
    c.is_("and stands still", c.state("t"), at)
    c.shoot("play")
    b.run("const s = document.getElementById('speed'); s.value = '4'; "
          "s.dispatchEvent(new Event('change'))")
    c.is_("the speed is as chosen", c.state("speed"), 4)
    b.run("const p = document.getElementById('place'); p.value = 900; "
          "p.dispatchEvent(new Event('input')); document.activeElement.blur()")
    b.press(" ")
    run = "tuttiView.runs[tuttiView.state.shown]"
    c.check("the space bar plays, to the end", c.awaits(
        "!tuttiView.state.playing && tuttiView.state.t === %s.time_s" % run),
        c.state("t"))


def picks(c):
    b = c.browser
    chunk = b.run("return tuttiView.runs[tuttiView.state.shown].chunks[0]")
    b.click("#chunks [data-chunk='%d']" % chunk)
    c.is_("the chunk is picked", c.state("chunk"), chunk)
    circles = b.run("return document.querySelectorAll('#tree circle').length")
    about = b.run("return document.getElementById('tree-about').textContent")
    c.check("its way is drawn, or why not is said",
            circles > 1 or "no tree" in about, (circles, about))
    c.shoot("pick")
    b.press("\ue00c")  # Escape
    c.is_("Escape lets it go", c.state("chunk"), -1)


def chooses(c):
    b = c.browser
    others = b.run(
        "return [...document.querySelectorAll('#planners tr.here')]"
        ".map(r => r.dataset.planner)")
    shown = "return tuttiView.runs[tuttiView.state.shown].planner"
    for planner in [p for p in others if p != b.run(shown)][:1]:
        b.click("#planners tr[data-planner='%s']" % planner)
        c.is_("a click on a planner shows it", b.run(shown), planner)
    if b.run("return tuttiView.runs.length") > 1:
        b.run("const u = document.getElementById('under');"
              "u.value = tuttiView.state.shown ? 0 : 1;"
              "u.dispatchEvent(new Event('change'))")
        c.check("one run lies over another", c.state("under") >= 0)
        told = b.run(
            "return document.getElementById('time-legend').textContent")
        c.check("which is told", re.search(r"takes .* (longer|less|long)\.",
                                           told), told)
        c.shoot("compare")
    b.click("#theme")
    c.is_("it can be dark", b.run(
        "return document.documentElement.dataset.theme"), "dark")
    c.shoot("dark")


def quiet(c):
    """No error on the console, and nothing asked of any network."""
    said = [e["message"] for e in c.browser.logs("browser")
            if e["level"] in ("SEVERE", "WARNING")]
    c.check("nothing on the console", not said, said)
    asked = []
    for entry in c.browser.logs("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"][:80])
    c.check("no request but for the page itself",
            not [u for u in asked if u.startswith(REQUESTS)], asked)


def main():
    if not shutil.which("chromedriver") or not shutil.which("chromium"):
        return 77
    page, ranks = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    shots = sys.argv[3] if len(sys.argv) > 3 else None
    browser = Browser()
    try:
        name = os.path.basename(page).rsplit(".", 1)[0]
        c = Checks(browser, shots, name)
        opens(c, page, ranks)
        tables(c)
        steps(c)
        plays(c)
        picks(c)
        chooses(c)
        quiet(c)
        return 1 if c.n_failed else 0
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
