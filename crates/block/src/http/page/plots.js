// The block cache's own plots over time.

import { axis, countAxis, fromZero, overTime } from "/page/charts.js";
import { bytes, count, percent } from "/page/figures.js";

const POWERS = Array.from({ length: 51 }, (_, power) => 2 ** power);

/** A size on an axis, where round numbers need no digits after the point: 64 KiB, 1.5 GiB. */
const round = (size) => bytes(size).replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");

/** The value axis on the left for bytes, or bytes a second. */
const bytesAxis = (unit = "") => axis({
  scale: "bytes", size: 76, incrs: POWERS,
  values: (plot, splits) => splits.map((size) => size === null ? "" : size === 0 ? "0" : `${round(size)}${unit}`),
});

/** From 0 to a little over the largest, and never empty. */
const bytesFromZero = (plot, min, max) => [0, Math.max(max * 1.08, 4096)];

const perSecond = (rate) => `${bytes(Math.round(rate))}/s`;
const size = (mean) => bytes(Math.round(mean));
const seconds = (age) => `${age.toFixed(1)} s`;

/** Hits of reads and of writes, and requests per second. */
export function hits(data) {
  return overTime("hits", [
    { label: "requests/s", color: "--throughput", scale: "rate", filled: true, text: count },
    { label: "read hits", color: "--fast", scale: "share", width: 2, text: percent },
    { label: "write hits", color: "--slow", scale: "share", width: 2, text: percent },
  ], () => [
    { ...countAxis(), scale: "rate" },
    axis({ scale: "share", side: 1, size: 44, grid: { show: false }, splits: [0, .25, .5, .75, 1],
      values: (plot, splits) => splits.map((v) => `${Math.round(v * 100)}%`) }),
  ], { rate: { range: fromZero }, share: { range: [0, 1.02] } }, data);
}

/** What is read from and written to the stores and the cache's device. */
export function volumes(data) {
  return overTime("volumes", [
    { label: "from store", color: "--fast", scale: "bytes", text: perSecond },
    { label: "to store", color: "--fourth", scale: "bytes", text: perSecond },
    { label: "from cache", color: "--slow", scale: "bytes", text: perSecond },
    { label: "to cache", color: "--third", scale: "bytes", text: perSecond },
  ], () => [bytesAxis("/s")], { bytes: { range: bytesFromZero } }, data);
}

/** Requests that missed, and the blocks that were made for them. */
export function sizes(data) {
  return overTime("sizes", [
    { label: "mean request", color: "--slow", scale: "bytes", width: 2, text: size },
    { label: "mean block", color: "--fast", scale: "bytes", width: 2, text: size },
  ], () => [bytesAxis()], { bytes: { range: bytesFromZero } }, data);
}

/** Dirty bytes, and for how long the oldest have been. */
export function dirt(data) {
  return overTime("dirt", [
    { label: "dirty", color: "--fourth", scale: "bytes", filled: true, text: size },
    { label: "oldest", color: "--warn", scale: "age", width: 2, text: seconds },
  ], () => [
    bytesAxis(),
    axis({ scale: "age", side: 1, size: 44, grid: { show: false }, values: (plot, splits) => splits.map((v) => `${v} s`) }),
  ], { bytes: { range: bytesFromZero }, age: { range: (plot, min, max) => [0, Math.max(max * 1.08, 10)] } }, data);
}

/** Memory that describes what is cached. While little is, it is a multiple of what it comes to, so the axis is logarithmic. */
export function metadata(data) {
  const range = (plot, min, max) => min > 0 ? [min / 2, max * 2] : [2 ** 10, 2 ** 30];
  return overTime("metadata", [
    { label: "per cached GiB", color: "--third", scale: "bytes", width: 2, text: size },
  ], () => [{ ...bytesAxis(), splits: (plot, at, min, max) => POWERS.filter((power) => power >= min && power <= max) }], { bytes: { distr: 3, log: 2, range } }, data);
}
