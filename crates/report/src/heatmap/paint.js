"use strict";
// Pixels of the screen to one of the page.
const pixels = () => devicePixelRatio || 1;

// What draws on a canvas. `never` and `beyond` are the colours of granules that were never accessed, and of cells that are none.
const painter = (canvas, { never, beyond }) => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const palette = () => ({
    text: colour("--text"), soft: colour("--soft"), line: colour("--faint"), grid: colour("--grid"), card: colour("--card"),
    first: colour("--c0"), second: colour("--c1"), over: dark.matches ? "#ff5c5c" : "#dc2626",
    never: never[dark.matches ? "dark" : "light"], beyond: beyond[dark.matches ? "dark" : "light"],
  });
  const context = canvas.getContext("2d");
  const size = (height) => {
    const ratio = pixels();
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return canvas.clientWidth;
  };
  const write = (text, x, y, fill, align = "left", bold = false) => {
    context.font = context.font.replace(/^(bold )?/, bold ? "bold " : "");
    context.fillStyle = fill;
    context.textAlign = align;
    context.fillText(text, x, y);
  };
  const rule = (x0, y0, x1, y1, stroke, width = 1) => {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  };
  const line = (points, stroke, width) => {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.beginPath();
    let isDown = false;
    for (const point of points) {
      if (!point) isDown = false;
      else if (isDown) context.lineTo(...point);
      else context.moveTo(...point), (isDown = true);
    }
    context.stroke();
  };
  const image = (map, cells, columns, rows, scale, end, x, y, width, height) => {
    const colours = palette();
    const picture = new ImageData(columns, rows);
    for (let at = 0; at < columns * rows; at++) {
      const value = cells[at];
      const place = Math.round(255 * Math.min(1, Math.max(0, scale.place(value))));
      const rgb = at >= end ? colours.beyond : Number.isNaN(value) ? colours.never : map.subarray(3 * place, 3 * place + 3);
      picture.data.set(rgb, 4 * at);
      picture.data[4 * at + 3] = 255;
    }
    const small = document.createElement("canvas");
    [small.width, small.height] = [columns, rows];
    small.getContext("2d").putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, x, y, width, height);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
  };
  // The colours of values from bottom to top, and below them `others`: what has a colour or a line of its own.
  const bar = (map, scale, title, x, y, height, others = []) => {
    const colours = palette();
    title.split("|").forEach((part, at) => write(part, x, y + 4 + 15 * at, colours.text));
    const top = y + 14 + 15 * (title.split("|").length - 1);
    const below = [{ rgb: colours.never, name: "never accessed" }, ...others];
    const tall = height - (top - y) - 14 - 20 * below.length;
    for (let at = 0; at < tall; at++) {
      const place = 3 * Math.round(255 * (1 - at / tall));
      context.fillStyle = `rgb(${map[place]},${map[place + 1]},${map[place + 2]})`;
      context.fillRect(x, top + at, 14, 1.5);
    }
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(x - 0.5, top - 0.5, 15, tall + 1);
    for (const value of scale.ticks(6)) {
      const at = top + tall * (1 - scale.place(value));
      rule(x + 14, at, x + 18, at, colours.line);
      write(scale.label(value), x + 22, at + 4, colours.soft);
    }
    below.forEach(({ rgb, width, name }, at) => {
      const high = top + tall + 14 + 20 * at;
      if (rgb) {
        context.fillStyle = `rgb(${rgb})`;
        context.fillRect(x, high, 14, 14);
        context.strokeStyle = colours.line;
        context.lineWidth = 1;
        context.strokeRect(x - 0.5, high - 0.5, 15, 15);
      } else line([[x, high + 7], [x + 15, high + 7]], colours.over, width);
      write(name, x + 22, high + 11, colours.soft);
    });
  };
  // Cells behind a region's end, if a map has some.
  const behindEnd = (fits) => (fits.some((fit) => fit.end < fit.cells * fit.lines) ? [{ rgb: palette().beyond, name: "behind the end" }] : []);
  const frame = (x, y, area, titles, hasGrid = true, isDown = false) => {
    const colours = palette();
    const [left, top, width, height] = area;
    write(titles[1], left, top - 10, colours.text);
    for (const value of y.ticks(height / 50)) {
      const at = top + height * (isDown ? y.place(value) : 1 - y.place(value));
      if (hasGrid) rule(left, at, left + width, at, colours.grid);
      rule(left - 5, at, left, at, colours.line);
      write(y.label(value), left - 8, at + 4, colours.soft, "right");
    }
    for (const value of x.ticks(width / 100)) {
      const at = left + width * x.place(value);
      rule(at, top + height, at, top + height + 5, colours.line);
      write(x.label(value), at, top + height + 18, colours.soft, "center");
    }
    write(titles[0], left + width / 2, top + height + 38, colours.text, "center");
    context.strokeStyle = colours.line;
    context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  };
  return { dark, context, palette, size, write, rule, line, image, bar, behindEnd, frame };
};
