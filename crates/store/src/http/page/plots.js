// The store's own plots over time.

import { axis, countAxis, fromZero, overTime } from "/page/charts.js";
import { count, percent } from "/page/figures.js";

/** Requests per second with the share of hits, over time. */
export function throughput(data) {
  return overTime("throughput", [
    { label: "requests/s", color: "--throughput", scale: "rate", filled: true, text: count },
    { label: "fast-tier hit share", color: "--fast", scale: "share", width: 2, text: percent },
    { label: "hit ratio", color: "--third", scale: "share", width: 2, text: percent },
  ], () => [
    { ...countAxis(), scale: "rate" },
    axis({ scale: "share", side: 1, size: 44, grid: { show: false }, splits: [0, .25, .5, .75, 1],
      values: (plot, splits) => splits.map((v) => `${Math.round(v * 100)}%`) }),
  ], { rate: { range: fromZero }, share: { range: [0, 1.02] } }, data);
}

/** Promotions, demotions and evictions per second, over time. */
export function moves(data) {
  return overTime("moves", [
    { label: "promoted/s", color: "--fast", scale: "rate", text: count },
    { label: "demoted/s", color: "--slow", scale: "rate", text: count },
    { label: "evicted/s", color: "--fourth", scale: "rate", text: count },
  ], () => [{ ...countAxis(), scale: "rate" }], { rate: { range: fromZero } }, data);
}
