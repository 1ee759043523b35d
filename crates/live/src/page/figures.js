// Numbers as people read them.

const SI = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BINARY = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

/** Three significant digits, however large; no digits after the point from 100 on. */
function digits(value) {
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2);
}

/** A count or a rate: 950, 1.23k, 45.6M. */
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const unit = SI.find(([size]) => Math.abs(value) >= size * 0.9995);
  if (unit) return digits(value / unit[0]) + unit[1];
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

/** A count on an axis, where round numbers need no digits after the point: 80k, 1.5M. */
export function tick(value) {
  const unit = SI.find(([size]) => value >= size);
  return unit ? `${+(value / unit[0]).toFixed(2)}${unit[1]}` : `${+value.toFixed(2)}`;
}

/** Bytes in binary units: 1.50 GiB. */
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  const unit = BINARY.find(([size]) => value >= size * 0.9995);
  return unit ? `${digits(value / unit[0])} ${unit[1]}` : `${value} B`;
}

/** A share from 0 to 1 as a percentage. */
export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "–";
}

/** A time given in microseconds: 950 ns, 12.3 µs, 4.56 ms. */
export function micros(us) {
  if (!Number.isFinite(us) || us <= 0) return "–";
  if (us < 1) return `${Math.round(us * 1000)} ns`;
  if (us < 1000) return `${digits(us)} µs`;
  if (us < 1e6) return `${digits(us / 1000)} ms`;
  return `${digits(us / 1e6)} s`;
}

/** A bound of the latency axis, short: 512 ns, 8 µs, 2 ms. */
export function bound(us) {
  if (us < 1) return `${Math.round(us * 1000)} ns`;
  if (us < 1000) return `${Math.round(us)} µs`;
  return us < 1e6 ? `${Math.round(us / 1000)} ms` : `${Math.round(us / 1e6)} s`;
}

/** A time that has passed: 42 s, 3 min 20 s, 10 min, 5 h 12 min, 3 d 4 h. */
export function duration(seconds) {
  const s = Math.floor(seconds);
  const both = (large, small) => small.startsWith("0 ") ? large : `${large} ${small}`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return both(`${Math.floor(s / 60)} min`, `${s % 60} s`);
  if (s < 86400) return both(`${Math.floor(s / 3600)} h`, `${Math.floor(s / 60) % 60} min`);
  return both(`${Math.floor(s / 86400)} d`, `${Math.floor(s / 3600) % 24} h`);
}
