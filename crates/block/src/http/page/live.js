// The block cache's page: what is shown where.

import * as charts from "/page/charts.js";
import { $, nameWindow, showAlerts, text } from "/page/dom.js";
import { showBlocks, showExports } from "/page/exports.js";
import { follow, rate, share } from "/page/feed.js";
import { bytes, count, percent } from "/page/figures.js";
import * as own from "/page/plots.js";

const times = { read: { bounds: [], shares: [] }, write: { bounds: [], shares: [] } };
let plots = null;

const sum = (view, field) => view.exports.reduce((total, it) => total + it[field], 0);
/** What is summed over all exports. */
const SUMMED = [
  "reads", "read_hits", "writes", "write_hits", "core_read_bytes", "core_written_bytes", "cache_read_bytes", "cache_written_bytes",
  "missed_requests", "missed_request_bytes", "allocated_blocks", "allocated_bytes",
];

/** For how long the oldest dirty bytes have been; null where none are. */
function oldest(view) {
  const ages = view.exports.map((it) => it.dirty_age_s).filter((age) => age !== null);
  return ages.length > 0 ? Math.max(...ages) : null;
}

/** The counters that the plots need, in the form of `/api/history`. */
function sample(view) {
  const { dirty_bytes, metadata_bytes_per_gib, held_bytes } = view.cache;
  const sums = Object.fromEntries(SUMMED.map((field) => [field, sum(view, field)]));
  return { ...sums, dirty_bytes, dirty_age_s: oldest(view), metadata_bytes_per_gib, held_bytes };
}

/** What an operator must know: what has failed. */
function alerts(now, before, words) {
  const told = [];
  const failure = now.cache.log?.failure;
  if (failure) told.push(`The log cannot be written: ${failure}. Writes and flushes fail from now on; what the stores have is still read.`);
  const { retired_bytes, unchecked_bytes, out_of_use } = now.cache;
  if (unchecked_bytes > 0) told.push(`${bytes(unchecked_bytes)} were being overwritten when the last process ended, and were taken unchecked: the log messages have their places.`);
  if (out_of_use) told.push("The cache's device has failed in many places: the cache is out of use until a restart, and the stores serve alone.");
  else if (retired_bytes > 0) told.push(`The cache's device has failed: ${bytes(retired_bytes)} of the cache are not used before a restart.`);
  now.exports.forEach((it, n) => {
    const lately = before ? it.write_back_failures - before.exports[n].write_back_failures : 0;
    if (lately > 0) told.push(`${it.name}: its store has failed ${count(lately)} writes or flushes in the ${words}.`);
    if (it.refuses_writes) told.push(`${it.name}: its store is full, and so is the cache: writes fail until the store has room.`);
    else if (it.store_full_s !== null) told.push(`${it.name}: its store has been full for ${it.store_full_s.toFixed(0)} s. Writes go on as long as the cache has room.`);
    if (it.poisoned_units > 0) told.push(`${it.name}: ${count(it.poisoned_units)} units of 4 KiB that its store lacks were lost by the cache's device.`);
    const misread = before ? it.cache_failures - before.exports[n].cache_failures : 0;
    if (misread > 0) told.push(`${it.name}: the cache's device has failed, or given other bytes than were stored, ${count(misread)} times in the ${words}.`);
  });
  return told;
}

function showFigures(now, before) {
  const grown = (field) => before ? sum(now, field) - sum(before, field) : NaN;
  const ratio = (hits, all) => percent(grown(all) > 0 ? grown(hits) / grown(all) : NaN);
  const since = (hits, all, words) => sum(now, all) > 0 ? `${percent(sum(now, hits) / sum(now, all))} since the start` : `no ${words} yet`;
  text("read-hits", ratio("read_hits", "reads"));
  text("read-note", since("read_hits", "reads", "reads"));
  text("write-hits", ratio("write_hits", "writes"));
  text("write-note", since("write_hits", "writes", "writes"));
  text("rate", count((grown("reads") + grown("writes")) / (before ? now.uptime_s - before.uptime_s : NaN)));
  text("rate-note", `${count(sum(now, "reads") + sum(now, "writes"))} since the start`);
  text("dirty", bytes(now.cache.dirty_bytes));
  const age = oldest(now);
  text("dirty-note", age === null ? "all is in the stores, or on its way" : `the oldest for ${age.toFixed(1)} s`);
}

