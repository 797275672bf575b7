"use strict";
// The live page: windows of the last hour from the API, then one event a second. No framework: what is drawn is drawn from `shown`, at most once a frame.

// Told apart without colour vision (Okabe and Ito), and by their dashes too.
const HUES = { light: ["#0072b2", "#d55e00", "#009e73", "#a8518a", "#7a6a00", "#1b8fbf", "#333333", "#9a5b2c"],
  dark: ["#56b4e9", "#ff9d5c", "#2ecc9a", "#e59ac6", "#f0e442", "#9fd8f7", "#d0d0d0", "#d9a87c"] };
const DASHES = [[], [8, 3], [3, 3], [10, 3, 3, 3], [6, 6], [2, 5], [12, 4], [4, 2, 1, 2]];
// Colours of delays, from short to long: also their lightness grows steadily.
const HEAT = { light: ["#e4eef6", "#b4d2e7", "#77aed3", "#3c83b6", "#1c5688", "#4d1f5f", "#8a0f4a"],
  dark: ["#1f2f3f", "#22506f", "#2a78a0", "#4aa3c4", "#8fd0d8", "#e8dc8a", "#ffb46b"] };
const HEAT_US = [1e3, 5e3, 2e4, 5e4, 2e5, 1e6];
const CURVES = 8, ROWS = 40, HISTORY = 3600;

const dark = matchMedia("(prefers-color-scheme: dark)");
const hues = () => HUES[dark.matches ? "dark" : "light"];
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const $ = id => document.getElementById(id);
const shown = { routers: [], router: null, windows: [], marks: [], seconds: 600, interval: 1, status: {}, sort: {}, filter: {} };
const cards = new Map();
let due = false;

function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name === "onclick" || name === "oninput" ? element[name] = value : element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

// Numbers in words.
function scaled(value, unit, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 " + unit;
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const [size, prefix] = steps.find(([size]) => Math.abs(value) >= size * .9995) || [1, ""];
  const number = value / size;
  return (number >= 100 ? number.toFixed(0) : +number.toPrecision(digits)) + " " + prefix + unit;
}
const bits = value => scaled(value, "bit/s");
const packets = (value, of = "packets/s") => Math.round(value).toLocaleString("en") + " " + of;
const pps = value => value === 0 ? "0 /s" : scaled(value < 10 ? Math.round(value * 10) / 10 : value, "/s");
function delay(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return Math.round(us) + " µs";
  return us < 1e6 ? +(us / 1000).toPrecision(3) + " ms" : +(us / 1e6).toPrecision(3) + " s";
}
function lasted(s) {
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  return s < 172800 ? +(s / 3600).toFixed(1) + " h" : +(s / 86400).toFixed(1) + " days";
}
const clock = ms => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const moment = ms => Date.now() - ms < 86400000 ? clock(ms) : new Date(ms).toLocaleString([], { day: "2-digit", month: "2-digit", hour: "2-digit", minute: "2-digit", hour12: false });
const KINDS = { raised: "✕ ", cleared: "● over: " };
const share = part => (part * 100 >= 10 ? Math.round(part * 100) : +(part * 100).toFixed(1)) + " %";
const sum = object => Object.values(object).reduce((all, one) => all + one, 0);
const words = reason => reason.replaceAll("_", " ");

// What the API says.
const get = async path => { const reply = await fetch(path); if (!reply.ok) throw new Error(reply.status); return reply.json(); };
const of = path => "/api/v1/routers/" + encodeURIComponent(shown.router) + path;
const quietly = act => act().catch(() => {});

async function load() {
  const told = await get("/api/v1/routers");
  shown.interval = told.interval_s;
  shown.routers = told.routers;
  for (const router of told.routers) shown.status[router.router] = router;
  const wanted = decodeURIComponent(location.hash.slice(1));
  const router = told.routers.some(one => one.router === wanted) ? wanted : told.routers[0]?.router;
  await choose(router);
}

