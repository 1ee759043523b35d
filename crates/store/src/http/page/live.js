// Asks the server for a snapshot each second and shows it. Rates are differences of counters over the server's
// own uptime, so that a slow network changes nothing.

import * as charts from "/page/charts.js";
import { bytes, count, duration, micros, percent } from "/page/figures.js";
import { showTenants } from "/page/tenants.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 3000;
/** Seconds for which snapshots are kept: a minute, for the histogram. */
const KEPT_S = 60;
/** Rates in the table and the headline are over so many seconds, to be calm enough to read. */
const CALM_S = 10;
/** Bars of the histogram at least. */
const BARS_MIN = 10;
/** Without a sample for longer than this, the page asks for what it missed. */
const GAP_S = 5;
const TIER_COLORS = ["--fast", "--slow", "--third", "--fourth"];

const $ = (id) => document.getElementById(id);
const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
const element = (tag, className, content) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
};

/** The newest snapshots, oldest first. */
let kept = [];
/** Columns of the plots: time, then requests/s, fast-tier hit share, hit ratio; promotions, demotions, evictions. */
const rows = { time: [], rate: [], fast: [], hit: [], promoted: [], demoted: [], evicted: [] };
const histogram = { bounds: [], shares: [], p50: 0, p99: 0, p999: 0 };
let plots = null;
/** The last sample that went into the plots. */
let last = null;
let shownUptime = null;

/** The counters that the plots need, in the form of `/api/history`. */
function sample(snapshot) {
  const { tiers, gets, hits } = snapshot.engine;
  const sum = (field) => tiers.reduce((total, tier) => total + tier[field], 0);
  return {
    unix_s: snapshot.unix_s, uptime_s: snapshot.uptime_s, commands: snapshot.commands_total, gets, hits,
    fast_hits: tiers[0]?.hits ?? 0, promotions: sum("promotions"), demotions: sum("demotions"), evictions: sum("evictions"),
  };
}

/** Adds what happened between the last sample and this one to the plots. */
function plotSample(now) {
  const before = last;
  if (before?.uptime_s === now.uptime_s) return;
  last = now;
  if (!before) return;
  const seconds = now.uptime_s - before.uptime_s;
  // A restart, or a gap in which nobody looked: the lines break.
  const broken = seconds <= 0 || seconds > GAP_S;
  const rate = (field) => broken ? null : (now[field] - before[field]) / seconds;
  const gets = now.gets - before.gets;
  const share = (field) => broken || gets <= 0 ? null : (now[field] - before[field]) / gets;
  rows.time.push(now.unix_s);
  rows.rate.push(rate("commands"));
  rows.fast.push(share("fast_hits"));
  rows.hit.push(share("hits"));
  rows.promoted.push(rate("promotions"));
  rows.demoted.push(rate("demotions"));
  rows.evicted.push(rate("evictions"));
  const old = rows.time.findIndex((time) => time >= now.unix_s - charts.WINDOW_S);
  if (old > 0) Object.values(rows).forEach((column) => column.splice(0, old));
}

/** Replaces the plots' newest part by what the server remembers, after a gap or when the page has just been opened. */
function refill({ samples, views }) {
  const start = samples[0]?.unix_s ?? Infinity;
  const known = rows.time.findIndex((time) => time >= start);
  if (known >= 0) Object.values(rows).forEach((column) => column.splice(known));
  // What is left is from before the server's memory: the lines must not run on from there.
  if (rows.time.length > 0) Object.entries(rows).forEach(([name, column]) => column.push(name === "time" ? column.at(-1) : null));
  last = null;
  samples.forEach(plotSample);
  kept = views;
}

/** The snapshot to compare with for rates over `seconds`, or null when there is none yet. */
function earlier(seconds) {
  const now = kept.at(-1);
  const age = (snapshot) => now.uptime_s - snapshot.uptime_s;
  return kept.find((snapshot) => age(snapshot) <= seconds + 0.5 && age(snapshot) >= 0.5) ?? null;
}

function showHeader(now) {
  text("state", now.ready ? "ready" : "not ready");
  document.documentElement.dataset.ready = now.ready;
  text("version", now.version || "–");
  text("uptime", duration(now.uptime_s));
  text("connections", count(now.connections));
}

