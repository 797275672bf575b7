"use strict";
// What the page shows beside links: alarms, who sends most, where the core's cycles go, the cluster, and times longer than an hour. Uses what page.js and lists.js have.

const STATE_EVERY = 3000, FLOWS_EVERY = 5000, LONGER = 3600, POINTS = 600;
const more = { alarms: [], state: null, before: null, past: null };

// Alarms.
async function readAlarms() {
  if (!shown.router) return;
  more.alarms = (await get(of("/alarms"))).alarms;
  drawAlarms();
}

function drawAlarms() {
  const raised = more.alarms.filter(alarm => alarm.raised);
  $("alarms").hidden = raised.length === 0;
  $("alarms").replaceChildren(...raised.map(alarm => make("li", {}, make("b", {}, "✕ "), alarm.text, make("small", {}, ` since ${clock(alarm.since_ms)}`))));
}

function onAlarm(alarm) {
  more.alarms = more.alarms.filter(one => one.alarm !== alarm.alarm || one.about !== alarm.about).concat([alarm]);
  drawAlarms();
}

// Who sends most.
const flows = new List("flows", "/flows", "flows", [
  ["flow", "Flow", flow => make("button", { class: "flow", title: "What happens to it", onclick: () => explain(flow) }, flow.flow)],
  ["bps", "Sends", (flow, most) => barred(bits(flow.bps), flow.bps / most)],
  ["class", "Class", flow => flow.class],
  ["link", "Link", flow => flow.link],
  ["pps", "Packets", flow => pps(flow.pps)],
  ["waiting_bytes", "Waiting", flow => flow.waiting_bytes ? scaled(flow.waiting_bytes, "B") : "–"],
]);

async function readFlows() {
  if (!shown.router || document.hidden) return;
  try {
    await flows.read();
    $("busiest").hidden = false;
  } catch { $("busiest").hidden = !flows.told; }
}

async function explain(flow) {
  const box = $("explained");
  box.hidden = false;
  box.replaceChildren(make("b", {}, flow.flow), make("pre", {}, "…"));
  let text;
  try { text = (await get(of("/explain?flow=" + encodeURIComponent(flow.flow)))).lines.join("\n"); } catch (error) { text = "no answer (" + error.message + ")"; }
  box.lastChild.textContent = text;
}

// The core's cycles and the cluster: parts of all counters, which are read only where there are such parts.
async function readState() {
  if (!shown.router || document.hidden) return;
  const state = await get(of("/state"));
  [more.before, more.state] = [more.state, state];
  const same = more.before && more.before.router === state.router && more.before.time_ns < state.time_ns;
  $("cycles").hidden = !state.cycles || !same;
  if (state.cycles && same && more.before.cycles) drawCycles(more.before, state);
  const trees = state.links.filter(link => link.tree);
  $("subscribers").hidden = trees.length === 0;
  if (trees.length) drawSubscribers(trees, same ? more.before.links : [], same ? (state.time_ns - more.before.time_ns) / 1e9 : 0);
  $("cluster").hidden = !state.cluster && !state.balancer;
  if (state.cluster) drawCluster(more.before?.cluster, state, same ? (state.time_ns - more.before.time_ns) / 1e9 : 0);
  else if (state.balancer) drawBalancer(more.before?.balancer, state.balancer, same ? (state.time_ns - more.before.time_ns) / 1e9 : 0);
}

// Where cycles went since the last reading: from the core to classes, and from each to packets that went on or were dropped.
function drawCycles(before, now) {
  const seconds = (now.time_ns - before.time_ns) / 1e9, hertz = now.cycles.hertz || 1;
  const since = (list, key) => list.map((one, at) => Math.max(0, one[key] - (before.cycles.classes[at]?.[key] || 0)) / seconds / hertz);
  const used = since(now.cycles.classes, "cycles"), lost = since(now.cycles.classes, "refused_cycles");
  const classes = now.cycles.classes.map((one, at) => ({ name: one.name, used: used[at], lost: lost[at] })).filter(one => one.used + one.lost > 0)
    .sort((a, b) => b.used + b.lost - a.used - a.lost).slice(0, 8);
  const total = classes.reduce((all, one) => all + one.used + one.lost, 0);
  const fairdrop = now.fairdrop;
  const refused = fairdrop ? fairdrop.classes.reduce((all, one, at) => all + one.refused_cpu + one.refused_bandwidth
    - (before.fairdrop?.classes[at]?.refused_cpu || 0) - (before.fairdrop?.classes[at]?.refused_bandwidth || 0), 0) / seconds : 0;
  $("cycles-said").textContent = `${share(total)} of a core is used for packets` + (fairdrop ? `; FairDrop ${fairdrop.on ? "is on" : "is off"}, drops ${pps(refused)}` : "");
  if (total > 0) $("sankey").replaceChildren(sankey(classes, total));
}

