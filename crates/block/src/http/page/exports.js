// Tables: the exports, and the blocks of each size.

import { $, cells, element } from "/page/dom.js";
import { bytes, count, percent } from "/page/figures.js";

const COLORS = ["--fast", "--slow", "--third", "--fourth"];

/** A cell with a bar, filled to `share`, and words below it. */
function fill(share, color, words) {
  const cell = element("td", "fill");
  const meter = element("div", "meter");
  const bar = element("i");
  cell.style.setProperty("--tier", `var(${color})`);
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  meter.append(bar);
  cell.append(meter, element("small", "", words));
  return cell;
}

/** What the exports do, as differences from the older snapshot, or null. */
export function showExports(now, before) {
  const seconds = before ? now.uptime_s - before.uptime_s : NaN;
  $("shared-note").hidden = now.exports.filter((it) => it.share === 0).length < 2;
  $("exports").replaceChildren(...now.exports.map((it, n) => {
    const old = before?.exports[n];
    const grown = (field) => old ? it[field] - old[field] : NaN;
    const ratio = (hits, all) => percent(grown(all) > 0 ? grown(hits) / grown(all) : NaN);
    const rate = (field) => old ? `${bytes(Math.round(grown(field) / seconds))}/s` : "–";
    const name = element("td");
    name.append(element("span", "name", it.name || "(default)"), element("span", "mode", it.mode));
    const most = it.quota_bytes ?? now.cache.capacity_bytes;
    const of = it.quota_bytes === null ? "of all" : "of its quota,";
    const held = fill(it.share_held_bytes / most, COLORS[n % COLORS.length], `${bytes(it.share_held_bytes)} ${of} ${bytes(most)}`);
    const row = element("tr");
    row.append(name, held, ...cells([
      ["requests/s", count((grown("reads") + grown("writes")) / seconds)],
      ["read hits", ratio("read_hits", "reads")],
      ["write hits", ratio("write_hits", "writes")],
      ["from store", rate("core_read_bytes")],
      ["to store", rate("core_written_bytes")],
      ["dirty", bytes(it.dirty_bytes)],
      ["oldest", it.dirty_age_s === null ? "–" : `${it.dirty_age_s.toFixed(1)} s`],
      ["store whole", it.store_whole_s === null ? "–" : `${it.store_whole_s.toFixed(1)} s`],
      ["clients", count(it.clients)],
    ]));
    return row;
  }));
}

/** How what is held divides into blocks. */
export function showBlocks({ cache }) {
  $("blocks").replaceChildren(...cache.blocks.map(({ block_bytes: size, blocks }, n) => {
    const share = cache.held_bytes > 0 ? size * blocks / cache.held_bytes : 0;
    const name = element("td");
    name.append(element("span", "name", bytes(size).replace(/\.0+(?= )/, "")));
    const row = element("tr");
    row.append(name, fill(share, COLORS[n % COLORS.length], percent(share)), ...cells([
      ["blocks", count(blocks)], ["bytes", bytes(size * blocks)],
    ]));
    return row;
  }));
}