function showFigures(now, before) {
  const { engine } = now;
  const seconds = before ? now.uptime_s - before.uptime_s : NaN;
  text("rate", count(before ? (now.commands_total - before.commands_total) / seconds : NaN));
  text("rate-note", `${count(now.commands_total)} since the start`);
  const gets = before ? engine.gets - before.engine.gets : 0;
  const fast = (of) => of.engine.tiers[0]?.hits ?? 0;
  text("fast-share", percent(gets > 0 ? (fast(now) - fast(before)) / gets : NaN));
  text("hit-ratio", percent(gets > 0 ? (engine.hits - before.engine.hits) / gets : NaN));
  const since = (share) => engine.gets > 0 ? `${percent(share / engine.gets)} since the start` : "no look-ups yet";
  text("fast-note", since(fast(now)));
  text("hit-note", since(engine.hits));
  text("keys", count(engine.keys));
  text("keys-note", `${bytes(engine.tiers.reduce((sum, tier) => sum + tier.item_bytes, 0))} of items`);
}

/** The bar that shows at a glance where look-ups of the last seconds ended. */
function showSplit(now, before) {
  const gets = before ? now.engine.gets - before.engine.gets : 0;
  text("split-note", gets > 0 ? "last 10 s" : "");
  const bar = $("split");
  if (gets <= 0) {
    if (!before) hint(bar, "Measuring.");
    else if (now.engine.gets === 0) hint(bar, "No look-ups yet. Point a Redis client at the store and watch.");
    else hint(bar, "No look-ups in the last 10 s.");
    return;
  }
  const tiers = now.engine.tiers;
  if (bar.childElementCount !== tiers.length + 1 || bar.querySelector(".hint")) {
    bar.replaceChildren(...tiers.map((_, n) => tint(element("div"), n)), element("div", "miss"));
  }
  const parts = tiers.map((tier, n) => [tier.name, (tier.hits - before.engine.tiers[n].hits) / gets]);
  parts.push(["misses", Math.max(0, (gets - (now.engine.hits - before.engine.hits)) / gets)]);
  parts.forEach(([name, share], n) => {
    const part = bar.children[n];
    part.style.flexGrow = share;
    part.title = `${name} ${percent(share)}`;
    // As much as fits: share and name, the share alone, nothing.
    const width = share * bar.clientWidth;
    part.classList.toggle("sliver", width < 56);
    part.replaceChildren(width < 56 ? "" : element("b", "", percent(share)), width < 110 ? "" : ` ${name}`);
  });
}

function hint(bar, words) {
  if (bar.firstElementChild?.textContent !== words) bar.replaceChildren(element("p", "hint", words));
}

function tint(made, tier) {
  made.style.setProperty("--tier", `var(${TIER_COLORS[tier % TIER_COLORS.length]})`);
  return made;
}

const CELLS = ["items", "item bytes", "hits/s", "hit share", "promoted/s", "demoted/s", "evicted/s", "charged"];

function makeTierRow(tier, n) {
  const row = tint(element("tr"), n);
  const name = element("td");
  name.append(element("span", "swatch"), element("span", "name", tier.name));
  if (tier.kind === "emulated") name.append(element("span", "badge", "emulated"));
  else if (tier.kind !== tier.name) name.append(element("span", "kind", tier.kind));
  const fill = element("td", "fill");
  const meter = element("div", "meter");
  meter.append(element("i"));
  fill.append(meter, element("small"));
  row.append(name, fill, ...CELLS.map((label) => {
    const cell = element("td");
    cell.dataset.label = label;
    return cell;
  }));
  return row;
}