async function choose(router) {
  if (router !== shown.router) {
    for (const card of cards.values()) card.remove();
    cards.clear();
    for (const list of [flows, people]) list.reset();
  }
  const path = "/api/v1/routers/" + encodeURIComponent(router);
  const [windows, marks] = await Promise.all([get(path + "/windows?last=" + HISTORY), get(path + "/marks")]);
  Object.assign(shown, { router, windows: windows.windows, marks: marks.marks });
  redraw();
  begin();
}

function listen() {
  const events = new EventSource("/api/v1/events");
  let lost = false;
  events.onopen = () => { notice(""); if (lost) load().catch(() => {}); lost = false; };
  events.onerror = () => {
    lost = true;
    notice("The connection to evenkeel serve is lost. Trying again …");
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
  const on = (kind, act) => events.addEventListener(kind, event => { const of = JSON.parse(event.data); act(of); redraw(); });
  on("window", of => {
    if (of.router !== shown.router) return;
    shown.windows.push(of);
    if (shown.windows.length > HISTORY) shown.windows.splice(0, shown.windows.length - HISTORY);
  });
  on("alarm", of => { if (of.router === shown.router) onAlarm(of); });
  on("mark", of => { if (of.router === shown.router) shown.marks.push(of); });
  on("status", of => { shown.status[of.router] = { ...shown.status[of.router], error: undefined, ...of }; });
}

function notice(text) {
  const silent = shown.status[shown.router]?.status === "silent";
  const last = shown.windows.at(-1), old = last ? ` What you see is of ${clock(last.time_ms)}.` : "";
  const said = text || (silent ? `Router ${shown.router} does not answer: ${shown.status[shown.router].error}.${old}` : "");
  document.querySelector("main").classList.toggle("is-old", said !== "");
  $("notice").textContent = said;
  $("notice").hidden = !said;
  $("notice").dataset.text = text;
}

// Drawing.
function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

function draw() {
  const last = shown.windows.at(-1);
  drawHeader(last);
  notice($("notice").dataset.text || "");
  drawMarks();
  if (!last) return;
  drawFacts(last);
  const end = last.time_ms / 1000, from = end - shown.seconds;
  const windows = drawn().filter(one => one.time_ms / 1000 >= from - 2 * shown.interval);
  const names = new Set(last.links.map(link => link.link));
  for (const [name, card] of cards) if (!names.has(name)) { card.remove(); cards.delete(name); }
  for (const link of last.links) {
    if (!cards.has(link.link)) cards.set(link.link, new LinkCard(link.link));
    cards.get(link.link).draw(link, windows, from, end);
  }
}

function drawHeader(last) {
  const nav = $("routers");
  nav.hidden = shown.routers.length < 2;
  nav.replaceChildren(...shown.routers.map(({ router }) => make("button", { "aria-pressed": router === shown.router,
    onclick: () => { location.hash = encodeURIComponent(router); } },
    (shown.status[router]?.status === "answers" ? "" : "✕ ") + router)));
  const status = shown.status[shown.router] || {};
  const answers = status.status === "answers";
  const said = answers ? "● answers" : status.status === "silent" ? "✕ does not answer" : "… waiting";
  const name = status.name && status.name !== shown.router ? ` (${status.name})` : "";
  $("status").replaceChildren(make("b", {}, (shown.router || "") + name), " ",
    make("span", { class: answers ? "is-good" : "is-bad" }, said),
    last && answers ? `, up ${lasted(last.uptime_s)}` : "");
  document.title = `${answers ? "" : "✕ "}${shown.router || ""} – Evenkeel`;
}

function fact(title, value, small = "") {
  return make("dl", { class: "fact" }, make("dt", {}, title), make("dd", {}, value, make("small", {}, small)));
}

function drawFacts(last) {
  const all = key => last.links.reduce((sum, link) => sum + link[key], 0);
  const before = sum(last.dropped_before) + last.ring_loss_pps;
  const why = Object.entries(last.dropped_before).sort((a, b) => b[1] - a[1]).map(([reason]) => words(reason));
  if (last.ring_loss_pps > 0) why.push("kernel's ring was full");
  $("facts").replaceChildren(
    fact("Sent, all links", bits(all("sent_bps")), packets(all("sent_pps"))),
    fact("Waiting", packets(all("queued_packets"), "packets")),
    fact("Dropped on links", pps(all("dropped_pps")), `${pps(all("marked_pps"))} marked (ECN)`),
    fact("Lost before links", pps(before), why.length ? why.join(", ") : "nothing"),
    fact("Buffers in use", share(last.buffers_used)));
}

function drawMarks() {
  $("no-changes").hidden = shown.marks.length > 0;
  const rows = shown.marks.map((mark, at) => make("li", {}, make("b", {}, `#${at + 1}`), make("time", {}, moment(mark.time_ms)),
    make("span", { class: mark.kind === "raised" ? "is-bad" : mark.kind === "cleared" ? "is-good" : "" }, KINDS[mark.kind] || "", mark.text)));
  $("marks").replaceChildren(...rows.reverse().slice(0, 30));
}

// Marks as numbered lines in the curves.
const marked = { hooks: { draw: [plot => {
  const context = plot.ctx, { left, top, width, height } = plot.bbox, ratio = devicePixelRatio;
  context.save();
  context.strokeStyle = context.fillStyle = ink("--soft");
  context.lineWidth = ratio;
  context.setLineDash([2 * ratio, 3 * ratio]);
  context.font = `${10 * ratio}px system-ui, sans-serif`;
  shown.marks.forEach((mark, at) => {
    const x = plot.valToPos(mark.time_ms / 1000, "x", true);
    if (x < left || x > left + width) return;
    context.beginPath(); context.moveTo(x, top); context.lineTo(x, top + height); context.stroke();
    context.fillText(`#${at + 1}`, x + 3 * ratio, top + 9 * ratio);
  });
  context.restore();
}] } };

class Plot {
  // `height` in CSS pixels; `format` makes words of a value; `log`: its axis.
  constructor(place, height, format, log = false) {
    Object.assign(this, { place, height, format, log, key: "", plot: null });
    new ResizeObserver(() => this.plot && this.plot.setSize({ width: place.clientWidth, height })).observe(place);
  }

  draw(curves, times, from, end) {
    const key = JSON.stringify([curves.map(({ name, hue, dash }) => [name, hue, dash]), dark.matches]);
    const data = [times, ...curves.map(curve => curve.values)];
    this.span = [from, end];
    if (key !== this.key) { this.plot?.destroy(); this.plot = new uPlot(this.options(curves), data, this.place); this.key = key; }
    this.plot.setData(data);
  }

  options(curves) {
    const line = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const format = this.format;
    // Delays between whole powers of ten, so that their axis does not jump.
    const power = (value, round) => 10 ** round(Math.log10(Math.max(1, value)));
    const top = (_, min, max) => this.log ? [power((min || 1000) * .999, Math.floor), power((max || 9000) * 1.001, Math.ceil)] : [0, (max || 1) * 1.08];
    return {
      width: this.place.clientWidth, height: this.height, plugins: [marked], cursor: { drag: { x: false, y: false } }, padding: [8, 18, 0, 0],
      scales: { x: { time: true, range: () => this.span }, y: { range: top, distr: this.log ? 3 : 1 } },
      legend: { live: true, markers: { dash: (_, at) => ["solid", "dashed", "dotted", "dashed"][DASHES.findIndex(dash => dash === (curves[at - 1]?.dash || DASHES[0])) % 4] || "dashed" } },
      axes: [{ ...line, size: 26, space: 70, values: (_, ticks) => ticks.map(s => ticks.length > 1 && ticks[1] - ticks[0] >= 43200 ? new Date(s * 1000).toLocaleDateString([], { day: "2-digit", month: "2-digit" })
        : new Date(s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false, second: ticks.length > 1 && ticks[1] - ticks[0] < 60 ? "2-digit" : undefined })) },
        { ...line, size: 66, space: this.log ? 22 : 34, values: (_, ticks) => ticks.map(tick => tick === null ? "" : format(tick)) }],
      series: [{ label: "at", value: (_, s) => s ? clock(s * 1000) : "" }, ...curves.map(curve => ({ label: curve.name, stroke: curve.hue, dash: curve.dash, width: curve.width || 1.75,
        points: { show: false }, spanGaps: false, fill: curve.fill, value: (_, value) => value === null || value === undefined ? "" : format(value) }))],
    };
  }
}

