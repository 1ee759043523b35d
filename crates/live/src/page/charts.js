// The plots, drawn by uPlot. Each has a legend in the page itself, which shows the newest values or, under the
// cursor, those of that moment.

import { bound, micros, tick } from "/page/figures.js";
import { windowS } from "/page/window.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Fills the legend `id` with one entry for each series; returns a function that shows their values. */
function legend(id, series) {
  const list = document.getElementById(id);
  list.replaceChildren(...series.map(({ label, color }) => {
    const entry = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.style.setProperty("--series", `var(${color})`);
    entry.append(swatch, label, document.createElement("b"));
    return entry;
  }));
  const values = list.querySelectorAll("b");
  return (texts) => texts.forEach((text, n) => { if (values[n].textContent !== text) values[n].textContent = text; });
}

/** An axis in the page's colours. */
export function axis(options) {
  return {
    stroke: css("--soft"), font: "12px system-ui, sans-serif", size: 26,
    grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, ...options,
  };
}

/** The value axis on the left, for counts from 0 up. */
export const countAxis = () => axis({ size: 48, values: (plot, splits) => splits.map((v) => v === null ? "" : tick(v)) });

/** The time of day, with seconds where the window is short. */
function clock(unixS) {
  const text = new Date(unixS * 1000).toLocaleTimeString("en-GB");
  return windowS() < 300 ? text : text.slice(0, 5);
}

/** From 0 to a little over the largest value, and never empty. */
export const fromZero = (plot, min, max) => [0, Math.max(max * 1.08, 10)];

/**
 * A plot that is built anew when the colour scheme changes and keeps its box's size.
 * `build(width, height)` returns uPlot's options; `data()` its data.
 */
function chart(id, build, data) {
  const box = document.getElementById(id);
  let plot = null;
  const make = () => {
    plot?.destroy();
    plot = new uPlot(build(box.clientWidth, box.clientHeight), data(), box);
  };
  new ResizeObserver(() => {
    if (plot) plot.setSize({ width: box.clientWidth, height: box.clientHeight });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", make);
  make();
  return { update: () => plot.setData(data()), plot: () => plot };
}

/** A plot over time. `series` name the columns of `data()` after the first, the time. */
export function overTime(id, series, axes, scales, data) {
  const show = legend(`${id}-legend`, series);
  const texts = (row) => series.map((s, n) => {
    const value = row < 0 ? null : data()[n + 1][row];
    return value === null || value === undefined ? "–" : s.text(value);
  });
  const newest = () => show(texts(data()[0].length - 1));
  const build = (width, height) => ({
    width, height,
    legend: { show: false },
    padding: [8, 20, 0, 0],
    cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 7 }, y: false },
    scales: {
      x: { time: true, range: () => { const end = data()[0].at(-1) ?? Date.now() / 1000; return [end - windowS(), end]; } },
      ...scales,
    },
    axes: [axis({ space: () => windowS() < 300 ? 80 : 60, incrs: [10, 15, 30, 60, 120, 300, 600, 900], values: (plot, splits) => splits.map(clock) }), ...axes()],
    series: [{}, ...series.map((s) => ({
      stroke: css(s.color), width: s.width ?? 1.5, scale: s.scale,
      fill: s.filled ? `${css(s.color)}22` : undefined,
      points: { show: false }, spanGaps: false,
    }))],
    hooks: { setCursor: [(plot) => plot.cursor.idx === null || plot.cursor.left < 0 ? newest() : show(texts(plot.cursor.idx))] },
  });
  const made = chart(id, build, data);
  return { update: () => { made.update(); if ((made.plot().cursor.left ?? -1) < 0) newest(); } };
}

/** Bars of a histogram at least. */
const BARS_MIN = 10;

/**
 * The bars of a histogram since an older one of the same: `{ bounds, shares }`. Both are `{ buckets: [{ upper_us, count }], count }`, where
 * counts are of all up to the bound; the older one may be undefined. The axis spans what held all but the slowest ten-thousandth of requests
 * since the start, so that it stays where it is and one odd request does not squeeze the rest.
 */
