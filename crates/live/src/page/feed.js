// Asks the server for a snapshot each second and hands it on. Rates are differences of counters over the server's
// own uptime, so that a slow network changes nothing.

import { WINDOW_S } from "/page/charts.js";
import { text } from "/page/dom.js";
import { count, duration } from "/page/figures.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 3000;
/** Seconds for which snapshots are kept: a minute, for histograms. */
const KEPT_S = 60;
/** Rates in tables and headlines are over so many seconds, to be calm enough to read. */
const CALM_S = 10;
/** Without a sample for longer than this, the page asks for what it missed. */
const GAP_S = 5;

function showHeader(now) {
  text("state", now.ready ? "ready" : "not ready");
  document.documentElement.dataset.ready = now.ready;
  text("version", now.version || "–");
  text("uptime", duration(now.uptime_s));
  text("connections", count(now.connections));
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
 * - `show(now, before, first, rows)` is called with each new snapshot: with one of some ten seconds ago and the oldest of the last
 *   minute, null where there is none, and the plots' columns: `time`, and one for each line.
 */
export function follow({ sample, lines, comparable, show }) {
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
    const broken = seconds <= 0 || seconds > GAP_S;
    rows.time.push(now.unix_s);
    Object.entries(lines).forEach(([name, line]) => rows[name].push(broken ? null : line(now, before, seconds)));
    const old = rows.time.findIndex((time) => time >= now.unix_s - WINDOW_S);
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

  function take(now) {
    showHeader(now);
    // The server publishes at its own pace; a snapshot seen twice says nothing new.
    if (shownUptime === now.uptime_s) return;
    shownUptime = now.uptime_s;
    // Counters are compared only with older ones of the same server, which counts from 0 again when restarted.
    kept = kept.filter((old) => old.uptime_s < now.uptime_s && now.uptime_s - old.uptime_s <= KEPT_S + 0.5 && comparable(old, now));
    kept.push(now);
    plotSample({ unix_s: now.unix_s, uptime_s: now.uptime_s, ...sample(now) });
    show(now, earlier(CALM_S), kept[0] === now ? null : kept[0], rows);
  }

  async function ask() {
    try {
      const now = await get("/api/snapshot");
      if (!last || now.unix_s - last.unix_s > GAP_S) refill(await get("/api/history"));
      take(now);
      document.documentElement.dataset.state = "live";
    } catch (error) {
      console.warn(error);
      document.documentElement.dataset.state = "disconnected";
      text("state", "disconnected");
    }
    setTimeout(ask, PERIOD_MS);
  }

  ask();
}

/** What a counter grew by in a second, for `follow`. */
export const rate = (field) => (now, before, seconds) => (now[field] - before[field]) / seconds;

/** How much of what one counter grew by another one did; null where it did not grow. */
export const share = (part, whole) => (now, before) => {
  const grown = now[whole] - before[whole];
  return grown > 0 ? (now[part] - before[part]) / grown : null;
};