// A link: its numbers, its curves, its classes.
class LinkCard {
  constructor(name) {
    this.name = name;
    this.sub = make("p");
    this.numbers = make("div", { class: "numbers" });
    const [rate, waits, drops] = [make("div"), make("div"), make("div", { class: "wide" })];
    this.heat = make("div", { class: "heat" });
    this.heatKey = make("p", { class: "key" });
    this.admission = make("p", { class: "admission", hidden: "" });
    this.table = make("table");
    this.drops = drops;
    const search = make("input", { type: "search", placeholder: "Find a class", "aria-label": `Find a class of ${name}`,
      oninput: event => { shown.filter[name] = event.target.value.toLowerCase(); redraw(); } });
    this.card = make("section", { class: "card", "aria-label": `Link ${name}` },
      make("div", { class: "head" }, make("h2", {}, name), this.sub), this.numbers,
      make("div", { class: "plots" }, make("div", {}, make("h3", {}, "Rate by class"), rate), make("div", {}, make("h3", {}, "Delay, all classes"), waits),
        make("div", { class: "wide" }, make("h3", {}, "Delay of 99 of 100 packets, by class"), this.heat, this.heatKey), drops),
      this.admission,
      make("div", { class: "tools" }, make("h3", {}, "Classes"), search), make("div", { class: "scroll", tabindex: "0" }, this.table));
    $("links").append(this.card);
    const lost = make("div");
    drops.append(make("h3", {}, "Dropped, by reason"), lost);
    this.rate = new Plot(rate, 200, bits);
    this.waits = new Plot(waits, 200, delay, true);
    this.lost = new Plot(lost, 130, pps);
  }

