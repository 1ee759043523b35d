"use strict";
// Values under the pointer, or under the arrow keys. Without this script the page lacks nothing else.
(() => {
  const tip = document.getElementById("tip");
  const svgNode = (name, attributes) => {
    const node = document.createElementNS("http:" + "//www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    return node;
  };
  const htmlNode = (name, text) => {
    const node = document.createElement(name);
    if (text) node.textContent = text;
    return node;
  };

  for (const figure of document.querySelectorAll("figure.card")) {
    const { series, stops } = JSON.parse(figure.querySelector("script.values").textContent);
    for (const svg of figure.querySelectorAll("svg.chart")) {
      const [left, right, top, bottom] = svg.dataset.area.split(" ").map(Number);
      const layer = svg.querySelector(".hover");
      const onX = (share) => left + share * (right - left);
      const onY = (share) => bottom - share * (bottom - top);
      let current = -1;

      const hide = () => {
        layer.replaceChildren();
        tip.hidden = true;
        current = -1;
      };
      const show = (number) => {
        current = Math.max(0, Math.min(stops.length - 1, number));
        const [x, name, values] = stops[current];
        layer.replaceChildren(svgNode("line", { x1: onX(x), x2: onX(x), y1: top, y2: bottom }));
        tip.replaceChildren(htmlNode("b", name));
        for (const [at, y, text] of [...values].sort((a, b) => b[1] - a[1])) {
          const [label, colour] = series[at];
          layer.append(svgNode("circle", { cx: onX(x), cy: onY(y), r: 4, class: colour }));
          const row = htmlNode("span");
          const swatch = htmlNode("i");
          swatch.className = colour;
          row.append(swatch, label, htmlNode("em", text));
          tip.append(row);
        }
        tip.hidden = false;
        const box = svg.getBoundingClientRect();
        const scale = box.width / svg.viewBox.baseVal.width;
        const [atX, size] = [box.left + onX(x) * scale, tip.getBoundingClientRect()];
        const beside = atX + 14 + size.width > innerWidth ? atX - 14 - size.width : atX + 14;
        tip.style.left = `${Math.max(4, Math.min(beside, innerWidth - size.width - 4))}px`;
        tip.style.top = `${Math.max(4, Math.min(box.top + (top + 8) * scale, innerHeight - size.height - 4))}px`;
      };

      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const share = ((event.clientX - box.left) * svg.viewBox.baseVal.width / box.width - left) / (right - left);
        if (!stops.length || share < -0.05 || share > 1.05) return hide();
        let nearest = 0;
        stops.forEach(([x], number) => {
          if (Math.abs(x - share) < Math.abs(stops[nearest][0] - share)) nearest = number;
        });
        show(nearest);
      });
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (event.key === "Escape") return hide();
        if (!step || !stops.length) return;
        event.preventDefault();
        show(current < 0 ? (step > 0 ? 0 : stops.length - 1) : current + step);
      });
    }
  }
})();
