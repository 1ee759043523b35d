// The store's page: what is shown where.

import * as charts from "/page/charts.js";
import { $, cells, element, nameWindow, showAlerts, text } from "/page/dom.js";
import { follow, rate, share } from "/page/feed.js";
import { bytes, count, micros, percent } from "/page/figures.js";
import { alerts, showClients, showCommands, showHealth, showSlow } from "/page/operation.js";
import * as own from "/page/plots.js";
import { showTenants } from "/page/tenants.js";

const TIER_COLORS = ["--fast", "--slow", "--third", "--fourth"];

const histogram = { bounds: [], shares: [], p50: 0, p99: 0, p999: 0 };
let plots = null;

/** The counters that the plots need, in the form of `/api/history`. */
function sample(snapshot) {
  const { tiers, gets, hits } = snapshot.engine;
  const sum = (field) => tiers.reduce((total, tier) => total + tier[field], 0);
  return {
    commands: snapshot.commands_total, gets, hits,
    fast_hits: tiers[0]?.hits ?? 0, promotions: sum("promotions"), demotions: sum("demotions"), evictions: sum("evictions"),
  };
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
  // With one tier it is the hit ratio.
  $("fast-tile").hidden = engine.tiers.length < 2;
  text("fast-note", since(fast(now)));
  text("hit-note", since(engine.hits));
  text("p99", micros(histogram.p99));
  text("p99-note", `p50 ${micros(histogram.p50)}, p99.9 ${micros(histogram.p999)}`);
  text("resident", bytes(now.resident_bytes));
  text("resident-note", `${bytes(engine.pinned_bytes)} pinned by replies`);
  text("keys", count(engine.keys));
  text("pinned", bytes(engine.pinned_bytes));
  text("keys-note", `${bytes(engine.tiers.reduce((sum, tier) => sum + tier.item_bytes, 0))} of items`);
}

/** The bar that shows at a glance where look-ups of the window ended. */
function showSplit(now, before, words) {
  const gets = before ? now.engine.gets - before.engine.gets : 0;
  const bar = $("split");
  $("split-legend").hidden = gets <= 0;
  if (gets <= 0) {
    if (!before) hint(bar, "Measuring.");
    else if (now.engine.gets === 0) hint(bar, "No look-ups yet. Point a Redis client at the store and watch.");
    else hint(bar, `No look-ups in the ${words}.`);
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
    // The share where it fits; the legend has all of them, and the names.
    const width = share * bar.clientWidth;
    part.classList.toggle("sliver", width < 64);
    part.replaceChildren(width < 64 ? "" : element("b", "", percent(share)));
  });
  $("split-legend").replaceChildren(...parts.map(([name, share], n) => {
    const entry = element("li");
    const swatch = element("i");
    swatch.style.setProperty("--series", `var(${n < tiers.length ? TIER_COLORS[n % TIER_COLORS.length] : "--miss"})`);
    entry.append(swatch, name, element("b", "", percent(share)));
    return entry;
  }));
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
  row.append(name, fill, ...cells(CELLS.map((label) => [label])));
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

function show(now, before, rows, words) {
  nameWindow(words);
  Object.assign(histogram, charts.times(now.latency, before?.latency));
  showAlerts(alerts(now));
  showFigures(now, before);
  showSplit(now, before, words);
  showTiers(now, before);
  showTenants(now, before);
  showHealth(now);
  showCommands(now, before);
  showSlow(now);
  showClients(now);
  // Nothing moves where there is one tier.
  $("moves-card").hidden = now.engine.tiers.length < 2;
  plots ??= [
    own.throughput(() => [rows.time, rows.rate, rows.fast, rows.hit]),
    own.moves(() => [rows.time, rows.promoted, rows.demoted, rows.evicted]),
    charts.latency("latency", () => histogram),
  ];
  plots.forEach((plot) => plot.update());
}

follow({
  sample, show,
  lines: {
    rate: rate("commands"), fast: share("fast_hits", "gets"), hit: share("hits", "gets"),
    promoted: rate("promotions"), demoted: rate("demotions"), evicted: rate("evictions"),
  },
  comparable: (old, now) => old.commands_total <= now.commands_total
    && old.engine.tiers.length === now.engine.tiers.length
    && old.latency.buckets.length === now.latency.buckets.length,
});