  remove() { this.card.remove(); }

  draw(link, windows, from, end) {
    const series = this.series(windows);
    this.drawNumbers(link);
    this.drawCurves(link, series, from, end);
    this.drawHeat(link, series, from, end);
    this.drawAdmission(link.admission);
    this.drawTable(link);
  }

  // This link's windows; null where the router was silent, so that curves have gaps.
  series(windows) {
    const out = [];
    for (const one of windows) {
      const link = one.links.find(link => link.link === this.name);
      if (out.length && one.time_ms / 1000 - out.at(-1).t > 3 * Math.max(shown.interval, one.length_s, out.at(-1).length || 0)) out.push({ t: out.at(-1).t + shown.interval, link: null });
      out.push({ t: one.time_ms / 1000, length: one.length_s, link: link || null });
    }
    return out;
  }

  drawNumbers(link) {
    const used = link.limit_bps ? link.sent_bps / link.limit_bps : null;
    this.sub.textContent = `${link.discipline}, ${link.limit_bps ? "limit " + bits(link.limit_bps) : "no limit"}`;
    const number = (title, value, small = "", extra = []) => make("dl", { class: "number" }, make("dt", {}, title), make("dd", {}, value, make("small", {}, small)), ...extra);
    const bar = make("div", { class: "bar", "aria-hidden": "true" }, make("i"));
    bar.firstChild.style.width = Math.min(100, (used || 0) * 100) + "%";
    const reasons = Object.entries(link.dropped).sort((a, b) => b[1] - a[1]).map(([reason]) => words(reason));
    this.numbers.replaceChildren(
      number("Sent", bits(link.sent_bps), used === null ? packets(link.sent_pps) : `${share(used)} of its limit, ${packets(link.sent_pps)}`, used === null ? [] : [bar]),
      number("Half wait less than", delay(link.p50_us)), number("99 of 100 less than", delay(link.p99_us)),
      number("Dropped", pps(link.dropped_pps), reasons.slice(0, 2).join(", ")), number("Waiting", packets(link.queued_packets, "packets"), `${pps(link.marked_pps)} marked`));
  }

