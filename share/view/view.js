// SPDX-License-Identifier: BSD-3-Clause
// view.js - the page of `tutti view`: draws the data that cli/view.c has put
// into it. Nothing is computed here that the program knows: places come from
// src/export/netlayout.h, routes, times and rows from the library. What a link
// carries follows from the events and their routes.
//
// Order: texts, runs, the network, the time line, tables, the chunk, playing.
"use strict";
(() => {
const started = performance.now();
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const nodes = data.network.nodes.map((v, id) => ({
  id, name: v[0], kind: v[1], rank: v[2], hub: v[3], x: v[4], y: v[5]}));
let speed = [1, 0]; // of a link, where it is not that of the one before
const links = data.network.links.map((l, id) => {
  speed = l[2] || speed;
  return {id, from: l[0], to: l[1], rate: speed[0], latency: speed[1] * 1e-12,
          twin: l[3], bends: l[4]};
});
const nodeOf = [];
for (const v of nodes) if (v.rank >= 0) nodeOf[v.rank] = v;
const nRanks = nodeOf.length;
const state = {shown: 0, under: -1, byStep: false, t: 0, step: 0, playing: false,
               speed: 1, chunk: -1};

// ---------------------------------------------------------------- texts

const short = x => String(+x.toPrecision(4));
function timeText(s) {
  if (s === 0) return "0 s";
  if (s < 1e-3) return short(s * 1e6) + " \u00b5s";
  return s < 1 ? short(s * 1e3) + " ms" : short(s) + " s";
}
function rateText(bps) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  let i = 0;
  for (; bps >= 1000 && i < 4; i++) bps /= 1000;
  return +bps.toPrecision(3) + " " + units[i];
}
function bytesText(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return +n.toPrecision(4) + " " + units[i];
}
const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const percent = x => (100 * x).toFixed(x >= 0.9995 || x < 0.0995 ? 0 : 1) + " %";
const rankText = r => nodeOf[r] ? `rank ${r} (${nodeOf[r].name})` : "rank " + r;
const linkText = l => `${nodes[l.from].name} \u2192 ${nodes[l.to].name}`;

let look = {};
function readLook() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "soft", "line", "hover", "host", "host-line",
                      "switch", "switch-ink", "link", "busy", "limit", "reduce",
                      "copy"])
    look[name] = style.getPropertyValue("--" + name).trim();
}

// ----------------------------------------------------------------- runs

const routes = new Map();
const keyOf = (src, dst, rail) => (src * 65536 + dst) * 256 + rail;
for (const [src, dst, rail, way] of data.routes) routes.set(keyOf(src, dst, rail), way);

class Run {
  constructor(raw, id) {
    Object.assign(this, raw);
    this.raw = raw;
    this.id = id;
  }
  // What is only needed of a run that is shown.
  get ready() {
    if (this.n !== undefined) return this;
    const raw = this.raw, n = this.n = raw.step.length, tick = raw.time_s / raw.ticks;
    // Columns are written as differences.
    for (const name of ["step", "chunk", "src", "dst", "rail", "size", "begin", "sent", "end"]) {
      let sum = 0;
      if (raw[name]) this[name] = Int32Array.from(raw[name], d => sum += d);
    }
    this.t0 = new Float64Array(n);
    this.t1 = new Float64Array(n);
    this.t2 = new Float64Array(n);
    this.bytes = Float64Array.from(this.size, i => raw.sizes[i]);
    for (let i = 0; i < n; i++) {
      this.t0[i] = this.begin[i] * tick;
      this.t1[i] = this.t0[i] + this.sent[i] * tick;
      this.t2[i] = this.t1[i] + this.end[i] * tick;
    }
    this.findLoads();
    this.findArrivals();
    this.findSteps();
    return this;
  }
  route(i) {
    return routes.get(keyOf(this.src[i], this.dst[i], this.rail ? this.rail[i] : 0)) || [];
  }
  reduces(i) { return this.op[i] === "+"; }
  // How busy each link is, as a share of the run; which ones are the limit.
  findLoads() {
    // Of chunks that are not in this page, too.
    const all = data.link_bytes[this.id], bytes = new Float64Array(all || links.length);
    for (let i = 0; i < this.n && !all; i++)
      for (const l of this.route(i)) bytes[l] += this.bytes[i];
    this.linkBytes = bytes;
    this.load = links.map(l => this.time_s > 0 ? bytes[l.id] * 8 / l.rate / this.time_s : 0);
    this.most = d3.max(this.load) || 0;
    this.limits = links.filter(l => this.most > 0 && this.load[l.id] >= 0.99 * this.most);
  }
  // For each rank, when what comes in is there: bytes so far by time, and by step.
  findArrivals() {
    const order = d3.range(this.n).sort((a, b) => this.t2[a] - this.t2[b]);
    this.arrivals = d3.range(nRanks).map(() => ({at: [], sum: [], bySteps: new Map(), all: 0, sent: 0}));
    for (const i of order) {
      const a = this.arrivals[this.dst[i]], b = this.arrivals[this.src[i]];
      if (b) b.sent += this.bytes[i];
      if (!a) continue;
      a.all += this.bytes[i];
      a.at.push(this.t2[i]);
      a.sum.push(a.all);
      a.bySteps.set(this.step[i], (a.bySteps.get(this.step[i]) || 0) + this.bytes[i]);
    }
  }
  // The steps that have transfers, each with one event for every transfer.
  findSteps() {
    const steps = new Map();
    this.chunkBytes = new Map();
    for (let i = 0; i < this.n; i++) {
      if (!steps.has(this.step[i])) steps.set(this.step[i], new Map());
      const of = steps.get(this.step[i]);
      const key = [this.chunk[i], this.src[i], this.dst[i], this.rail ? this.rail[i] : 0].join();
      if (!of.has(key)) of.set(key, i);
      if (!this.chunkBytes.has(this.chunk[i])) this.chunkBytes.set(this.chunk[i], []);
      this.chunkBytes.get(this.chunk[i]).push(i);
    }
    this.steps = [...steps.keys()].sort((a, b) => a - b)
      .map(step => ({step, events: [...steps.get(step).values()]}));
    this.chunks = [...this.chunkBytes.keys()].sort((a, b) => a - b);
  }
  received(rank, t) {
    const a = this.arrivals[rank], k = a ? d3.bisectRight(a.at, t) : 0;
    return k ? a.sum[k - 1] / a.all : 0;
  }
  receivedBySteps(rank, step) {
    const a = this.arrivals[rank];
    let sum = 0;
    if (a) for (const [s, bytes] of a.bySteps) if (s < step) sum += bytes;
    return sum ? sum / a.all : 0;
  }
  get title() {
    const call = this.call ? `, call ${this.call}` : "";
    return `${this.name}${call}: ${this.kind}, ${timeText(this.time_s)}`;
  }
}
const runs = data.runs.map((raw, i) => new Run(raw, i));
// Are only some of its chunks in this page?
const isPart = r => r && r.every > 1;
const partText = r => `${r.chunks.length} of ${r.n_chunks} chunks, so that this page stays small; how busy links are is of all`;
const run = () => runs.length ? runs[state.shown].ready : null;
const under = () => state.under >= 0 ? runs[state.under].ready : null;
const length = () => Math.max(run() ? run().time_s : 0, under() ? under().time_s : 0) || 1;