function bars({ buckets, count: total }, before) {
  const within = (histogram, n) => histogram.buckets[n].count - (n > 0 ? histogram.buckets[n - 1].count : 0);
  const fastest = buckets.findIndex((bucket) => bucket.count > total * 1e-4);
  const slowest = buckets.findIndex((bucket) => bucket.count >= total * 0.9999);
  const to = Math.min(buckets.length, Math.max(slowest + 2, fastest + BARS_MIN));
  const from = Math.max(0, Math.min(fastest - 1, to - BARS_MIN));
  const requests = total - (before?.count ?? 0);
  const counts = buckets.map((_, n) => within({ buckets }, n) - (before ? within(before, n) : 0));
  return {
    bounds: buckets.slice(from, to).map((bucket) => bucket.upper_us),
    shares: counts.slice(from, to).map((n) => requests > 0 ? n / requests : 0),
  };
}

/** The time that this share of the requests between two histograms did not exceed, as near as buckets tell; NaN without requests. */
function quantile(now, before, share) {
  const total = now.count - (before?.count ?? 0);
  const upTo = (n) => n < 0 ? 0 : now.buckets[n].count - (before?.buckets[n].count ?? 0);
  const n = total > 0 ? now.buckets.findIndex((_, n) => upTo(n) >= share * total) : -1;
  if (n < 0) return NaN;
  const [from, to] = [n > 0 ? now.buckets[n - 1].upper_us : now.buckets[0].upper_us / 2, now.buckets[n].upper_us];
  // Between two bounds times are taken to lie evenly on the axis, which is logarithmic.
  return from * (to / from) ** ((share * total - upTo(n - 1)) / (upTo(n) - upTo(n - 1)));
}

/** All that `latency` shows of the requests between two histograms. */
export function times(now, before) {
  const [p50, p99, p999] = [0.5, 0.99, 0.999].map((share) => quantile(now, before, share));
  return { ...bars(now, before), p50, p99, p999 };
}

/**
 * A latency histogram in the box `id`. `data()` gives `{ bounds, shares, p50, p99, p999 }`: ascending upper bounds in µs, the
 * share of requests in each bucket, and percentiles in µs.
 */
export function latency(id, data) {
  const show = legend(`${id}-legend`, [
    { label: "p50", color: "--third" }, { label: "p99", color: "--warn" }, { label: "p99.9", color: "--bad" },
  ]);
  /** Where a time stands on the axis: bucket n spans from n - 1/2 to n + 1/2. */
  const place = (us, bounds) => {
    const n = bounds.findIndex((upper) => us <= upper);
    if (n < 0) return bounds.length - 0.5;
    const lower = n > 0 ? bounds[n - 1] : bounds[0] / 2;
    return n - 0.5 + Math.max(0, Math.log(us / lower) / Math.log(bounds[n] / lower));
  };
  const drawMarks = (plot) => {
    const { bounds, p50, p99, p999 } = data();
    const { ctx, bbox } = plot;
    const dpr = devicePixelRatio;
    [[p50, "--third"], [p99, "--warn"], [p999, "--bad"]].forEach(([us, color]) => {
      if (!(us > 0) || !bounds.length) return;
      const x = plot.valToPos(place(us, bounds), "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.save();
      ctx.strokeStyle = css(color);
      ctx.lineWidth = 2 * dpr;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    });
  };
  const columns = () => [data().bounds.map((_, n) => n), data().shares];
  const made = chart(id, (width, height) => ({
    width, height,
    legend: { show: false },
    padding: [8, 24, 0, 0],
    cursor: { show: false },
    scales: {
      x: { time: false, range: () => [-0.5, Math.max(data().bounds.length, 1) - 0.5] },
      y: { range: (plot, min, max) => [0, Math.max(max * 1.08, 0.1)] },
    },
    axes: [
      axis({
        grid: { show: false },
        // Upper bounds stand at the right edges of their bars.
        splits: () => data().bounds.map((_, n) => n + 0.5).filter((_, n) => n % Math.ceil(data().bounds.length / Math.floor(width / 64)) === 0),
        values: (plot, splits) => splits.map((x) => bound(data().bounds[Math.round(x - 0.5)])),
      }),
      axis({ size: 48, values: (plot, splits) => splits.map((v) => `${+(v * 100).toFixed(1)}%`) }),
    ],
    series: [{}, {
      fill: `${css("--slow")}99`, stroke: "transparent", width: 0, points: { show: false },
      paths: uPlot.paths.bars({ size: [0.86, 60], radius: 0.12 }),
    }],
    hooks: { draw: [drawMarks] },
  }), columns);
  return { update: () => { made.update(); show([data().p50, data().p99, data().p999].map(micros)); } };
}