  drawCurves(link, series, from, end) {
    const times = series.map(point => point.t);
    const values = of => series.map(({ link }) => link ? of(link) ?? null : null);
    const colours = hues();
    this.curves = this.biggest(link, series);
    const byClass = this.curves.map((name, at) => ({ name, hue: colours[at], dash: DASHES[at],
      values: values(link => link.classes.find(one => one.class === name)?.sent_bps) }));
    const limit = { name: "limit", hue: ink("--bad"), dash: [4, 4], width: 1.25, values: values(link => link.limit_bps) };
    const total = { name: "all", hue: ink("--soft"), dash: DASHES[0], width: 1, fill: ink("--track") + "66", values: values(link => link.sent_bps) };
    const several = link.classes.length > 1;
    this.rate.draw([...(several ? [total] : []), ...byClass, ...(link.limit_bps ? [limit] : [])], times, from, end);
    this.waits.draw([{ name: "half", hue: colours[0], dash: DASHES[0], values: values(link => link.p50_us) },
      { name: "99 of 100", hue: colours[1], dash: DASHES[1], values: values(link => link.p99_us) }], times, from, end);
    const reasons = [...new Set(series.flatMap(({ link }) => link ? Object.keys(link.dropped) : []))].sort().slice(0, CURVES);
    this.drops.hidden = reasons.length === 0;
    if (reasons.length) this.lost.draw(reasons.map((name, at) => ({ name: words(name), hue: colours[at], dash: DASHES[at],
      values: values(link => link.dropped[name] || 0) })), times, from, end);
  }

  // The classes that have curves: those that sent most in what is shown, in the order of the configuration.
  biggest(link, series) {
    const sent = new Map(link.classes.map(one => [one.class, 0]));
    for (const { link, length } of series) for (const one of link?.classes || []) if (sent.has(one.class)) sent.set(one.class, sent.get(one.class) + one.sent_bps * length);
    const names = [...sent.keys()];
    if (names.length <= CURVES) return names;
    const best = new Set([...sent].sort((a, b) => b[1] - a[1]).slice(0, CURVES).map(([name]) => name));
    return names.filter(name => best.has(name));
  }

  drawHeat(link, series, from, end) {
    const colours = HEAT[dark.matches ? "dark" : "light"], names = this.curves;
    if (this.heat.dataset.names !== names.join()) {
      this.heat.dataset.names = names.join();
      this.heat.replaceChildren(...names.flatMap(name => [make("span", { title: name }, name), make("canvas", { role: "img" }), make("b")]));
      const from = at => at === 0 ? "below 1 ms" : at === HEAT_US.length ? "above 1 s" : "to " + delay(HEAT_US[at]);
      this.heatKey.replaceChildren(...colours.map((_, at) => make("span", {}, make("i"), from(at))));
    }
    [...this.heatKey.querySelectorAll("i")].forEach((key, at) => { key.style.background = colours[at]; });
    names.forEach((name, row) => {
      const canvas = this.heat.children[row * 3 + 1], now = link.classes.find(one => one.class === name);
      const words = `${name}: now ${delay(now?.p99_us)}`;
      this.heat.children[row * 3 + 2].textContent = delay(now?.p99_us);
      canvas.setAttribute("aria-label", words);
      canvas.width = Math.max(1, canvas.clientWidth * devicePixelRatio); canvas.height = 1;
      const context = canvas.getContext("2d"), width = canvas.width / (end - from);
      for (const { t, length, link } of series) {
        const us = link?.classes.find(one => one.class === name)?.p99_us;
        if (us === null || us === undefined) continue;
        const step = HEAT_US.findIndex(limit => us < limit);
        context.fillStyle = colours[step < 0 ? HEAT_US.length : step];
        context.fillRect(Math.floor((t - length - from) * width), 0, Math.ceil(length * width) + 1, 1);
      }
    });
  }

