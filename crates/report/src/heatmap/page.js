"use strict";
// All views, drawn from numbers: those in a page, or newer ones again and again. What is returned takes newer ones.
const heatmap = async (data, view = "map") => {
  const $ = (id) => document.getElementById(id);
  let { regions, slices, noun } = data;
  const canvas = $("picture");
  const tip = $("tip");
  if (!regions.length) {
    $("stage").hidden = true;
    return async () => {};
  }

  const raw = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const unpack = async (text) => {
    const stream = new Blob([raw(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };
  const { dark, context, palette, size, write, rule, line, image, bar, behindEnd, frame } = painter(canvas, data);
  const maps = { accesses: raw(data.maps.accesses), remote: raw(data.maps.remote) };

  const state = {
    region: 0, view, show: data.show, scale: data.scale, columns: data.columns ? "own" : "0",
    own: data.columns || 64, slice: -1, from: 0, to: 0, at: -1,
  };
  let region;
  let layout = [];
  let select = null;

  // A region's numbers, unpacked when it is first looked at.
  const unpacked = async (one) => {
    if (!one.ready) {
      for (const name of Object.keys(one.totals)) one.totals[name] = new Float32Array(await unpack(one.totals[name]));
      one.codes = new Uint8Array(await unpack(one.codes));
      if (one.remote) one.remote = new Uint8Array(await unpack(one.remote));
      one.ready = true;
    }
    return one;
  };
  const open = async (number) => {
    region = await unpacked(regions[number]);
    Object.assign(state, { region: number, from: 0, to: region.granules, at: -1 });
  };
  // What waits for numbers to be unpacked happens one after the other.
  let turn = Promise.resolve();
  const inTurn = (act) => (turn = turn.then(act));

  // Seconds from a granule's last access to the end of a slice (of all of them if it is -1): NaN if it was not accessed until then.
  const ageAt = (granule, slice) => {
    const last = slice < 0 ? slices.length - 1 : slice;
    for (let at = last; at >= 0; at--) {
      if (region.codes[at * region.granules + granule]) return slices[last][2] - slices[at][2];
    }
    return NaN;
  };
  const isShown = (what) => state.show === what && state.view !== "path";
  // What is shown of a granule: NaN if it was never accessed.
  const valueAt = (granule, slice) => {
    if (isShown("idle")) return ageAt(granule, slice);
    const at = slice * region.granules + granule;
    if (state.show === "remote") {
      if (slice >= 0) return region.remote && region.remote[at] ? (region.remote[at] - 1) / 254 : NaN;
      const part = (name) => region.totals[name]?.[granule] ?? 0;
      const known = part("remote") + part("local") + part("cached");
      return known > 0 ? part("remote") / known : NaN;
    }
    const value = slice < 0 ? region.totals.accesses[granule] : region.levels[region.codes[at]];
    return value > 0 ? value : NaN;
  };
  const map = () => maps[isShown("remote") || isShown("idle") ? "remote" : "accesses"];
  const values = (slice) => {
    const all = new Float32Array(state.to - state.from);
    for (let at = 0; at < all.length; at++) all[at] = valueAt(state.from + at, slice);
    return all;
  };

  const countAxis = (all) => {
    if (isShown("remote")) return axis(0, 1, false, percent);
    // One scale for all slices.
    if (isShown("idle")) return axis(0, slices.at(-1)[2] - slices[0][2], false, seconds);
    const sorted = Float32Array.from(all.filter((value) => value > 0)).sort();
    if (!sorted.length) return axis(0, 1, false, short);
    const [least, most] = [sorted[0], sorted.at(-1)];
    const low = sorted[Math.floor(sorted.length / 50)];
    const isLog = state.scale === "log" ? most > least : state.scale === "auto" && most > 20 * low;
    return isLog ? axis(Math.max(least, most / 1e6), most, true, short) : axis(0, most, false, short);
  };

  const columnsOf = (granules) => {
    const square = Math.ceil(Math.sqrt(granules));
    const wanted = { period: region.peaks[0]?.[0] ?? square, own: state.own }[state.columns] ?? square;
    return Math.max(1, Math.min(granules, wanted));
  };
  // Granules on a grid of cells, the highest where several share one.
  const grid = (all, columns, width, height) => {
    const rows = Math.max(1, Math.ceil(all.length / columns));
    const ratio = pixels();
    const [acrossBy, downBy] = [Math.ceil(columns / (width * ratio)), Math.ceil(rows / (height * ratio))];
    const [cells, lines] = [Math.ceil(columns / acrossBy), Math.ceil(rows / downBy)];
    const highest = new Float32Array(cells * lines).fill(NaN);
    all.forEach((value, at) => {
      const cell = Math.floor(Math.floor(at / columns) / downBy) * cells + Math.floor((at % columns) / acrossBy);
      if (!(highest[cell] >= value)) highest[cell] = Number.isNaN(value) ? highest[cell] : value;
    });
    let [wide, high] = [Math.floor((width * ratio) / cells) / ratio, Math.floor((height * ratio) / lines) / ratio];
    // Whole pixels, unless that would waste a fifth of the room.
    if (wide * cells < 0.8 * width) wide = width / cells;
    if (high * lines < 0.8 * height) high = height / lines;
    if (Math.abs(columns - rows) <= 1) wide = high = Math.min(wide, high);
    wide = Math.min(wide, 4 * high, 60);
    high = Math.min(high, 12 * wide, 60);
    const end = downBy === 1 ? Math.floor((all.length - 1) / columns) * cells + Math.floor(((all.length - 1) % columns) / acrossBy) + 1 : Infinity;
    return { columns, rows, cells, lines, highest, end, acrossBy, downBy, width: cells * wide, height: lines * high };
  };
  const names = { remote: "share remote", idle: `time since the|last ${data.nounOfOne}` };
  const measure = (more = "") => (isShown(state.show) && names[state.show]) || `${noun}|per granule${more}`;
  const logMark = (scale) => (scale.isLog ? "|log scale" : "");

  const drawMap = () => {
    const all = values(state.slice);
    const columns = columnsOf(all.length);
    const width = canvas.clientWidth;
    const room = Math.max(160, width - (width < 640 ? 64 : 84) - 148);
    const fit = grid(all, columns, room, Math.min(760, Math.max(300, room)));
    // While slices play, one scale of colours holds for all of them.
    const scale = countAxis(state.slice < 0 ? all : region.levelsUsed ?? (region.levelsUsed = Float32Array.from(region.levels)));
    size(Math.max(fit.height, 240) + 64);
    const colours = palette();
    const left = width < 640 ? 64 : 84;
    const top = 24;
    const rowBytes = columns * region.granuleBytes;
    write("offset of the row", 0, 10, colours.text);
    image(map(), fit.highest, fit.cells, fit.lines, scale, fit.end, left, top, fit.width, fit.height);
    const start = (region.firstGranule + state.from) * region.granuleBytes;
    // Some rows, each with its own offset; the last line may hang over.
    const rows = fit.lines * fit.downBy;
    for (const row of axis(0, rows, false, count).ticks(fit.height / 60)) {
      if (!Number.isInteger(row) || row >= rows) continue;
      const at = top + (fit.height * row) / rows;
      rule(left - 5, at, left, at, colours.line);
      write(bytes(start + row * rowBytes), left - 8, at + 4, colours.soft, "right");
    }
    // Where the map is low, what stands below it goes below the bar as well.
    const below = left + fit.width < 300 ? 206 : 0;
    const across = axis(0, rowBytes, false, bytes, "bytes");
    for (const value of across.ticks(fit.width / 110)) {
      const at = left + fit.width * across.place(value);
      rule(at, top + fit.height, at, top + fit.height + 5, colours.line);
      write(bytes(value), at, top + fit.height + 18, colours.soft, "center");
    }
    write(`offset within the row of ${count(columns)} granules = ${bytes(rowBytes)}`, left, top + Math.max(fit.height, below) + 36, colours.text);
    bar(map(), scale, measure() + logMark(scale), left + fit.width + 24, top, Math.min(420, Math.max(fit.height, 216)), behindEnd([fit]));
    layout = [{ kind: "map", left, top, fit, slice: state.slice, from: state.from }];
  };
  const drawSlices = () => {
    const width = canvas.clientWidth - 136;
    const perRow = Math.max(1, Math.min(slices.length, Math.floor(width / 150)));
    const each = Math.min(360, width / perRow - 14);
    // Some hundred small maps are as many as one can look at.
    const every = Math.ceil(slices.length / 120);
    const chosen = slices.map((_, at) => at).filter((at) => at % every === 0);
    const columns = columnsOf(state.to - state.from);
    const fits = chosen.map((slice) => grid(values(slice), columns, each, each));
    const high = Math.max(...fits.map((fit) => fit.height)) + 34;
    const sample = [];
    fits.forEach((fit) => fit.highest.forEach((value) => value > 0 && sample.push(value)));
    const scale = countAxis(Float32Array.from(sample));
    size(Math.max(high * Math.ceil(chosen.length / perRow), 260) + 6);
    const colours = palette();
    layout = fits.map((fit, number) => {
      const [left, top] = [1 + (number % perRow) * (each + 14), 18 + Math.floor(number / perRow) * high];
      write(`${slices[chosen[number]][0]}`, left, top - 5, colours.text, "left", true);
      const name = slices[chosen[number]][3];
      if (context.measureText(name).width < fit.width - 36) write(name, left + fit.width, top - 5, colours.soft, "right");
      image(map(), fit.highest, fit.cells, fit.lines, scale, fit.end, left, top, fit.width, fit.height);
      return { kind: "map", left, top, fit, slice: chosen[number], from: state.from };
    });
    bar(map(), scale, measure("|and slice") + logMark(scale), width + 12, 12, 320, behindEnd(fits));
    if (every > 1) $("hint").textContent = `Every ${every}th slice is shown. ${$("hint").textContent}`;
  };
  const plotArea = (height, right = 20) => [72, 30, canvas.clientWidth - 72 - right, height];
  const drawScatter = () => {
    const all = values(state.slice);
    size(480);
    const area = plotArea(390);
    const y = countAxis(all);
    const start = (region.firstGranule + state.from) * region.granuleBytes;
    const x = axis(start, start + all.length * region.granuleBytes, false, bytes, "bytes");
    frame(x, y, area, ["offset in the region", measure().replace("|", " ") + logMark(y).replace("|", ", ")]);
    context.fillStyle = palette().first;
    context.globalAlpha = 0.6;
    const wide = all.length > 5000 ? 2 : 4;
    all.forEach((value, at) => {
      if (Number.isNaN(value)) return;
      const [px, py] = [area[0] + (area[2] * (at + 0.5)) / all.length, area[1] + area[3] * (1 - y.place(value))];
      context.fillRect(px - wide / 2, py - wide / 2, wide, wide);
    });
    context.globalAlpha = 1;
    layout = [{ kind: "scatter", area, count: all.length, from: state.from, slice: state.slice }];
  };
  const drawAutocorrelation = () => {
    size(480);
    const area = plotArea(390);
    const curve = region.autocorrelation;
    const last = Math.max(1, curve.length - 1);
    const y = axis(Math.floor(Math.min(0, ...curve) * 5) / 5, 1.15, false, (value) => trimmed(value));
    const x = axis(0, last, false, count);
    frame(x, y, area, ["lag in granules", "autocorrelation"]);
    const place = (lag, value) => [area[0] + area[2] * x.place(lag), area[1] + area[3] * (1 - y.place(value))];
    const colours = palette();
    rule(...place(0, 0), ...place(last, 0), colours.line);
    line(curve.map((value, lag) => place(lag, value)), colours.first, 1.5);
    const taken = [];
    for (const [lag, height, name] of region.peaks) {
      if (lag > last || taken.length > 4) continue;
      const [px, py] = place(lag, height);
      const text = taken.length ? bytes(lag * region.granuleBytes) : name;
      const wide = context.measureText(text).width + 12;
      const left = Math.min(px + 6, area[0] + area[2] - wide);
      if (taken.some(([from, to, at]) => left < to && left + wide > from && Math.abs(py - at) < 16)) continue;
      context.fillStyle = colours.second;
      context.beginPath();
      context.arc(px, py, 3.5, 0, 7);
      context.fill();
      write(text, left, py - 8, colours.second, "left", !taken.length);
      taken.push([left, left + wide, py]);
    }
    layout = [{ kind: "lags", area, last }];
  };
  const drawPath = () => {
    const width = canvas.clientWidth;
    const left = width < 640 ? 60 : 72;
    const room = Math.max(96, width - left - 140);
    const [acrossBy, downBy] = [Math.ceil(slices.length / (room * pixels())), Math.ceil(region.granules / 420)];
    const [columns, rows] = [Math.ceil(slices.length / acrossBy), Math.ceil(region.granules / downBy)];
    const cells = new Float32Array(columns * rows);
    for (let slice = 0; slice < slices.length; slice++) {
      for (let granule = 0; granule < region.granules; granule++) {
        const value = region.levels[region.codes[slice * region.granules + granule]];
        cells[Math.floor(granule / downBy) * columns + Math.floor(slice / acrossBy)] += value / (acrossBy * downBy);
      }
    }
    cells.forEach((value, at) => value > 0 || (cells[at] = NaN));
    size(520);
    const area = [left, 30, room, 430];
    const scale = countAxis(cells);
    image(map(), cells, columns, rows, scale, Infinity, ...area);
    const start = region.firstGranule * region.granuleBytes;
    const y = axis(start, start + rows * downBy * region.granuleBytes, false, bytes, "bytes");
    const x = axis(slices[0][1], slices.at(-1)[2], false, seconds);
    frame(x, y, area, ["time", "offset in the region, from top to bottom"], false, true);
    const place = (slice, granule) => [
      area[0] + (area[2] * (slice + 0.5)) / (columns * acrossBy),
      area[1] + (area[3] * Math.min(region.granules, Math.max(0, granule))) / (rows * downBy),
    ];
    const colours = palette();
    for (const [shift, wide] of [[-1, 0.75], [1, 0.75], [0, 2.5]]) {
      // Where it starts again at the region's other end there is no way between.
      const isJump = (at) => at > 0 && region.path_[at - 1] && Math.abs(region.path_[at - 1][0] - region.path_[at][0]) > region.granules / 2;
      line(region.path_.flatMap((spot, at) => (spot ? [...(isJump(at) ? [null] : []), place(at, spot[0] + shift * spot[1])] : [null])), colours.over, wide);
    }
    bar(map(), scale, measure("|and slice") + logMark(scale), area[0] + room + 20, area[1], 340, [
      { width: 2.5, name: "hotspot" },
      { width: 0.75, name: "its reach" },
    ]);
    layout = [{ kind: "path", area, across: columns * acrossBy, down: rows * downBy }];
  };
  const drawWorkingSet = () => {
    size(480);
    const area = plotArea(390, 120);
    const [each, curve] = [region.touched, region.grown];
    const most = Math.max(1, curve.at(-1));
    const y = axis(0, most * 1.05, false, bytes, "bytes");
    const x = axis(slices[0][1], slices.at(-1)[2], false, seconds);
    frame(x, y, area, ["time", "bytes touched"]);
    const colours = palette();
    const at = (slice) => area[0] + (area[2] * slice) / slices.length;
    const high = (value) => area[1] + area[3] * (1 - y.place(value));
    context.fillStyle = colours.first;
    each.forEach((value, slice) => {
      const wide = at(slice + 1) - at(slice);
      context.fillRect(at(slice), high(value), Math.max(0.5, wide - (wide > 4 ? 1 : 0)), area[1] + area[3] - high(value));
    });
    line([[area[0], high(0)], ...curve.map((value, slice) => [at(slice + 1), high(value)])], colours.second, 2.5);
    const right = area[0] + area[2] + 8;
    write("since the start", right, high(most) + 4, colours.second, "left", true);
    write("in each slice", right, Math.max(high(most) + 40, high(each.at(-1))) + 4, colours.first, "left", true);
    layout = [{ kind: "slices", area }];
  };
  const views = {
    map: [drawMap, "Drag over rows to zoom in. The arrow keys go from granule to granule."],
    slices: [drawSlices, "A map for each slice, on one scale of colours. Click on one to see it large."],
    scatter: [drawScatter, "A dot is a granule. Drag over a stretch to zoom in."],
    autocorrelation: [drawAutocorrelation, "How like the accesses are to themselves so many granules further on, over all slices."],
    path: [drawPath, "The hotspot is the middle of what a slice accesses more than others do; its reach is the standard deviation."],
    wss: [drawWorkingSet, "Of a touched granule those bytes count that were in memory."],
  };

  const draw = () => {
    hide();
    $("hint").textContent = views[state.view][1];
    $("name").textContent = region.name;
    const slice = slices[state.slice];
    $("which").textContent = slice ? `slice ${slice[0]}, ${slice[3]}` : `all ${count(slices.length)} slices`;
    const zoomed = state.to - state.from < region.granules;
    $("zoomout").hidden = !zoomed;
    const window = zoomed ? `granules ${count(state.from)} to ${count(state.to - 1)} of ${count(region.granules)}` : `${count(region.granules)} granules`;
    const peak = region.peaks[0] ? ` Strongest ${region.peaks[0][2]}.` : " No period stands out.";
    const parts = isShown("idle") ? "parts of it may have been idle for longer" : "which parts of it are hot is not known";
    const unknown = region.unknown ? ` It was looked at as a whole: ${parts}.` : "";
    const near = state.slice >= 0 && !region.exact ? " Values of single slices are rounded to 2%." : "";
    $("remark").textContent = `${bytes(region.bytes)}, ${region.kind}; ${window} of ${bytes(region.granuleBytes)}; ${data.what}.${peak}${near}${unknown}`;
    document.querySelectorAll("#views button").forEach((button) => button.setAttribute("aria-pressed", button.dataset.view === state.view));
    document.querySelectorAll("#regions button").forEach((button) => {
      button.closest("tr").toggleAttribute("aria-current", Number(button.dataset.region) === state.region);
    });
    document.querySelectorAll("#settings [data-for]").forEach((label) => (label.hidden = !label.dataset.for.split(" ").includes(state.view)));
    $("slice").closest("label").hidden ||= slices.length < 2;
    $("own").hidden = state.columns !== "own";
    views[state.view][0]();
    canvas.setAttribute("aria-label", `${region.name}: ${state.view}, ${$("which").textContent}`);
  };

  // Values under the pointer.
  const hide = () => (tip.hidden = true);
  const node = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const row = (name, text) => {
    const span = document.createElement("span");
    span.append(name, node("em", text));
    return span;
  };
  const show = (lines, x, y) => {
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const beside = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(4, beside)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - box.height - 4))}px`;
  };
  const aboutGranule = (granule, slice) => {
    const number = region.firstGranule + granule;
    const offset = number * region.granuleBytes;
    const lines = [node("b", region.name), row("granule", count(number)), row("offset", `${bytes(offset)} (${hex(offset)})`)];
    if (region.start) lines.push(row("address", hex(BigInt(region.start) + BigInt(offset))));
    if (region.path) lines.push(row("file offset", bytes(region.fileOffset + offset)));
    if (slice >= 0) {
      const value = region.levels[region.codes[slice * region.granules + granule]];
      lines.push(row(`${noun} in slice ${slices[slice][0]}`, value > 0 ? (region.exact ? "" : "about ") + count(region.exact ? value : Number(value.toPrecision(2))) : "none"));
    }
    const total = (name) => region.totals[name]?.[granule] ?? 0;
    lines.push(row(slice >= 0 ? `${noun} in all` : noun, total("accesses") > 0 ? count(total("accesses")) : "never accessed"));
    for (const name of ["loads", "stores", "local", "remote", "cached"]) if (total(name) > 0) lines.push(row(name, count(total(name))));
    if (data.tellsAges && total("accesses") > 0) {
      const age = ageAt(granule, slice);
      const ago = age > 0 ? `${seconds(age)} before` : age === 0 ? (slice < 0 ? "in the last slice" : "in this slice") : "later";
      lines.push(row("last access", region.unknown ? `of the whole: ${ago}` : ago));
    }
    const known = total("remote") + total("local") + total("cached");
    if (known > 0) lines.push(row("share remote", percent(total("remote") / known)));
    if (region.path) lines.push(node("small", region.path));
    return lines;
  };
  const within = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const granuleAt = (x, y) => {
    for (const { kind, left, top, fit, slice, from } of layout) {
      if (kind !== "map" || x < left || y < top || x >= left + fit.width || y >= top + fit.height) continue;
      const column = Math.floor(((x - left) / fit.width) * fit.cells) * fit.acrossBy;
      const line = Math.floor(((y - top) / fit.height) * fit.lines) * fit.downBy;
      const at = line * fit.columns + Math.min(column, fit.columns - 1);
      if (at < state.to - state.from) return [from + at, slice];
    }
    return null;
  };
  const hover = (event) => {
    const [x, y] = within(event);
    const first = layout[0];
    const found = granuleAt(x, y);
    if (found) return show(aboutGranule(...found), event.clientX, event.clientY);
    const area = first?.area;
    if (!area || x < area[0] || x > area[0] + area[2]) return hide();
    const share = (x - area[0]) / area[2];
    const slice = Math.min(slices.length - 1, Math.floor(share * slices.length));
    const times = `slice ${slices[slice][0]}, ${slices[slice][3]}`;
    if (first.kind === "scatter") {
      show(aboutGranule(first.from + Math.min(first.count - 1, Math.floor(share * first.count)), first.slice), event.clientX, event.clientY);
    } else if (first.kind === "lags") {
      const lag = Math.round(share * first.last);
      show([node("b", `${count(lag)} granules = ${bytes(lag * region.granuleBytes)}`), row("autocorrelation", trimmed(region.autocorrelation[lag] ?? 0))], event.clientX, event.clientY);
    } else if (first.kind === "slices") {
      show([node("b", times), row("in this slice", bytes(region.touched[slice])), row("since the start", bytes(region.grown[slice]))], event.clientX, event.clientY);
    } else if (first.kind === "path") {
      const at = Math.min(slices.length - 1, Math.floor(share * first.across));
      const granule = Math.min(region.granules - 1, Math.max(0, Math.floor(((y - area[1]) / area[3]) * first.down)));
      const spot = region.path_[at];
      const lines = aboutGranule(granule, at);
      if (spot) lines.push(row("hotspot at", bytes((region.firstGranule + spot[0]) * region.granuleBytes)));
      show(lines, event.clientX, event.clientY);
    }
  };
  let pointer = null;
  canvas.addEventListener("pointermove", (event) => {
    pointer = event;
    hover(event);
    if (!select) return;
    const [x, y] = within(event);
    select.to = [x, y];
    draw();
    const [[x0, y0], colours] = [select.from, palette()];
    context.fillStyle = colours.first;
    context.globalAlpha = 0.2;
    const { left, top, fit, area } = layout[0];
    if (area) context.fillRect(Math.min(x0, x), area[1], Math.abs(x - x0), area[3]);
    else context.fillRect(left, Math.max(top, Math.min(y0, y)), fit.width, Math.abs(y - y0));
    context.globalAlpha = 1;
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (["map", "scatter"].includes(state.view) && event.button === 0) select = { from: within(event) };
  });
  addEventListener("pointerup", (event) => {
    if (!select) return;
    const [[x0, y0], [x, y]] = [select.from, within(event)];
    select = null;
    const first = layout[0];
    const clamp = (share) => Math.min(1, Math.max(0, share));
    if (first.kind === "map" && Math.abs(y - y0) > 6) {
      const line = (at) => clamp((at - first.top) / first.fit.height) * first.fit.lines * first.fit.downBy;
      zoom(state.from + Math.floor(line(Math.min(y, y0))) * first.fit.columns, state.from + Math.ceil(line(Math.max(y, y0))) * first.fit.columns);
    } else if (first.kind === "scatter" && Math.abs(x - x0) > 6) {
      const at = (px) => state.from + clamp((px - first.area[0]) / first.area[2]) * first.count;
      zoom(Math.floor(at(Math.min(x, x0))), Math.ceil(at(Math.max(x, x0))));
    } else draw();
  });
  const zoom = (from, to) => {
    from = Math.max(0, Math.min(from, region.granules - 1));
    Object.assign(state, { from, to: Math.max(from + 1, Math.min(to, region.granules)), at: -1 });
    draw();
  };
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    hide();
  });
  canvas.addEventListener("blur", hide);
  canvas.addEventListener("click", (event) => {
    if (state.view !== "slices") return;
    const found = granuleAt(...within(event));
    if (found) set({ view: "map", slice: found[1] });
  });
  canvas.addEventListener("keydown", (event) => {
    const first = layout.find(({ kind }) => kind === "map");
    if (event.key === "Escape") return hide();
    if (!first) return;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: first.fit.columns, ArrowUp: -first.fit.columns }[event.key];
    if (!step) return;
    event.preventDefault();
    state.at = state.at < 0 ? state.from : Math.max(state.from, Math.min(state.to - 1, state.at + step));
    const at = state.at - state.from;
    const box = canvas.getBoundingClientRect();
    const [column, line] = [at % first.fit.columns, Math.floor(at / first.fit.columns)];
    const x = box.left + first.left + (first.fit.width * (column + 0.5)) / first.fit.columns;
    const y = box.top + first.top + (first.fit.height * (line + 0.5)) / first.fit.rows;
    show(aboutGranule(state.at, first.slice), x, y);
  });

  // Controls.
  const set = (changes) => {
    Object.assign(state, changes);
    $("slice").value = state.slice;
    draw();
  };
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
  };
  $("play").addEventListener("click", () => {
    if (timer) return stop();
    $("play").textContent = "Stop";
    $("play").setAttribute("aria-pressed", "true");
    const next = () => set({ slice: (state.slice + 1) % slices.length });
    next();
    timer = setInterval(next, Math.max(80, Math.min(500, 15000 / slices.length)));
  });
  $("slice").max = slices.length - 1;
  $("slice").addEventListener("input", (event) => {
    stop();
    set({ slice: Number(event.target.value) });
  });
  for (const id of ["show", "scale", "columns"]) {
    $(id).value = state[id];
    $(id).addEventListener("change", (event) => set({ [id]: event.target.value }));
  }
  $("show").options[0].textContent = noun;
  if (!data.tellsAges) $("show").options[2].remove();
  if (!data.tellsLevel) $("show").options[1].remove();
  $("own").value = state.own;
  $("own").addEventListener("input", (event) => set({ own: Math.max(1, Math.floor(Number(event.target.value)) || 1) }));
  $("zoomout").addEventListener("click", () => zoom(0, region.granules));
  $("views").addEventListener("click", ({ target }) => {
    if (!target.dataset.view) return;
    if (target.dataset.view !== "map" && target.dataset.view !== "scatter") stop();
    set({ view: target.dataset.view });
  });
  // Which region is shown, once somebody has chosen one; else it is the hottest.
  let chosen = null;
  $("regions").addEventListener("click", ({ target }) => {
    if (!target.dataset.region) return;
    stop();
    chosen = regions[target.dataset.region].name;
    inTurn(async () => {
      await open(Math.max(0, regions.findIndex(({ name }) => name === chosen)));
      set({ slice: -1 });
      $("name").scrollIntoView({ behavior: "smooth", block: "start" });
    });
  });
  await open(0);
  // Only what is there can be drawn anew.
  addEventListener("resize", draw);
  dark.addEventListener("change", draw);
  set({ slice: -1 });
  document.body.dataset.ready = "yes";

  // Newer numbers of the same recording. What is looked at stays, and whoever looks at the last slice goes on with the last one.
  const take = async (newer) => {
    const number = Math.max(0, newer.regions.findIndex(({ name }) => name === chosen));
    const one = await unpacked(newer.regions[number]);
    const isSame = one.name === region.name;
    const isWhole = !isSame || (state.from === 0 && state.to === region.granules);
    const place = (granule, up) => Math[up ? "ceil" : "floor"](((region.firstGranule + granule) * region.granuleBytes) / one.granuleBytes) - one.firstGranule;
    const [from, to] = isWhole ? [0, one.granules] : [place(state.from, false), Math.min(one.granules, place(state.to, true))];
    const isLast = state.slice === slices.length - 1;
    const start = slices[state.slice]?.[1];
    const slice = start === undefined ? -1 : isLast ? newer.slices.length - 1 : newer.slices.findLastIndex((its) => its[1] <= start);
    const isTold = !tip.hidden && pointer;
    [data, region] = [newer, one];
    ({ regions, slices, noun } = newer);
    Object.assign(state, { region: number, from, to, at: -1 });
    $("slice").max = slices.length - 1;
    set({ slice });
    if (isTold) hover(pointer);
  };
  return (newer) => inTurn(() => (newer.regions.length ? take(newer) : undefined));
};