// -------------------------------------------------------------- canvases

function sized(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  else height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  return {width, height, ratio};
}
function layer(size) {
  const canvas = document.createElement("canvas");
  canvas.width = size.width * size.ratio;
  canvas.height = size.height * size.ratio;
  const g = canvas.getContext("2d");
  g.scale(size.ratio, size.ratio);
  return {canvas, g};
}
const font = (px, weight) => `${weight || 400} ${px}px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif`;

// --------------------------------------------------------------- network

const net = {canvas: $("network"), size: null, base: null, at: d3.zoomIdentity};
const rates = [...new Set(links.map(l => l.rate))].sort((a, b) => a - b);
const widthOf = l => rates.length < 2 ? 2 : 1.3 + 3 * rates.indexOf(l.rate) / (rates.length - 1);
const isCrowded = Boolean(data.network.crowded);

// The way of a link as points: corners rounded, each direction on its own side.
function wayOf(l) {
  const a = nodes[l.from], b = nodes[l.to], p = [[a.x, a.y]];
  for (let i = 0; i < l.bends.length; i += 2) p.push([l.bends[i], l.bends[i + 1]]);
  p.push([b.x, b.y]);
  const points = [p[0]];
  const curve = (from, mid, to, n) => {
    for (let k = 1; k <= n; k++) {
      const u = k / n, v = 1 - u;
      points.push([0, 1].map(c => v * v * from[c] + 2 * v * u * mid[c] + u * u * to[c]));
    }
  };
  if (p.length === 3) {
    curve(p[0], p[1], p[2], 14);
  } else {
    for (let k = 1; k + 1 < p.length; k++) {
      const near = other => {
        const d = Math.hypot(other[0] - p[k][0], other[1] - p[k][1]) || 1, r = Math.min(8, d / 2);
        return [0, 1].map(c => p[k][c] + (other[c] - p[k][c]) * r / d);
      };
      const from = near(p[k - 1]);
      points.push(from);
      curve(from, p[k], near(p[k + 1]), 5);
    }
    points.push(p[p.length - 1]);
  }
  if (l.twin < 0 || isCrowded) return points;
  const side = 1.2 + widthOf(l) / 2;
  if (p.length > 3) {
    const d = l.id < l.twin ? side : -side;
    return points.map(q => [q[0] + d, q[1] + d]);
  }
  const dx = b.x - a.x, dy = b.y - a.y, d = Math.hypot(dx, dy) || 1;
  return points.map(q => [q[0] - dy / d * side, q[1] + dx / d * side]);
}
const lengthOf = points => d3.sum(d3.pairs(points), ([a, b]) => Math.hypot(b[0] - a[0], b[1] - a[1]));
for (const l of links) {
  l.way = wayOf(l);
  l.length = lengthOf(l.way);
}
// Where a share of a route lies.
function along(route, share) {
  let left = share * d3.sum(route, l => links[l].length);
  for (const l of route) {
    if (left > links[l].length) {
      left -= links[l].length;
      continue;
    }
    const way = links[l].way;
    for (let k = 1; k < way.length; k++) {
      const [x, y] = way[k - 1], dx = way[k][0] - x, dy = way[k][1] - y;
      const d = Math.hypot(dx, dy);
      if (left <= d) return [x + dx * left / (d || 1), y + dy * left / (d || 1)];
      left -= d;
    }
  }
  const last = route.length ? links[route[route.length - 1]].way : [[0, 0]];
  return last[last.length - 1];
}