  drawAdmission(admission) {
    this.admission.hidden = !admission;
    if (!admission) return;
    const refused = sum(admission.refused);
    const open = admission.congested ? `✕ new flows are refused (${words(admission.congested)})` : "● new flows may enter";
    this.admission.replaceChildren(make("b", { class: admission.congested ? "is-bad" : "is-good" }, open),
      `; fair rate ${bits(admission.fair_rate_bps)} (at least ${bits(admission.min_fair_rate_bps)}), priority load ${share(admission.priority_load)} (at most ${share(admission.max_priority_load)}), `
      + `${admission.protected} flows protected, ${pps(refused)} packets refused`);
  }

  drawTable(link) {
    const columns = [["class", "Class"], ["sent_bps", "Sent"], ["offered_bps", "Offered"], ["p50_us", "p50"], ["p99_us", "p99"], ["dropped_pps", "Dropped"], ["marked_pps", "Marked"], ["queued_packets", "Waiting"]];
    const [by, down] = shown.sort[this.name] || [null, true];
    const head = columns.map(([key, title]) => make("th", by === key ? { "aria-sort": down ? "descending" : "ascending" } : {},
      make("button", { onclick: () => { shown.sort[this.name] = [key, by === key ? !down : key !== "class"]; redraw(); } }, title + (by === key ? (down ? " ↓" : " ↑") : ""))));
    const filter = shown.filter[this.name] || "";
    const rows = link.classes.filter(one => one.class.toLowerCase().includes(filter));
    if (by) rows.sort((a, b) => (by === "class" ? a.class.localeCompare(b.class) : (a[by] ?? -1) - (b[by] ?? -1)) * (down ? -1 : 1));
    const most = Math.max(1, ...link.classes.map(one => one.sent_bps));
    const row = one => {
      const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
      bar.firstChild.style.width = one.sent_bps / most * 100 + "%";
      const curve = this.curves.indexOf(one.class), swatch = make("span", { class: "swatch" });
      swatch.style.borderColor = curve < 0 ? "transparent" : hues()[curve];
      swatch.style.borderTopStyle = ["solid", "dashed", "dotted", "dashed"][Math.max(0, curve) % 4];
      return make("tr", {}, make("td", {}, swatch, one.class), make("td", {}, bits(one.sent_bps), bar), make("td", {}, bits(one.offered_bps)), make("td", {}, delay(one.p50_us)),
        make("td", {}, delay(one.p99_us)), make("td", {}, pps(one.dropped_pps)), make("td", {}, pps(one.marked_pps)), make("td", {}, String(one.queued_packets)));
    };
    const more = rows.length > ROWS ? [make("tr", {}, make("td", { colspan: "8" }, `and ${rows.length - ROWS} more: find them by name`))] : [];
    // A click between two drawings must not lose its button: the head stays while it is the same.
    const key = head.map(cell => cell.textContent).join();
    if (this.table.dataset.key !== key) { this.table.dataset.key = key; this.table.replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody")); }
    this.table.tBodies[0].replaceChildren(...rows.slice(0, ROWS).map(row), ...more);
  }
}

for (const choice of document.querySelectorAll("#range input")) choice.onchange = () => { shown.seconds = +choice.value; readPast().catch(() => {}); redraw(); };
addEventListener("hashchange", () => choose(decodeURIComponent(location.hash.slice(1))).catch(() => {}));
dark.addEventListener("change", redraw);
async function start() {
  try { await load(); listen(); } catch { notice("evenkeel serve does not answer. Trying again …"); setTimeout(start, 3000); }
}