function showLog(now, before) {
  const { log } = now.cache;
  $("no-log").hidden = log !== null;
  $("log").hidden = log === null;
  if (log === null) return;
  const used = log.capacity_bytes > 0 ? log.used_bytes / log.capacity_bytes : 0;
  $("log-meter").firstElementChild.style.width = `${Math.min(100, 100 * used)}%`;
  text("log-fill", `${bytes(log.used_bytes)} of ${bytes(log.capacity_bytes)} in use (${percent(used)})`);
  text("log-state", log.failure === null ? "healthy" : "failed");
  const lately = (field) => before?.cache.log ? (log[field] - before.cache.log[field]) / (now.uptime_s - before.uptime_s) : NaN;
  text("log-syncs", count(lately("syncs")));
  text("log-batches", count(lately("batches")));
  text("log-written", `${bytes(log.written_bytes)}`);
  text("log-checkpoints", count(log.checkpoints));
}

/** All exports' times of an operation together, in the form of one. */
function histogram(view, op) {
  const all = view.exports.map((it) => it.histograms.find((times) => times.op === op)?.service).filter(Boolean);
  const buckets = (all[0]?.buckets ?? []).map(({ upper_us }, n) => ({
    upper_us, count: all.reduce((total, { buckets }) => total + buckets[n].count, 0),
  }));
  return { buckets, count: all.reduce((total, { count }) => total + count, 0) };
}

function showTimes(now, before) {
  for (const op of ["read", "write"]) {
    Object.assign(times[op], charts.times(histogram(now, op), before ? histogram(before, op) : undefined));
  }
}

function show(now, before, rows, words) {
  nameWindow(words);
  showAlerts(alerts(now, before, words));
  showFigures(now, before);
  showExports(now, before);
  showBlocks(now);
  showLog(now, before);
  showTimes(now, before);
  plots ??= [
    own.hits(() => [rows.time, rows.rate, rows.readHits, rows.writeHits]),
    own.volumes(() => [rows.time, rows.coreRead, rows.coreWritten, rows.cacheRead, rows.cacheWritten]),
    own.sizes(() => [rows.time, rows.request, rows.block]),
    own.dirt(() => [rows.time, rows.dirty, rows.age]),
    own.metadata(() => [rows.time, rows.metadata]),
    charts.latency("read-times", () => times.read),
    charts.latency("write-times", () => times.write),
  ];
  plots.forEach((plot) => plot.update());
}

follow({
  sample, show,
  lines: {
    rate: (now, before, seconds) => (now.reads + now.writes - before.reads - before.writes) / seconds,
    readHits: share("read_hits", "reads"), writeHits: share("write_hits", "writes"),
    coreRead: rate("core_read_bytes"), coreWritten: rate("core_written_bytes"),
    cacheRead: rate("cache_read_bytes"), cacheWritten: rate("cache_written_bytes"),
    request: share("missed_request_bytes", "missed_requests"), block: share("allocated_bytes", "allocated_blocks"),
    dirty: (now) => now.dirty_bytes, age: (now) => now.dirty_age_s ?? 0,
    metadata: (now) => now.metadata_bytes_per_gib,
  },
  comparable: (old, now) => SUMMED.every((field) => sum(old, field) <= sum(now, field))
    && old.exports.length === now.exports.length
    && old.exports.every((it, n) => it.name === now.exports[n].name && it.histograms.length === now.exports[n].histograms.length),
});
