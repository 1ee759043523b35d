// The page of a recording that is under way: figures each second, and after each slice the numbers of the map.

import { overTime, axis as plotAxis } from "/page/charts.js";
import { $, element, text } from "/page/dom.js";
import { follow } from "/page/feed.js";
import { bytes, count, duration, percent } from "/page/figures.js";

/** Lines run on between slices that are no further apart than so many of their lengths. */
const GAP_SLICES = 3;
const MEGABYTE = 2 ** 20;

/** What takes newer numbers of the map, once there have been some. */
let draw = null;
/** Slices of the map that is shown, and whether newer numbers are on their way. */
let drawn = 0;
let isAsking = false;
let plot = null;
let memory = [[], [], []];
/** What was told of the recording last. */
let last = null;

function showFigures(now) {
  text("command", now.command);
  document.title = `${now.command || "recording"} · tiermem record`;
  text("slices-note", `${count(now.slices)} ${now.slices === 1 ? "slice" : "slices"}; ${bytes(now.written_bytes)} written`);
  text("working-set", bytes(now.working_set_bytes));
  text("rss", bytes(now.rss_bytes ?? NaN));
  text("processes", count(now.processes));
  const ended = now.processes - now.processes_running;
  text("processes-note", ended > 0 ? `${count(now.processes_running)} of them running` : "running");
  text("notes", now.notes.join(" "));
}

/** The table of regions: rows stay where they are, so that what has the focus keeps it. */
function showRegions({ regions, noun }) {
  const sum = regions.reduce((total, { sum }) => total + sum, 0);
  const body = $("regions").tBodies[0];
  while (body.rows.length > regions.length) body.deleteRow(-1);
  regions.forEach((region, number) => {
    const row = body.rows[number] ?? body.insertRow();
    if (!row.cells.length) {
      const name = element("button", "");
      name.type = "button";
      name.dataset.region = number;
      const head = element("th");
      head.append(name);
      row.append(head, ...Array.from({ length: 6 }, () => element("td")));
      row.cells[6].append(element("i", "share"), "");
    }
    row.cells[0].firstChild.textContent = region.name;
    const share = sum > 0 ? region.sum / sum : 0;
    const figures = [region.kind, bytes(region.bytes), bytes(region.grown.at(-1)), bytes(region.touched.at(-1)), count(region.sum)];
    figures.forEach((figure, at) => { row.cells[at + 1].textContent = figure; });
    row.cells[6].firstChild.style.setProperty("--share", `${(share * 100).toFixed(1)}%`);
    row.cells[6].lastChild.textContent = percent(share);
  });
  text("noun", noun);
}

/** Draws the map anew if there are further slices. */
async function showMap(now) {
  if (isAsking || now.slices === drawn) return;
  isAsking = true;
  try {
    const response = await fetch("/api/map", { cache: "no-store" });
    if (!response.ok) return;
    const { slices, together, data } = await response.json();
    if (!data) return;
    showRegions(data);
    text("touched", bytes(data.workingSet.curve.at(-1)));
    const of = together > 1 ? ` A slice of the map is ${together} slices of the recording together.` : "";
    text("what", `${data.what[0].toUpperCase()}${data.what.slice(1)}.${of}`);
    const [[, most]] = data.workingSet.shares.slice(1);
    text("headline", data.regions.some(({ unknown }) => unknown) ? "Which memory is hot is not known" : `Nine tenths of the ${data.noun} go to ${bytes(most)}`);
    const { name, sum } = data.regions[0];
    const all = data.regions.reduce((total, { sum }) => total + sum, 0);
    text("lead", `${count(Math.round(all))} ${data.noun} so far, ${percent(sum / all)} of them to ${name}.`);
    $("seen").hidden = $("mappings").hidden = false;
    if (draw) await draw(data);
    // Slices from left to right: of a map of all slices together one would not see what happens now.
    else draw = await heatmap(data, "path");
    drawn = slices;
  } catch (error) {
    // The figures tell that nobody answers.
  } finally {
    isAsking = false;
  }
}

/** A share of memory in a unit that its axis has room for. */
const memoryAxis = () => plotAxis({
  size: 70,
  incrs: Array.from({ length: 44 }, (_, power) => 2 ** power),
  values: (_, splits) => splits.map((value) => value === null ? "" : bytes(value)),
});

function makePlot() {
  const series = [
    { label: "RSS", color: "--c0", scale: "bytes", text: bytes },
    { label: "working set", color: "--c1", scale: "bytes", text: bytes, filled: true },
  ];
  const scales = { bytes: { range: (_, least, most) => [0, Math.max(most * 1.08, MEGABYTE)] } };
  return overTime("memory", series, () => [{ ...memoryAxis(), scale: "bytes" }], scales, () => memory);
}

function show(now, before, rows) {
  last = now;
  $("ended").hidden = true;
  showFigures(now);
  memory = [rows.time, rows.rss, rows.workingSet];
  plot ??= makePlot();
  plot.update();
  showMap(now);
}

const followed = follow({
  sample: ({ rss_bytes, working_set_bytes, slice_s }) => ({ rss_bytes, working_set_bytes, slice_s }),
  lines: { rss: (now) => now.rss_bytes, workingSet: (now) => now.working_set_bytes },
  gap: (now) => GAP_SLICES * now.slice_s,
  comparable: () => true,
  show,
  state: (now) => now.ready ? "recording" : "waiting for the first slice",
  lost: () => { if ($("ended").hidden) over(null); },
});

/** Says that the recording is over, and how to look at it. */
function over(how) {
  const path = last?.output ?? "REC";
  const quoted = /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
  const words = how === null ? "The recorder does not answer any more. Look at what it has recorded with" : `The recording is finished (${how}). Look at it with`;
  $("ended").replaceChildren(`${words} `, element("code", "", `tiermem heatmap ${quoted} -o recording.html`), ".");
  $("ended").hidden = false;
}

/** Waits for the end, which the server tells as it comes. */
async function awaitEnd() {
  for (;;) {
    try {
      const response = await fetch("/api/end", { cache: "no-store" });
      const { ended } = await response.json();
      if (ended) {
        followed.stop();
        document.documentElement.dataset.state = "ended";
        text("state", "finished");
        text("processes-note", "\u00a0");
        return over(ended);
      }
    } catch (error) {
      // Nobody answers: `follow` says so, and goes on when somebody does.
      await new Promise((later) => setTimeout(later, 1000));
    }
  }
}

awaitEnd();