function trace(g, points) {
  g.beginPath();
  points.forEach((p, k) => k ? g.lineTo(p[0], p[1]) : g.moveTo(p[0], p[1]));
  g.stroke();
}
function arrowHead(g, tip, from, size) {
  const angle = Math.atan2(tip[1] - from[1], tip[0] - from[0]);
  g.beginPath();
  g.moveTo(tip[0], tip[1]);
  for (const turn of [2.7, -2.7])
    g.lineTo(tip[0] + size * Math.cos(angle + turn), tip[1] + size * Math.sin(angle + turn));
  g.closePath();
  g.fill();
}
// The limit is red; others are the darker the busier.
function colourOf(l) {
  const r = run();
  if (!r || !r.most) return look.link;
  if (r.load[l.id] >= 0.99 * r.most) return look.limit;
  return d3.interpolateRgb(look.link, look.busy)(Math.min(1, r.load[l.id] / r.most));
}
function drawLinks(g) {
  const r = run(), isLimit = l => r && r.most > 0 && r.load[l.id] >= 0.99 * r.most;
  const order = [...links].sort((a, b) => isLimit(a) - isLimit(b)), few = !r || r.limits.length <= links.length / 2;
  g.lineJoin = g.lineCap = "round";
  g.globalAlpha = state.chunk >= 0 ? 0.3 : isCrowded ? 0.4 : 1;
  for (const l of order) {
    g.strokeStyle = g.fillStyle = colourOf(l);
    g.lineWidth = widthOf(l) * (isLimit(l) && !isCrowded && few ? 1.25 : few ? 1 : 0.75);
    trace(g, l.way);
  }
  g.globalAlpha = 1;
  if (r && r.limits.length <= 6) labelLimits(g, r.limits);
}
function labelLimits(g, limits) {
  g.font = font(11, 600);
  g.textAlign = "center";
  g.textBaseline = "middle";
  const told = new Set();
  for (const l of limits) {
    const key = Math.min(l.id, l.twin < 0 ? l.id : l.twin);
    if (told.has(key)) continue;
    told.add(key);
    const [x, y] = along([l.id], 0.5), text = rateText(l.rate), w = g.measureText(text).width + 10;
    g.fillStyle = look.card;
    g.strokeStyle = look.limit;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(x - w / 2, y - 9, w, 18, 5);
    g.fill();
    g.stroke();
    g.fillStyle = look.limit;
    g.fillText(text, x, y + 0.5);
  }
}
function drawBoxes(g) {
  for (const hub of nodes) {
    if (hub.kind !== "hub") continue;
    const slots = nodes.filter(v => v.hub === hub.id);
    const [x0, x1] = d3.extent(slots, v => v.x), y1 = d3.max(slots, v => v.y);
    g.fillStyle = look.hover;
    g.strokeStyle = look.line;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(Math.min(x0, hub.x) - 20, hub.y - 13, Math.max(x1, hub.x) - Math.min(x0, hub.x) + 40, y1 - hub.y + 33, 8);
    g.fill();
    g.stroke();
  }
}
function drawSwitches(g) {
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (const v of nodes) {
    if (v.kind === "hub") {
      g.font = font(10.5, 600);
      g.fillStyle = look.soft;
      g.fillText(v.name, v.x, v.y);
    }
    if (v.kind !== "switch") continue;
    g.font = font(11, 600);
    const w = g.measureText(v.name).width + 16;
    g.fillStyle = look.switch;
    g.beginPath();
    g.roundRect(v.x - w / 2, v.y - 11, w, 22, 6);
    g.fill();
    g.fillStyle = look["switch-ink"];
    g.fillText(v.name, v.x, v.y + 0.5);
  }
}
// Each rank a disc, around it how much of what it will receive is there.
function drawRanks(g, received) {
  const large = net.at.k * 13 > 5;
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (const v of nodeOf) {
    if (!v) continue;
    const share = received(v.rank);
    g.beginPath();
    g.arc(v.x, v.y, 13, 0, 2 * Math.PI);
    g.fillStyle = look.host;
    g.fill();
    g.lineWidth = 1.2;
    g.strokeStyle = look["host-line"];
    g.globalAlpha = 0.45;
    g.stroke();
    g.globalAlpha = 1;
    if (share > 0) {
      g.beginPath();
      g.arc(v.x, v.y, 13, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * Math.min(1, share));
      g.lineWidth = 3.4;
      g.stroke();
    }
    if (!large) continue;
    g.fillStyle = look.ink;
    g.font = font(v.rank > 999 ? 8.5 : 11, 600);
    g.fillText(v.rank, v.x, v.y + 0.5);
    if (v.kind === "host" && v.name.length <= 8) {
      g.fillStyle = look.soft;
      g.font = font(9);
      g.fillText(v.name, v.x, v.y + 20);
    }
  }
}
// The picked chunk: from rank to rank, bent to the side.
function drawChunk(g) {
  if (state.chunk < 0 || !run()) return;
  for (const e of edgesOf(run(), state.chunk)) {
    const a = nodeOf[e.src], b = nodeOf[e.dst], dx = b.x - a.x, dy = b.y - a.y;
    const d = Math.hypot(dx, dy) || 1, bow = Math.min(46, d * 0.16);
    const mid = [(a.x + b.x) / 2 - dy / d * bow, (a.y + b.y) / 2 + dx / d * bow];
    const back = Math.atan2(b.y - mid[1], b.x - mid[0]);
    const tip = [b.x - 15 * Math.cos(back), b.y - 15 * Math.sin(back)];
    g.strokeStyle = g.fillStyle = e.reduces ? look.reduce : look.copy;
    g.lineWidth = 2;
    g.setLineDash(e.reduces ? [] : [6, 4]);
    g.beginPath();
    g.moveTo(a.x, a.y);
    g.quadraticCurveTo(mid[0], mid[1], tip[0], tip[1]);
    g.stroke();
    g.setLineDash([]);
    arrowHead(g, tip, mid, 8);
  }
}
function dot(g, route, share, reduces) {
  const tail = d3.range(5).map(k => along(route, Math.max(0, share - 0.022 * k)));
  g.strokeStyle = g.fillStyle = reduces ? look.reduce : look.copy;
  g.lineWidth = 3.4;
  g.globalAlpha = 0.55;
  trace(g, tail);
  g.globalAlpha = 1;
  g.beginPath();
  g.arc(tail[0][0], tail[0][1], 4.2, 0, 2 * Math.PI);
  g.fill();
}
const maxDots = 1500;
const isPicked = (r, i) => state.chunk < 0 || r.chunk[i] === state.chunk;
function drawMoving(g) {
  const r = run();
  let n = 0;
  if (!r) return n;
  if (state.byStep) {
    const whole = Math.min(Math.floor(state.step), r.steps.length - 1), share = state.step - whole;
    for (const i of r.steps[whole] ? r.steps[whole].events : []) {
      if (!isPicked(r, i) || n >= maxDots) continue;
      n++;
      dot(g, r.route(i), share, r.reduces(i));
    }
    return n;
  }
  for (let i = 0; i < r.n; i++) {
    if (r.t0[i] > state.t || r.t1[i] <= state.t || !isPicked(r, i)) continue;
    if (n++ < maxDots) dot(g, r.route(i), (state.t - r.t0[i]) / (r.t1[i] - r.t0[i]), r.reduces(i));
  }
  return n;
}
// Where a step is shown, all that it sends, as lines.
function drawStepLines(g) {
  const r = run();
  if (!state.byStep || !r) return;
  const at = r.steps[Math.min(Math.floor(state.step), r.steps.length - 1)];
  g.globalAlpha = 0.5;
  for (const i of at ? at.events : []) {
    if (!isPicked(r, i)) continue;
    g.strokeStyle = r.reduces(i) ? look.reduce : look.copy;
    g.lineWidth = 2.6;
    for (const l of r.route(i)) trace(g, links[l].way);
  }
  g.globalAlpha = 1;
}
function drawNet() {
  if (!net.size) net.size = sized(net.canvas);
  if (!net.base) {
    net.base = layer(net.size);
    net.base.g.translate(net.at.x, net.at.y);
    net.base.g.scale(net.at.k, net.at.k);
    drawBoxes(net.base.g);
    drawLinks(net.base.g);
    drawSwitches(net.base.g);
  }
  const g = net.canvas.getContext("2d"), r = run(), {ratio} = net.size;
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, net.canvas.width, net.canvas.height);
  g.drawImage(net.base.canvas, 0, 0);
  g.setTransform(ratio * net.at.k, 0, 0, ratio * net.at.k, ratio * net.at.x, ratio * net.at.y);
  drawStepLines(g);
  const moving = drawMoving(g);
  drawRanks(g, rank => !r ? 0 : state.byStep ? r.receivedBySteps(rank, stepAt()) : r.received(rank, state.t));
  drawChunk(g);
  return moving;
}
function stepAt() {
  const r = run(), at = r.steps[Math.min(Math.floor(state.step), r.steps.length - 1)];
  return !at ? 0 : state.step >= r.steps.length ? Infinity : at.step;
}
function fitNet() {
  const pad = 12, below = 26, {width, height} = net.size;
  const k = Math.min((width - 2 * pad - 40) / data.network.width, (height - 2 * pad - below) / data.network.height, 1.7);
  return d3.zoomIdentity.translate((width - data.network.width * k) / 2, (height - below - data.network.height * k) / 2).scale(k);
}
const withKey = () => d3.event.type !== "wheel" ? !d3.event.button : d3.event.ctrlKey || d3.event.metaKey;
const netZoom = d3.zoom().scaleExtent([0.05, 12]).filter(withKey).on("zoom", () => {
  net.at = d3.event.transform;
  net.base = null;
  redraw();
});
// What lies under the pointer: a node, or a link.
function netAt(event) {
  const [px, py] = d3.clientPoint(net.canvas, event), [x, y] = net.at.invert([px, py]);
  const close = nodes.find(v => Math.hypot(v.x - x, v.y - y) < 16);
  if (close) return {node: close};
  let best = 7 / net.at.k, found = null;
  for (const l of links) {
    for (let k = 1; k < l.way.length; k++) {
      const d = distance(x, y, l.way[k - 1], l.way[k]);
      if (d < best) [best, found] = [d, l];
    }
  }
  return found ? {link: found} : null;
}
function distance(x, y, a, b) {
  const dx = b[0] - a[0], dy = b[1] - a[1], d2 = dx * dx + dy * dy;
  const u = d2 ? Math.max(0, Math.min(1, ((x - a[0]) * dx + (y - a[1]) * dy) / d2)) : 0;
  return Math.hypot(a[0] + u * dx - x, a[1] + u * dy - y);
}
function netTip(at) {
  const r = run();
  if (at.link) {
    const l = at.link, lines = [linkText(l), `${rateText(l.rate)}, ${timeText(l.latency)}`];
    if (r) lines.push(`carries ${bytesText(r.linkBytes[l.id])}, busy ${percent(r.load[l.id])} of the time`);
    return lines.join("\n");
  }
  const v = at.node, a = r && v.rank >= 0 ? r.arrivals[v.rank] : null;
  const lines = [v.rank >= 0 ? `${v.name}, rank ${v.rank}` : `${v.name}, ${v.kind === "hub" ? "a host" : "a switch"}`];
  if (a) lines.push(`sends ${bytesText(a.sent)}, receives ${bytesText(a.all)}` + (isPart(r) ? " of the chunks shown" : ""));
  return lines.join("\n");
}

