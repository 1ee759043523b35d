"use strict";
// Numbers as people read them.
const trimmed = (value, digits = 3) => String(Number(value.toPrecision(digits)));
const unit = (value, units) => {
  const [factor, name] = units.find(([factor]) => Math.abs(value) >= factor * (1 - 1e-9)) ?? units.at(-1);
  return [factor, name];
};
const BYTES = [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B"]];
const COUNTS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const inUnit = (value, units) => {
  if (!value) return "0";
  const [factor, name] = unit(value, units);
  return trimmed(value / factor) + name;
};
const bytes = (value) => inUnit(value, BYTES);
const short = (value) => (Math.abs(value) < 1 ? trimmed(value) : inUnit(value, COUNTS));
const count = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : trimmed(value, 4));
const percent = (share) => `${trimmed(share * 100)}%`;
const seconds = (value) => (value && value < 1 ? `${trimmed(value * 1e3)} ms` : `${trimmed(value, 4)} s`);
const hex = (value) => `0x${value.toString(16)}`;

// An axis: where values stand, and its ticks.
const axis = (from, to, isLog, label, step = "ten") => {
  const place = isLog
    ? (value) => Math.log(Math.max(value, from) / from) / Math.log(to / from)
    : (value) => (value - from) / (to - from || 1);
  const ticks = (wanted) => {
    if (isLog) {
      const decades = [];
      for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) {
        for (const digit of [1, 2, 5]) decades.push(digit * 10 ** power);
      }
      const inside = decades.filter((value) => value >= from * 0.999 && value <= to * 1.001);
      const tens = inside.filter((value) => Math.abs(Math.log10(value) % 1) < 1e-9);
      return inside.length <= wanted + 2 || tens.length < 2 ? inside : tens;
    }
    const factor = step === "bytes" ? unit(to - from, BYTES)[0] : 1;
    const rough = (to - from) / factor / wanted;
    const ten = 10 ** Math.floor(Math.log10(rough || 1));
    const wide = [1, 2, 5, 10].find((digit) => digit * ten >= rough * 0.999) * ten * factor;
    const inside = [];
    for (let value = Math.ceil(from / wide - 1e-9) * wide; value <= to * (1 + 1e-9) && inside.length < 60; value += wide) inside.push(value);
    return inside;
  };
  return { from, to, isLog, place, ticks, label };
};
