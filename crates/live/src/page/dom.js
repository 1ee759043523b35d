// What the scripts do with the page's elements.

export const $ = (id) => document.getElementById(id);

/** Sets an element's text, where it is not that already. */
export function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
}

/** Makes an element. */
export function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

/** Makes a shape of a drawing. */
export function shape(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  return made;
}

/** Shows what an operator must know, or nothing. */
export function showAlerts(told) {
  const list = $("alerts");
  list.hidden = told.length === 0;
  const shown = [...list.children].map((item) => item.textContent);
  if (shown.join() !== told.join()) list.replaceChildren(...told.map((words) => element("li", "", words)));
}

/** Names the window wherever the page says what its figures are over. */
export function nameWindow(words) {
  document.querySelectorAll(".window-words").forEach((place) => { place.textContent = words; });
}

/** Makes table cells from pairs of a label, which narrow screens show, and a text. */
export function cells(pairs) {
  return pairs.map(([label, value]) => {
    const cell = element("td", "", value);
    cell.dataset.label = label;
    return cell;
  });
}