// ------------------------------------------------------------- time line

const times = {canvas: $("times"), size: null, base: null, at: d3.zoomIdentity};
const left = 92, top_ = 26;
function rowHeight() {
  const rows = under() ? 2 : 1;
  return Math.max(rows * 3, Math.min(rows * 22, 520 / Math.max(1, nRanks)));
}
function xScale() {
  return times.at.rescaleX(d3.scaleLinear().domain([0, length()]).range([left, times.size.width - 12]));
}
// Bars that overlap lie in lanes, as many as are needed and seen.
function lanesOf(r) {
  if (r.lanes) return r.lanes;
  const free = d3.range(nRanks).map(() => []), lane = new Uint16Array(r.n);
  const order = d3.range(r.n).sort((a, b) => r.t0[a] - r.t0[b]);
  for (const i of order) {
    const ends = free[r.src[i]] || [];
    let k = ends.findIndex(end => end <= r.t0[i] + 1e-12);
    if (k < 0) k = ends.length < 64 ? ends.length : i % 64;
    ends[k] = r.t1[i];
    lane[i] = k;
  }
  r.lanes = {lane, most: free.map(ends => ends.length || 1)};
  return r.lanes;
}
function drawBars(g, r, x, top, height, opacity) {
  const row = rowHeight(), {lane, most} = lanesOf(r), right = times.size.width - 12;
  for (let i = 0; i < r.n; i++) {
    let a = x(r.t0[i]), b = x(r.t1[i]);
    if (b < left || a > right) continue;
    a = Math.max(left, a);
    b = Math.min(right, b);
    const each = height / most[r.src[i]];
    const y = top_ + r.src[i] * row + top + each * lane[i];
    g.globalAlpha = opacity * (isPicked(r, i) ? 1 : 0.13);
    g.fillStyle = r.reduces(i) ? look.reduce : look.copy;
    const gap = b - a > 3 ? 0.7 : 0;
    g.fillRect(a, y, Math.max(b - a - gap, 0.6), Math.max(each - (each > 4 ? 1 : 0), 0.8));
  }
  g.globalAlpha = 1;
}
function drawFrame(g, x, height) {
  const row = rowHeight(), every = Math.ceil(13 / row);
  g.font = font(11);
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (let r = 0; r < nRanks; r++) {
    if (r % 2 === 0 && row > 5) {
      g.fillStyle = look.hover;
      g.fillRect(left, top_ + r * row, times.size.width - left - 12, row);
    }
    if (r % every) continue;
    g.fillStyle = look.soft;
    const name = nodeOf[r] ? nodeOf[r].name : "";
    g.fillText(!name || name.length > 8 ? "rank " + r : `${name}  ${r}`, left - 8, top_ + r * row + row / 2);
  }
  g.textAlign = "center";
  for (const t of x.ticks(Math.max(3, times.size.width / 130))) {
    const at = x(t);
    if (at < left) continue;
    g.fillStyle = look.soft;
    g.fillText(timeText(t), Math.min(at, times.size.width - 30), 11);
    g.fillStyle = look.line;
    g.fillRect(at, 21, 1, height - 21);
  }
}
function drawTimes() {
  if (!times.size) times.size = sized(times.canvas, Math.round(top_ + rowHeight() * nRanks + 6));
  const x = xScale(), {height, ratio} = times.size;
  if (!times.base) {
    times.base = layer(times.size);
    const g = times.base.g, row = rowHeight(), pad = row > 8 ? 2 : 0;
    drawFrame(g, x, height);
    if (run() && under()) {
      drawBars(g, run(), x, pad, row / 2 - pad, 1);
      drawBars(g, under(), x, row / 2 + 0.5, row / 2 - pad - 0.5, 0.42);
      for (const r of [run(), under()]) {
        g.fillStyle = r === run() ? look.ink : look.soft;
        g.fillRect(x(r.time_s), top_, 1.5, height - top_);
      }
    } else if (run()) {
      drawBars(g, run(), x, pad, row - 2 * pad, 1);
    }
  }
  const g = times.canvas.getContext("2d");
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, times.canvas.width, times.canvas.height);
  g.drawImage(times.base.canvas, 0, 0);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (state.byStep || !run()) return;
  const at = x(state.t);
  if (at < left - 1) return;
  g.fillStyle = look.ink;
  g.fillRect(at - 0.75, 18, 1.5, height - 18);
  g.beginPath();
  g.arc(at, 19, 4.5, 0, 2 * Math.PI);
  g.fill();
}
const timeZoom = d3.zoom().scaleExtent([1, 4000]).filter(withKey).on("zoom", () => {
  times.at = d3.event.transform;
  times.base = null;
  redraw();
});
function barAt(event) {
  const [px, py] = d3.clientPoint(times.canvas, event), row = rowHeight();
  const rank = Math.floor((py - top_) / row), x = xScale();
  if (px < left || rank < 0 || rank >= nRanks) return null;
  const inRow = py - top_ - rank * row, lower = under() && inRow > row / 2;
  const r = lower ? under() : run(), t = x.invert(px), slack = (x.invert(px + 2) - t);
  if (!r) return null;
  const height = under() ? row / 2 : row, {lane, most} = lanesOf(r);
  let found = -1;
  for (let i = 0; i < r.n; i++) {
    if (r.src[i] !== rank || r.t0[i] > t + slack || r.t1[i] < t - slack) continue;
    const at = Math.floor((lower ? inRow - row / 2 : inRow) / height * most[rank]);
    if (found < 0 || lane[i] === at) found = i;
  }
  return found < 0 ? null : {r, i: found};
}
function barTip({r, i}) {
  return `${r.reduces(i) ? "reduce" : "copy"} chunk ${r.chunk[i]}, step ${r.step[i]}, ${bytesText(r.bytes[i])}\n` +
    `${rankText(r.src[i])} \u2192 ${rankText(r.dst[i])}\n` +
    `${timeText(r.t0[i])} to ${timeText(r.t1[i])}, there at ${timeText(r.t2[i])}` +
    (runs.length > 1 ? `\n${r.name}, ${r.kind}` : "");
}

