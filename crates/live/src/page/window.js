// The window: how far back everything on the page looks. One for all, so that a tile and a plot of the same name mean the same.

import { $, element } from "/page/dom.js";
import { duration } from "/page/figures.js";

/** Seconds that can be chosen, and what they are called. */
const CHOICES = [[60, "1 min"], [600, "10 min"], [3600, "60 min"]];
export const LONGEST_S = CHOICES.at(-1)[0];

const asked = Number(new URLSearchParams(location.search).get("minutes")) * 60;
let chosen = CHOICES.some(([seconds]) => seconds === asked) ? asked : CHOICES[0][0];

/** The window in seconds. */
export const windowS = () => chosen;

/** What the figures are over, which is less than the window as long as less is known: "last 10 min". */
export function over(seconds) {
  // What is compared with is seldom as old as the window to the second.
  const whole = !(seconds < 0.9 * chosen);
  return `last ${duration(whole ? chosen : Math.round(seconds))}`;
}

/** Fills the header's list with the choices. `changed()` is called when another one is taken. */
export function offer(changed) {
  const buttons = CHOICES.map(([seconds, name]) => {
    const button = element("button", "", name);
    button.type = "button";
    button.addEventListener("click", () => {
      chosen = seconds;
      // A link to the page keeps the choice.
      history.replaceState(null, "", `?minutes=${seconds / 60}`);
      mark();
      changed();
    });
    return button;
  });
  const mark = () => buttons.forEach((button, n) => button.setAttribute("aria-pressed", CHOICES[n][0] === chosen));
  $("window").replaceChildren(...buttons);
  mark();
}
