// The tenants: what each has and asks for, its miss-ratio curve with where it is and where it would best be, and what came
// of the last division.

import { $, cells, element, shape } from "/page/dom.js";
import { bytes, count, micros, percent } from "/page/figures.js";

/** Tenants that are drawn, those with most memory first. */
const SHOWN = 24;
/** The curves' drawing area, in units of its own. */
const [WIDTH, HEIGHT] = [240, 96];

const sum = (list, field) => list.reduce((total, one) => total + (field ? one[field] : one), 0);

/** The miss ratio of a curve at a size: linear between its points. */
function ratioAt(curve, size) {
  const right = curve.findIndex(([at]) => at >= size);
  if (right < 0) return curve.at(-1)[1];
  const [high, low] = [curve[right], right > 0 ? curve[right - 1] : [0, 1]];
  return low[1] + (high[1] - low[1]) * (size - low[0]) / Math.max(1, high[0] - low[0]);
}

/** A curve with two marks: what the tenant has, and what would be best. */
function drawing({ curve, bytes: best }, held) {
  const largest = curve.at(-1)[0];
  const x = (size) => Math.min(size / largest, 1) * (WIDTH - 8) + 4;
  const y = (ratio) => 4 + (1 - ratio) * (HEIGHT - 8);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const points = [[0, 1], ...curve].map(([size, ratio]) => `${x(size).toFixed(1)},${y(ratio).toFixed(1)}`);
  const at = [held, sum(best)].map((size) => ({ size, ratio: ratioAt(curve, size) }));
  svg.append(
    shape("line", { class: "floor", x1: 4, x2: WIDTH - 4, y1: y(0), y2: y(0) }),
    shape("polyline", { class: "curve", points: points.join(" ") }),
    shape("circle", { class: "best", cx: x(at[1].size), cy: y(at[1].ratio), r: 5 }),
    shape("circle", { class: "held", cx: x(at[0].size), cy: y(at[0].ratio), r: 3 }),
  );
  const title = shape("title", {});
  title.textContent = `with ${bytes(at[0].size)} ${percent(at[0].ratio)} are missed, with ${bytes(at[1].size)} ${percent(at[1].ratio)}`;
  svg.append(title);
  return svg;
}

/** A tenant's curve with its name and what it comes to. */
function figure(tenant, held) {
  const { advice } = tenant;
  const made = element("figure");
  const caption = element("figcaption");
  caption.append(element("b", "name", tenant.name));
  if (!advice?.curve.length) {
    caption.append(element("small", "", advice ? `too few keys seen: ${count(advice.keys_sampled)}` : "not looked at yet"));
    made.append(caption);
    return made;
  }
  const best = sum(advice.bytes);
  caption.append(element("small", "", `${bytes(held)} now, best ${bytes(best)}`));
  made.append(caption, drawing(advice, held));
  return made;
}

function rowOf(tenant, before, seconds, held) {
  const { advice, tiers } = tenant;
  const asked = before ? tenant.gets - before.gets : NaN;
  const share = sum(tiers, "share_bytes");
  const cost = advice ? `${micros(advice.miss_ns / 1000)}${advice.is_miss_known ? "" : " (assumed)"}` : "–";
  const evicted = before ? sum(tiers, "evictions") - sum(before.tiers, "evictions") : NaN;
  return [
    ["look-ups/s", count(asked / seconds)],
    ["hit ratio", percent(asked > 0 ? (tenant.hits - before.hits) / asked : NaN)],
    ["a miss costs", cost],
    ["K", tiers.map((tier) => tier.k || "–").join(" ")],
    ["memory", bytes(held)],
    ["share", bytes(share)],
    ["by tier", tiers.map((tier) => bytes(tier.bytes)).join(" + ")],
    ["evicted/s", count(evicted / seconds)],
  ];
}

function showDivision(division) {
  const note = $("division");
  if (!division) {
    note.textContent = "Memory is not divided while the store runs: shares are what was declared.";
    return;
  }
  const { objective, windows, verdict, divided_after: after } = division;
  const told = [`Objective ${objective}; window ${windows}: ${verdict}.`];
  if (after !== null) {
    const [was, will] = [division.predicted_before_ns, division.predicted_after_ns].map((ns) => micros(ns / 1000));
    const found = division.measured_after_ns === null ? "not measured yet" : micros(division.measured_after_ns / 1000);
    told.push(`Last divided after window ${after}: misses were to cost a look-up ${will} instead of ${was}; `
      + `they cost ${micros(division.measured_before_ns / 1000)} in the window before and ${found} since.`);
  }
  note.textContent = told.join(" ");
}

/** Shows the tenants of a snapshot; `before` is an older one for rates, or null. */
export function showTenants(now, before) {
  const { tenants, division } = now.engine;
  $("tenants-card").hidden = tenants.length === 0;
  if (tenants.length === 0) return;
  const held = (tenant) => sum(tenant.tiers, "bytes");
  const shown = [...tenants].sort((a, b) => held(b) - held(a)).slice(0, SHOWN);
  $("tenants-note").textContent = tenants.length > SHOWN ? `the ${SHOWN} largest of ${count(tenants.length)}` : "";
  const older = new Map((before?.engine.tenants ?? []).map((tenant) => [tenant.name, tenant]));
  const seconds = before ? now.uptime_s - before.uptime_s : NaN;
  showDivision(division);
  $("tenants").replaceChildren(...shown.map((tenant) => {
    const row = element("tr");
    const name = element("td");
    name.append(element("span", "name", tenant.name));
    row.append(name, ...cells(rowOf(tenant, older.get(tenant.name), seconds, held(tenant))));
    return row;
  }));
  // Curves change at the end of a window, and marks with what tenants have.
  $("curves").hidden = $("curves-note").hidden = !division;
  if (division) $("curves").replaceChildren(...shown.map((tenant) => figure(tenant, held(tenant))));
}
