// Asks the server for a snapshot each second and hands it on. Rates are differences of counters over the server's
// own uptime, so that a slow network changes nothing.

import { text } from "/page/dom.js";
import { count, duration } from "/page/figures.js";
import { LONGEST_S, offer, over, windowS } from "/page/window.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 3000;
/** Snapshots as old as the first number of seconds are kept once in the second: as the server keeps them, but for the last minute. */
const STEPS = [[660, 300], [65, 60], [0, 0]];
/** Without a sample for longer than this, the page asks for what it missed. */
const GAP_S = 5;
/** Lines run on between samples that are no further apart: the server keeps older ones at a distance of ten seconds. */
const BREAK_S = 15;

function showHeader(now, state) {
  text("state", state(now));
  document.documentElement.dataset.ready = now.ready;
  text("version", now.version || "–");
  text("uptime", duration(now.uptime_s));
  // A server without clients of its own has none to count.
  if ("connections" in now) text("connections", count(now.connections));
}

async function get(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

/**
 * Follows the server for as long as the page is open.
 *
 * - `sample(snapshot)` gives the counters that the plots need, in the form of `/api/history`.
 * - `lines` gives for each line of the plots a function of a sample, the one before it, and the seconds between: its value
 *   there, or null for none.
 * - `comparable(old, now)` tells whether `old` counts the same things as `now`, and no more of any.
 * - `show(now, before, rows, words)` is called with each new snapshot and when another window is chosen: with the snapshot at the window's
 *   beginning, null where there is none; the plots' columns: `time`, and one for each line; and what the window is called: "last 1 min".
 * - `state(snapshot)` says in a word how the server is.
 * - `gap(sample)` tells how many seconds lines may run on to that sample, where that is more than usual.
 * - `lost()` is called when the server does not answer any more.
 *
 * What is returned has `stop()`.
 */
export function follow({ sample, lines, comparable, show, state = (now) => now.ready ? "ready" : "not ready", gap = () => 0, lost = () => {} }) {
  /** The newest snapshots, oldest first. */
  let kept = [];
  const rows = { time: [] };
  Object.keys(lines).forEach((name) => { rows[name] = []; });
  /** The last sample that went into the plots. */
  let last = null;
  let shownUptime = null;

  /** Adds what happened between the last sample and this one to the plots. */
  function plotSample(now) {
    const before = last;
    if (before?.uptime_s === now.uptime_s) return;
    last = now;
    if (!before) return;
    const seconds = now.uptime_s - before.uptime_s;
    // A restart, or a gap in which nobody looked: the lines break.
    const broken = seconds <= 0 || seconds > Math.max(BREAK_S, gap(now));
    rows.time.push(now.unix_s);
    Object.entries(lines).forEach(([name, line]) => rows[name].push(broken ? null : line(now, before, seconds)));
    const old = rows.time.findIndex((time) => time >= now.unix_s - LONGEST_S);
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

  /** The snapshot at the window's beginning, or null when there is none yet. */
  function beginning() {
    const now = kept.at(-1);
    const age = (snapshot) => now.uptime_s - snapshot.uptime_s;
    const off = (snapshot) => Math.abs(age(snapshot) - windowS());
    return kept.filter((snapshot) => age(snapshot) >= 0.5)
      .reduce((best, snapshot) => best === null || off(snapshot) < off(best) ? snapshot : best, null);
  }

  /** Forgets of the snapshots, oldest first, those that no window needs. */
  function thin(now) {
    let last = -Infinity;
    kept = kept.filter((old) => {
      const age = now.uptime_s - old.uptime_s;
      const [, step] = STEPS.find(([from]) => age >= from) ?? [0, 0];
      const stays = age <= LONGEST_S + step && old.uptime_s - last >= step - 0.5;
      if (stays) last = old.uptime_s;
      return stays;
    });
  }

  function showNewest() {
    const now = kept.at(-1);
    if (!now) return;
    const before = beginning();
    show(now, before, rows, over(before ? now.uptime_s - before.uptime_s : NaN));
  }

  function take(now) {
    showHeader(now, state);
    // The server publishes at its own pace; a snapshot seen twice says nothing new.
    if (shownUptime === now.uptime_s) return;
    shownUptime = now.uptime_s;
    // Counters are compared only with older ones of the same server, which counts from 0 again when restarted.
    kept = kept.filter((old) => old.uptime_s < now.uptime_s && comparable(old, now));
    kept.push(now);
    thin(now);
    plotSample({ unix_s: now.unix_s, uptime_s: now.uptime_s, ...sample(now) });
    showNewest();
  }

  let isStopped = false;

  async function ask() {
    if (isStopped) return;
    try {
      const now = await get("/api/snapshot");
      if (!last || now.unix_s - last.unix_s > Math.max(GAP_S, gap(now))) refill(await get("/api/history"));
      if (isStopped) return;
      take(now);
      document.documentElement.dataset.state = "live";
    } catch (error) {
      if (isStopped) return;
      console.warn(error);
      document.documentElement.dataset.state = "disconnected";
      text("state", "disconnected");
      lost();
    }
    setTimeout(ask, PERIOD_MS);
  }

  offer(showNewest);
  ask();
  return { stop: () => { isStopped = true; } };
}

/** What a counter grew by in a second, for `follow`. */
export const rate = (field) => (now, before, seconds) => (now[field] - before[field]) / seconds;

/** How much of what one counter grew by another one did; null where it did not grow. */
export const share = (part, whole) => (now, before) => {
  const grown = now[whole] - before[whole];
  return grown > 0 ? (now[part] - before[part]) / grown : null;
};