const svg = (tag, attributes, ...inside) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
};

function sankey(classes, total) {
  const width = 640, gap = 14, height = 200, scale = (height - gap * (classes.length + 1)) / total, colours = hues();
  const root = svg("svg", { viewBox: `0 0 ${width} ${height + gap}`, role: "img", "aria-label": "Cycles from the core to classes, and to packets that went on or were dropped" });
  const ribbon = (x, y, toX, toY, thick, colour) => root.append(svg("path", { d: `M${x},${y} C${(x + toX) / 2},${y} ${(x + toX) / 2},${toY} ${toX},${toY} v${thick} C${(x + toX) / 2},${toY + thick} ${(x + toX) / 2},${y + thick} ${x},${y + thick} Z`, fill: colour, "fill-opacity": .35 }));
  const node = (x, y, high, colour, text, anchor) => root.append(svg("rect", { x, y, width: 10, height: Math.max(1, high), fill: colour }),
    svg("text", { x: anchor === "end" ? x - 6 : x + 16, y: y + high / 2 + 4, "text-anchor": anchor || "start", fill: ink("--text"), "font-size": 12 }, text));
  const lost = classes.reduce((all, one) => all + one.lost, 0);
  let core = gap, y = gap, on = gap, off = gap + (total - lost) * scale + 2 * gap;
  const ends = [[on, total - lost, ink("--good"), "went on"], [off, lost, ink("--bad"), "dropped"]];
  classes.forEach((one, at) => {
    const high = (one.used + one.lost) * scale, colour = colours[at];
    ribbon(80, core, 270, y, high, colour);
    ribbon(280, y, 520, on, one.used * scale, colour);
    if (one.lost) ribbon(280, y + one.used * scale, 520, off, one.lost * scale, ink("--bad"));
    node(270, y, high, colour, `${one.name} ${share(one.used + one.lost)}`);
    core += high; y += high + gap; on += one.used * scale; off += one.lost * scale;
  });
  node(70, gap, total * scale, ink("--soft"), "core", "end");
  for (const [top, size, colour, text] of ends) if (size > 0) node(520, top, size * scale, colour, `${text} ${share(size)}`);
  return root;
}

// Links that subscribers share: the nodes that they are behind, and what belongs to nobody.
function drawSubscribers(links, before, seconds) {
  const rate = (now, then) => seconds > 0 && then !== undefined ? Math.max(0, now - then) / seconds : null;
  const told = (value, text) => value === null ? "–" : text(value);
  $("subscribers-body").replaceChildren(...links.flatMap(({ port, tree }) => {
    const was = before.find(one => one.port === port)?.tree;
    const strangers = rate(tree.unknown_packets + tree.unknown_dropped, was && was.unknown_packets + was.unknown_dropped);
    const bad = strangers > 10;
    const rows = tree.nodes.map(node => {
      const then = was?.nodes.find(one => one.name === node.name);
      const sent = rate(node.sent_bytes, then?.sent_bytes), waits = rate(node.own_cap, then?.own_cap), packets = rate(node.sent_packets, then?.sent_packets);
      const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
      bar.firstChild.style.width = node.cap_bps ? Math.min(100, (sent || 0) * 800 / node.cap_bps) + "%" : "0";
      const full = waits !== null && waits > 0 && waits * 4 > packets;
      return [node.name, node.parent, make("span", {}, told(sent, value => bits(value * 8)), bar), node.cap_bps ? bits(node.cap_bps) : "none",
        full ? make("b", { class: "is-bad" }, "✕ at its cap") : node.busy ? `● ${node.busy} wait` : "–"];
    });
    const nobody = make("p", { class: "admission" }, make("b", { class: bad ? "is-bad" : "is-good" }, bad ? "✕ packets that belong to nobody in the list" : "● the list names everybody"),
      `: ${told(strangers, pps)}, ${told(rate(tree.unknown_bytes, was?.unknown_bytes), value => bits(value * 8))}` + (tree.last_unknown ? `; last ${tree.last_unknown}` : ""));
    const title = make("h3", {}, `Link ${port}: ${tree.subscribers.toLocaleString("en")} in the list ${tree.name}`);
    return rows.length ? [title, nobody, rowsTable(["Node", "Behind", "Now", "Cap", "What limits it"], rows)] : [title, nobody];
  }));
}