// ---------------------------------------------------------------- tables

const key = (colour, text, block) =>
  `<span><i class="key${block ? " block" : ""}" style="${block ? "background" : "border-color"}:var(--${colour})"></i>${text}</span>`;
function tellHead() {
  const hosts = nodes.filter(v => v.kind === "switch").length;
  const root = ["broadcast", "reduce", "gather", "scatter"].includes(data.collective) ? `, root ${data.root}` : "";
  $("title").textContent = data.assumed ? "No network given: drawn on " + data.spec : data.spec;
  const facts = [count(nRanks, "rank")];
  if (hosts) facts.push(hosts + (hosts === 1 ? " switch" : " switches"));
  if (rates.length) facts.push(rates.length < 2 ? "links of " + rateText(rates[0]) : `links of ${rateText(rates[0])} to ${rateText(rates[rates.length - 1])}`);
  facts.push(`${data.collective} of ${data.size}${root}`);
  $("facts").textContent = facts.join(" \u00b7 ");
  document.title = `${data.spec} - Tutti`;
  $("optimum").textContent = data.optimum_s > 0 ? `no schedule takes less than ${timeText(data.optimum_s)}` + (data.is_exact ? "" : " (a lower bound)") : "";
  $("net-legend").innerHTML = key("limit", "the bottleneck") + key("busy", "busy") + key("link", "idle") +
    (rates.length > 1 ? "<span>wider: faster</span>" : "");
}
function tellLimit() {
  const r = run(), p = $("limit");
  p.textContent = "";
  if (!r || !r.limits.length) return;
  const said = document.createElement("span");
  said.className = "limit";
  // Both directions of a cable are told together.
  const both = l => l.twin >= 0 && r.limits.includes(links[l.twin]);
  const told = r.limits.filter(l => !both(l) || l.id < l.twin);
  if (told.length <= 3)
    said.textContent = "The bottleneck: " + told.map(l =>
      (both(l) ? linkText(l).replace("\u2192", "\u2194") : linkText(l)) + ", " + rateText(l.rate)).join("; ");
  else if (r.limits.length === links.length)
    said.textContent = `Every link is the bottleneck: ${rates.map(rateText).slice(0, 3).join(", ")}`;
  else
    said.textContent = `The bottleneck: ${r.limits.length} of ${links.length} links, ${[...new Set(r.limits.map(l => rateText(l.rate)))].slice(0, 3).join(", ")}`;
  p.append(said, r.most <= 1.02 ? `, busy ${percent(r.most)} of the time`
    : ", which would have carried more than it can: was this recorded on another network?");
}
function fillSelects() {
  const option = (r, i) => `<option value="${i}"></option>`;
  $("shown").innerHTML = runs.map(option).join("");
  $("under").innerHTML = '<option value="-1">nothing</option>' + runs.map(option).join("");
  for (const select of [$("shown"), $("under")])
    for (const o of select.options) if (+o.value >= 0) o.textContent = runs[+o.value].title;
  $("under-label").hidden = runs.length < 2;
}
function fillPlanners() {
  const fit = data.planners.filter(p => p.fits), not = data.planners.filter(p => !p.fits);
  $("planners-card").hidden = !data.planners.length;
  // The program says in which unit of the two; the data is in GB/s.
  const scale = data.busbw_unit === "Mbit/s" ? 8000 : 1;
  $("busbw-unit").textContent = data.busbw_unit;
  const rows = d3.select("#planners tbody").selectAll("tr").data(fit).join("tr");
  rows.attr("data-planner", p => p.planner).classed("chosen", p => p.planner === data.chosen);
  rows.append("td").attr("class", "p").text(p => p.planner);
  rows.append("td").html(p => p.efficiency === null ? "-" :
    `<span class="share"><i style="width:${Math.min(100, 100 * p.efficiency).toFixed(1)}%"></i></span>${p.efficiency.toFixed(3)}`);
  rows.append("td").attr("class", "n").text(p => p.time_s === null ? "-" : timeText(p.time_s));
  rows.append("td").attr("class", "n").text(p => p.busbw_GBps === null ? "-" : short(p.busbw_GBps * scale));
  for (const name of ["steps", "chunks", "transfers"])
    rows.append("td").attr("class", "n").text(p => p[name]);
  rows.each(function (p) {
    const found = runs.findIndex(r => r.planner === p.planner);
    d3.select(this).classed("here", found >= 0)
      .attr("tabindex", found >= 0 ? 0 : null)
      .attr("title", found >= 0 ? "Show it" : `Not in this page: tutti view ${p.planner} ${data.spec}`)
      .on("click keydown", () => {
        if (found >= 0 && (d3.event.type === "click" || d3.event.key === "Enter")) show(found, state.under);
      });
  });
  const out = fit.filter(p => !runs.some(r => r.planner === p.planner)).map(p => p.planner);
  $("left-out").textContent = out.length ? `Not played, so that this page stays small: ${out.join(", ")}. ` +
    `tutti view PLANNER ${data.spec} does.` : "";
  $("misfits").hidden = !not.length;
  $("misfits").querySelector("summary").textContent = `${count(not.length, "planner")} ${not.length === 1 ? "does" : "do"} not fit`;
  d3.select("#misfits ul").selectAll("li").data(not).join("li").text(p => `${p.planner}: ${p.why_not}`);
}
function tellTimes() {
  const r = run(), u = under();
  const ratio = u && u.time_s ? r.time_s / u.time_s - 1 : 0;
  $("time-legend").innerHTML = key("reduce", "reduces", true) + key("copy", "copies", true) + "<span></span>";
  const said = $("time-legend").lastChild;
  if (u)
    said.textContent = `above: ${r.name}, ${r.kind}; below, paler: ${u.name}, ${u.kind}. ` +
      `${r.name} takes ` + (ratio > 1 ? `${(ratio + 1).toFixed(2)} times as long.`
        : `${Math.abs(100 * ratio).toFixed(1)} % ${ratio >= 0 ? "longer" : "less"}.`);
  else if (r && r.merged > 1)
    said.textContent = r.slices === r.n || isPart(r) ? "" : `${r.slices} slices in ${r.n} bars`;
  for (const part of [r, u].filter(isPart))
    said.textContent += ` ${part.name}: ${partText(part)}.`;
}