function showTiers(now, before) {
  const tiers = now.engine.tiers;
  const body = $("tiers");
  const names = tiers.map((tier) => `${tier.name} ${tier.kind}`).join();
  if (body.dataset.names !== names) {
    body.dataset.names = names;
    body.replaceChildren(...tiers.map(makeTierRow));
  }
  $("emulated-note").hidden = !tiers.some((tier) => tier.kind === "emulated");
  const seconds = before ? now.uptime_s - before.uptime_s : NaN;
  const gets = before ? now.engine.gets - before.engine.gets : 0;
  tiers.forEach((tier, n) => {
    const row = body.children[n];
    const share = tier.capacity_bytes > 0 ? tier.used_bytes / tier.capacity_bytes : 0;
    row.querySelector(".meter i").style.width = `${Math.min(100, 100 * share)}%`;
    const filled = `${bytes(tier.used_bytes)} of ${bytes(tier.capacity_bytes)}`;
    row.querySelector(".fill small").textContent = `${filled} (${percent(share)})`;
    const grown = (field) => before ? tier[field] - before.engine.tiers[n][field] : NaN;
    const charged = grown("charged_ns") / seconds;
    const values = [
      count(tier.items), bytes(tier.item_bytes), count(grown("hits") / seconds),
      percent(gets > 0 ? grown("hits") / gets : NaN), count(grown("promotions") / seconds),
      count(grown("demotions") / seconds), count(grown("evictions") / seconds),
      tier.kind === "emulated" && charged > 0 ? `${micros(charged / 1000)}/s` : "–",
    ];
    row.querySelectorAll("td[data-label]").forEach((cell, m) => {
      if (cell.textContent !== values[m]) cell.textContent = values[m];
    });
  });
}

/**
 * Bars over the last minute. The axis spans what held all but the slowest ten-thousandth of requests since the
 * start, so that it stays where it is and one odd request does not squeeze the rest.
 */
function showLatency(now) {
  const { buckets, count: total, p50_us, p99_us, p999_us } = now.latency;
  const first = kept[0] === now ? null : kept[0];
  const within = (latency, n) => latency.buckets[n].count - (n > 0 ? latency.buckets[n - 1].count : 0);
  const fastest = buckets.findIndex((bucket) => bucket.count > total * 1e-4);
  const slowest = buckets.findIndex((bucket) => bucket.count >= total * 0.9999);
  const to = Math.min(buckets.length, Math.max(slowest + 2, fastest + BARS_MIN));
  const from = Math.max(0, Math.min(fastest - 1, to - BARS_MIN));
  const requests = total - (first?.latency.count ?? 0);
  const counts = buckets.map((_, n) => within(now.latency, n) - (first ? within(first.latency, n) : 0));
  histogram.bounds = buckets.slice(from, to).map((bucket) => bucket.upper_us);
  histogram.shares = counts.slice(from, to).map((n) => requests > 0 ? n / requests : 0);
  Object.assign(histogram, { p50: p50_us, p99: p99_us, p999: p999_us });
}

function show(now) {
  showHeader(now);
  // The server publishes at its own pace; a snapshot seen twice says nothing new.
  if (shownUptime === now.uptime_s) return;
  shownUptime = now.uptime_s;
  // Counters are compared only with older ones of the same server, which counts from 0 again when restarted.
  const comparable = (old) => old.uptime_s < now.uptime_s && old.commands_total <= now.commands_total
    && old.engine.tiers.length === now.engine.tiers.length
    && old.latency.buckets.length === now.latency.buckets.length;
  kept = kept.filter((old) => comparable(old) && now.uptime_s - old.uptime_s <= KEPT_S + 0.5);
  kept.push(now);
  plotSample(sample(now));
  const before = earlier(CALM_S);
  showFigures(now, before);
  showSplit(now, before);
  showTiers(now, before);
  showTenants(now, before);
  showLatency(now);
  plots ??= [
    charts.throughput(() => [rows.time, rows.rate, rows.fast, rows.hit]),
    charts.moves(() => [rows.time, rows.promoted, rows.demoted, rows.evicted]),
    charts.latency(() => histogram),
  ];
  plots.forEach((plot) => plot.update());
}

async function get(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

async function ask() {
  try {
    const now = await get("/api/snapshot");
    if (!last || now.unix_s - last.unix_s > GAP_S) refill(await get("/api/history"));
    show(now);
    document.documentElement.dataset.state = "live";
  } catch (error) {
    console.warn(error);
    document.documentElement.dataset.state = "disconnected";
    text("state", "disconnected");
  }
  setTimeout(ask, PERIOD_MS);
}

ask();