// Subscribers, and what limits each of them.
const people = new List("people", "/subscribers", "subscribers", [
  ["name", "Subscriber", one => one.name],
  ["parent", "Behind", one => one.parent],
  [null, "", one => one.down ? "down" : "up"],
  ["bps", "Now", one => barred(bits(one.bps), one.cap_bps ? one.bps / one.cap_bps : 0)],
  ["cap_bps", "Plan", one => one.cap_bps ? bits(one.cap_bps) : "none"],
  ["guarantee_bps", "Guaranteed", one => one.guarantee_bps ? bits(one.guarantee_bps) : "–"],
  ["p95_us", "95 of 100 wait less than", one => one.p95_us === null ? "–" : delay(one.p95_us)],
  ["rtt_us", "Round trip", one => one.rtt_us === null ? "–" : delay(one.rtt_us)],
  ["dropped_pps", "Dropped", one => pps(one.dropped_pps)],
  ["limit", "What limits it", one => one.limit === null ? "asks for no more" : one.limit === one.name ? "its own cap" : one.limit],
]);

async function readPeople() {
  if (!shown.router || document.hidden || !more.state?.links.some(link => link.tree)) return;
  await people.read();
}

function facts(list) { return make("div", { class: "numbers" }, ...list.map(([title, value, small]) => make("dl", { class: "number" }, make("dt", {}, title), make("dd", {}, value, make("small", {}, small || ""))))); }

function rowsTable(titles, rows) {
  return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, make("tr", {}, ...titles.map(title => make("th", {}, title)))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map(cell => make("td", {}, cell)))))));
}

function drawCluster(before, { cluster }, seconds) {
  const rate = (now, then) => seconds > 0 && then !== undefined ? Math.max(0, now - then) / seconds : null;
  const rows = cluster.links.flatMap((link, l) => link.classes.map((one, c) => {
    const was = before?.links[l]?.classes[c];
    const granted = rate(one.granted_bytes, was?.granted_bytes);
    return [link.name, one.name, granted === null ? "–" : bits(granted * 8), String(one.queued_packets), String(sum(one.dropped))];
  }));
  const cycles = rate(cluster.cycle, before?.cycle);
  $("cluster-body").replaceChildren(facts([["This forwarder", String(cluster.node), cluster.in_step ? "● in step" : "✕ out of step"],
    ["Taking part", cluster.present.join(", ") || "nobody"], ["Master", cluster.master === null ? "none" : String(cluster.master)],
    ["Cycle", cluster.cycle.toLocaleString("en"), cycles === null ? "" : `${Math.round(cycles)} /s`],
    ["Late", String(cluster.late), "packets that came after their grant"]]), rowsTable(["Link", "Class", "Granted", "Waiting", "Dropped"], rows));
}

function drawBalancer(before, balancer, seconds) {
  const rows = balancer.forwarders.map((one, at) => {
    const was = before?.forwarders[at];
    const rate = seconds > 0 && was ? Math.max(0, one.packets - was.packets) / seconds : null;
    return [String(one.id), one.state, one.health, String(one.flows), rate === null ? "–" : pps(rate)];
  });
  $("cluster-body").replaceChildren(rowsTable(["Forwarder", "State", "Health", "Flows", "Packets"], rows));
}

// Longer than an hour: from the files of the past, read anew when it is asked for and then each minute.
async function readPast() {
  if (shown.seconds <= LONGER || !shown.router) { more.past = null; return; }
  const from = Date.now() - shown.seconds * 1000;
  try {
    more.past = (await get(of(`/history?from_ms=${from}&points=${POINTS}`))).windows;
    $("no-past").hidden = true;
  } catch { more.past = null; $("no-past").hidden = false; }
  redraw();
}

// The windows that are drawn.
function drawn() { return shown.seconds > LONGER && more.past ? more.past.concat(shown.windows.slice(-1)) : shown.windows; }

function begin() {
  quietly(readAlarms);
  quietly(readFlows);
  quietly(readState);
  quietly(readPast);
}
setInterval(() => quietly(readFlows), FLOWS_EVERY);
setInterval(() => { if (!more.state || more.state.cycles || more.state.cluster || more.state.balancer || more.state.links.some(link => link.tree)) quietly(readState); }, STATE_EVERY);
setInterval(() => quietly(readPeople), FLOWS_EVERY);
setInterval(() => quietly(readPast), 60000);
start();
