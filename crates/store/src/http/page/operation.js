// What an operator looks after: memory, snapshots, flash, commands and their errors, slow requests, clients.

import { $, cells, element } from "/page/dom.js";
import { bytes, count, duration, micros, percent } from "/page/figures.js";

/** Commands that are shown, those called most first. */
const COMMANDS_SHOWN = 12;

const sum = (list, field) => list.reduce((total, one) => total + one[field], 0);

/** A row whose first cell is a name. */
function row(name, pairs) {
  const made = element("tr");
  const first = element("td");
  first.append(element("span", "name", name));
  made.append(first, ...cells(pairs));
  return made;
}

/** What has failed or soon will, in words; empty where all is well. */
export function alerts(now) {
  const { flash } = now.engine;
  const told = [];
  if (flash?.broken) told.push("The flash device has failed and is no longer used. What was on it is gone from this store.");
  else if (flash?.io_errors > 0) told.push(`The flash device has failed ${count(flash.io_errors)} reads or writes since the start, the last with: ${flash.last_error}.`);
  if (now.engine.lost > 0) told.push(`${count(now.engine.lost)} items were lost with a part of their tier's file or device since the start: the log says more.`);
  if (now.engine.missing_bytes > 0) told.push(`The tiers have ${bytes(now.engine.missing_bytes)} less than configured: a file or device cannot hold what was lost.`);
  if (now.snapshots?.failed) told.push("The last snapshot could not be written: the log says why.");
  return told;
}

function snapshotWords({ written, age_s, failed, running_s }) {
  if (running_s !== null) return `being written for ${duration(running_s)}`;
  const last = written > 0 ? `written ${duration(age_s)} ago` : "none since the start";
  return failed ? `${last}; the last attempt failed` : last;
}

function flashWords(flash) {
  if (flash.broken) return "failed, no longer used";
  return flash.recoverable ? `${count(flash.recoverable_items)} items survive a crash` : "lost at a restart";
}

/** Where memory goes, and what would survive. */
export function showHealth(now) {
  const { engine, server, snapshots } = now;
  const { flash } = engine;
  const pairs = [
    ["tiers", `${bytes(sum(engine.tiers, "used_bytes"))} of ${bytes(sum(engine.tiers, "capacity_bytes"))}`],
    ["index and tables", bytes(engine.metadata_bytes)],
    ["pinned by replies", bytes(engine.pinned_bytes)],
    ["unfinished requests", bytes(server.request_buffer_bytes)],
    ["unread replies", bytes(server.reply_buffer_bytes)],
    ["snapshot", snapshots ? snapshotWords(snapshots) : "no file configured"],
  ];
  if (snapshots) pairs.push(["writes since then", count(snapshots.changes)]);
  if (flash) {
    const years = flash.lifetime_years;
    pairs.push(["flash", flashWords(flash)], ["flash errors", count(flash.io_errors)],
      ["written for each byte demoted", flash.write_amplification > 0 ? flash.write_amplification.toFixed(2) : "–"],
      ["life of the device", years === null ? "–" : years >= 100 ? "over 100 years" : `${years.toFixed(1)} years`]);
  }
  $("health").replaceChildren(...pairs.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    return pair;
  }));
}

/** Commands that were called in the window, and errors by code since the start. */
export function showCommands(now, before) {
  const seconds = before ? now.uptime_s - before.uptime_s : NaN;
  const grown = (name, field) => now.activity.commands[name][field] - (before?.activity.commands[name]?.[field] ?? 0);
  const any = (name) => grown(name, "calls") + grown(name, "rejected");
  const called = Object.keys(now.activity.commands).filter((name) => any(name) > 0).sort((a, b) => any(b) - any(a));
  $("commands-card").hidden = called.length === 0 && Object.keys(now.activity.errors).length === 0;
  $("commands").replaceChildren(...called.slice(0, COMMANDS_SHOWN).map((name) => {
    const calls = grown(name, "calls");
    const failed = grown(name, "failed");
    return row(name, [
      ["calls/s", count(before ? calls / seconds : NaN)],
      ["mean time", micros(calls > 0 ? grown(name, "usec") / calls : NaN)],
      ["errors", failed > 0 ? `${count(failed)} (${percent(failed / Math.max(calls, 1))})` : "0"],
      ["refused", count(grown(name, "rejected"))],
    ]);
  }));
  const errors = Object.entries(now.activity.errors).map(([code, times]) => `${code} ${count(times)}`);
  $("errors").hidden = errors.length === 0;
  $("errors").textContent = `Error replies since the start: ${errors.join(", ")}.`;
}

/** The newest slow requests. */
export function showSlow({ activity }) {
  $("slow-card").hidden = activity.slow_requests.length === 0;
  $("slow").replaceChildren(...activity.slow_requests.map((slow) => row(slow.command, [
    ["took", micros(slow.us)], ["ago", duration(slow.age_s)], ["client", slow.address],
  ])));
}

/** The clients that hold most. */
export function showClients({ activity, server, connections }) {
  const { clients } = activity;
  $("clients-card").hidden = clients.length === 0;
  const told = [];
  if (clients.length < connections) told.push(`the ${clients.length} of ${count(connections)} that hold most`);
  if (server.clients_blocked_on_output > 0) told.push(`${count(server.clients_blocked_on_output)} do not read their replies`);
  if (server.clients_dropped > 0) told.push(`${count(server.clients_dropped)} dropped since the start`);
  $("clients-note").textContent = told.join("; ");
  $("clients").replaceChildren(...clients.map((client) => row(client.name || client.address, [
    ["last command", client.command === "NULL" ? "none" : client.command], ["idle", duration(client.idle_s)],
    ["unfinished request", bytes(client.request_bytes)], ["unread replies", bytes(client.reply_bytes)],
  ])));
}