// ----------------------------------------------------------------- chunk

// Who sends the chunk to whom, once each, in order of steps.
function edgesOf(r, chunk) {
  const seen = new Map();
  for (const i of r.chunkBytes.get(chunk) || []) {
    const id = r.src[i] + "," + r.dst[i] + "," + r.op[i];
    if (!seen.has(id)) seen.set(id, {src: r.src[i], dst: r.dst[i], reduces: r.reduces(i), step: r.step[i]});
  }
  return [...seen.values()];
}
// The edges as a tree from its root; null when they are none. Towards the root
// when they reduce.
function treeOf(edges, reduces) {
  const mine = edges.filter(e => e.reduces === reduces), parent = new Map(), all = new Set();
  for (const e of mine) {
    const child = reduces ? e.src : e.dst, up = reduces ? e.dst : e.src;
    if (parent.has(child)) return null;
    parent.set(child, up);
    all.add(child).add(up);
  }
  const roots = [...all].filter(r => !parent.has(r));
  if (roots.length !== 1) return null;
  try {
    return d3.stratify().id(d => d).parentId(d => parent.has(d) ? parent.get(d) : null)([...all].sort((a, b) => a - b));
  } catch (e) {
    return null; // a circle
  }
}
function fillChunks() {
  const r = run();
  $("chunks-card").hidden = !r;
  if (!r) return;
  const many = r.chunks.length > 600 ? r.chunks.slice(0, 600) : r.chunks;
  $("chunk-about").textContent = `${r.chunks.length}${isPart(r) ? " of " + r.n_chunks : ""}${many.length < r.chunks.length ? ", the first 600 here" : ""}; pick one to see its way`;
  d3.select("#chunks").selectAll("button").data(many, d => d).join("button")
    .attr("type", "button").attr("data-chunk", d => d).text(d => d)
    .classed("on", d => d === state.chunk)
    .on("click", d => pick(d === state.chunk ? -1 : d));
}
function drawTree() {
  const svg = d3.select("#tree"), r = run();
  svg.selectAll("*").remove();
  svg.attr("height", 0);
  $("tree-about").textContent = "";
  if (!r || state.chunk < 0) return;
  const edges = edgesOf(r, state.chunk);
  const trees = [true, false].filter(up => edges.some(e => e.reduces === up)).map(up => ({up, tree: treeOf(edges, up)}));
  const share = d3.max(r.chunkBytes.get(state.chunk), i => r.bytes[i]) || 0;
  const parts = edges.length ? `Chunk ${state.chunk}: ${count(edges.length, "transfer")}.` : "";
  if (trees.some(t => !t.tree)) {
    $("tree-about").textContent = parts + " Its way is no tree: ranks exchange parts with each other.";
    return;
  }
  const width = $("tree").clientWidth || 360, each = 230 / trees.length;
  const size = d3.max(trees, t => t.tree.descendants().length) > 40 ? 4 : 8;
  let y = 14;
  for (const {up, tree} of trees) {
    const depth = tree.height || 1, isChain = tree.descendants().every(d => !d.children || d.children.length < 2);
    const gap = size > 4 ? 30 : 18, perRow = Math.max(2, Math.floor((width - 28) / gap));
    const high = isChain ? Math.floor(depth / perRow) * gap : Math.min(each, depth * 38);
    if (!isChain) d3.tree().size([width - 28, high])(tree);
    // A chain runs to and fro, in the direction in which the data does.
    const inChain = d => {
      const at = up ? depth - d.depth : d.depth, row = Math.floor(at / perRow), column = at % perRow;
      return [14 + gap * (row % 2 ? perRow - 1 - column : column), y + gap * row];
    };
    const top = y, place = d => isChain ? inChain(d) : [14 + d.x, top + (up ? high - d.y : d.y)];
    const g = svg.append("g");
    const line = d3.linkVertical().source(l => place(l.source)).target(l => place(l.target));
    g.selectAll("path").data(tree.links()).join("path").attr("d", l => isChain ? `M${place(l.source)}L${place(l.target)}` : line(l))
      .attr("stroke", `var(--${up ? "reduce" : "copy"})`).attr("stroke-dasharray", up ? null : "5 3");
    const node = g.selectAll("g").data(tree.descendants()).join("g").attr("transform", d => `translate(${place(d)})`);
    node.append("circle").attr("r", size);
    node.append("title").text(d => rankText(d.data));
    if (size > 4) node.append("text").attr("dy", "0.35em").text(d => d.data);
    y += high;
    // Both trees hang on one root, where they share it.
    const hangs = trees.length > 1 && trees[1].tree.data === tree.data && !isChain;
    if (up && trees.length > 1 && !hangs) y += 30;
  }
  svg.attr("height", y + 14);
  const roots = [...new Set(trees.map(t => t.tree.data))].map(rankText).join(", ");
  $("tree-about").textContent = `${parts} Root: ${roots}.` +
    (trees.length > 1 ? " Solid: contributions come together; dashed: the result goes out." : "");
}

// --------------------------------------------------------------- playing

let frame = 0, before = 0;
function redraw() {
  if (!frame) frame = requestAnimationFrame(paint);
}
const secondsOfPlay = 10, secondsOfStep = 0.9;
function advance(seconds) {
  const r = run();
  if (state.byStep) {
    state.step = Math.min(r.steps.length, state.step + seconds * state.speed / secondsOfStep);
    if (state.step >= r.steps.length) state.playing = false;
  } else {
    state.t = Math.min(r.time_s, state.t + seconds * state.speed * r.time_s / secondsOfPlay);
    if (state.t >= r.time_s) state.playing = false;
  }
}
function tellWhere(moving) {
  const r = run();
  $("play").innerHTML = state.playing ? "&#10074;&#10074; Pause" : "&#9654; Play";
  $("by-time").classList.toggle("on", !state.byStep);
  $("by-step").classList.toggle("on", state.byStep);
  if (!r) return;
  $("place").value = 1000 * (state.byStep ? state.step / r.steps.length : state.t / (r.time_s || 1));
  const whole = Math.min(Math.floor(state.step), r.steps.length - 1);
  $("where").textContent = state.byStep
    ? `step ${whole + 1} of ${r.steps.length}: ${count(r.steps[whole].events.length, "transfer")}`
    : `${timeText(state.t)} of ${timeText(r.time_s)}, ${moving} under way`;
}
function paint(now) {
  frame = 0;
  if (state.playing) advance(Math.min(0.1, (now - before) / 1000));
  before = now;
  tellWhere(drawNet());
  drawTimes();
  if (state.playing) redraw();
  if (!window.tuttiView.painted_ms) window.tuttiView.painted_ms = performance.now() - started;
}
function play(on) {
  const r = run();
  if (!r) return;
  if (on && state.byStep && state.step >= r.steps.length) state.step = 0;
  if (on && !state.byStep && state.t >= r.time_s) state.t = 0;
  state.playing = on;
  before = performance.now();
  redraw();
}
// To the middle of a step, where its transfers are seen.
function toStep(by) {
  const r = run();
  if (!r) return;
  state.playing = false;
  if (!state.byStep) {
    state.byStep = true;
    state.step = by > 0 ? 0.5 : r.steps.length - 0.5;
  } else {
    state.step = Math.max(0, Math.min(r.steps.length - 1, Math.floor(state.step) + by)) + 0.5;
  }
  redraw();
}
function pick(chunk) {
  state.chunk = chunk;
  net.base = times.base = null;
  fillChunks();
  drawTree();
  redraw();
}
function show(shown, below) {
  Object.assign(state, {shown, under: below === shown ? -1 : below, playing: false, t: 0, step: 0});
  $("shown").value = state.shown;
  $("under").value = state.under;
  d3.selectAll("#planners tbody tr").classed("shown", p => run() && run().planner === p.planner);
  times.size = null;
  times.at = d3.zoomIdentity;
  d3.select(times.canvas).property("__zoom", d3.zoomIdentity);
  tellLimit();
  tellTimes();
  if (run() && !run().chunkBytes.has(state.chunk)) state.chunk = -1;
  pick(state.chunk);
}
function toPlace(share) {
  const r = run();
  if (!r) return;
  if (state.byStep) state.step = share * r.steps.length;
  else state.t = share * r.time_s;
  redraw();
}
function tip(event, text) {
  const t = $("tip");
  t.style.opacity = text ? 0.96 : 0;
  if (!text) return;
  t.textContent = text;
  const {width, height} = t.getBoundingClientRect();
  t.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  t.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16) + "px";
}
function goTo(event) {
  const [px] = d3.clientPoint(times.canvas, event), r = run();
  if (!r || event.defaultPrevented || px < left) return;
  state.byStep = false;
  state.t = Math.max(0, Math.min(r.time_s, xScale().invert(px)));
  redraw();
}
function onKey(e) {
  if (["SELECT", "INPUT"].includes(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
  const does = {" ": () => play(!state.playing), ArrowRight: () => toStep(1),
                ArrowLeft: () => toStep(-1), Home: () => toPlace(0), Escape: () => pick(-1)}[e.key];
  if (!does || (e.key === " " && e.target.tagName === "BUTTON")) return;
  e.preventDefault();
  does();
}
// The height of the time line follows from its rows, so only its width counts.
function onResize() {
  const width = times.canvas.clientWidth;
  if (!times.size || times.size.width !== width) times.size = times.base = null;
  if (!net.size || net.size.width !== net.canvas.clientWidth || net.size.height !== net.canvas.clientHeight) {
    net.size = sized(net.canvas);
    net.base = null;
    d3.select(net.canvas).call(netZoom.transform, fitNet());
    drawTree();
  }
  redraw();
}
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readLook();
  net.base = times.base = null;
  redraw();
}
function wire() {
  const on = (id, what, does) => $(id).addEventListener(what, does);
  on("play", "click", () => play(!state.playing));
  on("step", "click", () => toStep(1));
  on("back", "click", () => toStep(-1));
  on("first", "click", () => toPlace(0));
  on("place", "input", e => toPlace(e.target.value / 1000));
  on("speed", "change", e => { state.speed = +e.target.value; });
  on("by-time", "click", () => { state.byStep = false; redraw(); });
  on("by-step", "click", () => { state.byStep = true; redraw(); });
  on("shown", "change", e => show(+e.target.value, state.under));
  on("under", "change", e => show(state.shown, +e.target.value));
  on("theme", "click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
  const zooms = [["net", net, netZoom], ["time", times, timeZoom]];
  for (const [name, view, zoom] of zooms) {
    d3.select(view.canvas).call(zoom).on("dblclick.zoom", null);
    on(name + "-in", "click", () => d3.select(view.canvas).call(zoom.scaleBy, 1.5));
    on(name + "-out", "click", () => d3.select(view.canvas).call(zoom.scaleBy, 1 / 1.5));
  }
  on("net-fit", "click", () => d3.select(net.canvas).call(netZoom.transform, fitNet()));
  on("time-fit", "click", () => d3.select(times.canvas).call(timeZoom.transform, d3.zoomIdentity));
  net.canvas.addEventListener("mousemove", e => { const at = netAt(e); tip(e, at ? netTip(at) : ""); });
  times.canvas.addEventListener("mousemove", e => { const at = barAt(e); tip(e, at ? barTip(at) : ""); });
  times.canvas.addEventListener("click", goTo);
  for (const canvas of [net.canvas, times.canvas]) canvas.addEventListener("mouseleave", e => tip(e, ""));
  document.addEventListener("keydown", onKey);
  const resized = new ResizeObserver(onResize);
  for (const canvas of [net.canvas, times.canvas]) resized.observe(canvas);
}
function start() {
  // For tests, and for who looks under the hood.
  window.tuttiView = {state, data, runs, painted_ms: 0};
  const wish = new URLSearchParams(location.hash.slice(1));
  const dark = wish.has("theme") ? wish.get("theme") === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark);
  tellHead();
  fillSelects();
  fillPlanners();
  wire();
  // What was measured over what was predicted: of the same call, if that is known.
  const besideOf = m => runs.findIndex(r => m && r.kind === "predicted" && r.name === m.name && r.call === m.call);
  const both = runs.findIndex(r => r.kind === "measured" && besideOf(r) >= 0);
  const measured = both >= 0 ? both : runs.findIndex(r => r.kind === "measured");
  const beside = besideOf(runs[measured]);
  const predicted = beside >= 0 ? beside : runs.findIndex(r => r.kind === "predicted");
  net.size = sized(net.canvas);
  net.at = fitNet();
  d3.select(net.canvas).property("__zoom", net.at);
  if (measured >= 0) show(measured, predicted);
  else show(0, -1);
  if (!runs.length) redraw();
}
start();
})();
