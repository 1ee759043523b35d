//! Table of a recording's processes, with their lives side by side.

use std::fmt::Write;

use super::Look;
use super::words::{count, noun, several, time};
use crate::escape::escape;
use crate::quantity::Quantity;

/// Longest command that is shown, in characters; the rest is in the row's title.
const COMMAND_CHARS: usize = 44;

/// Appends the table of those whose memory was looked at, if there are several.
pub fn table(out: &mut String, look: &Look) {
    let head = &look.recording.head;
    let observed: Vec<usize> =
        (0..head.processes.len()).filter(|at| head.processes[*at].is_observed).collect();
    if observed.len() < 2 {
        return;
    }
    let sums = look.recording.accesses_of_processes(&look.selection);
    let all: f64 = sums.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let end_ns = head.slices.last().map_or(1, |slice| slice.end_ns.max(1));
    let noun = noun(look.recording, look.selection.source);
    let _ = write!(
        out,
        "<section><h2>Processes</h2><div class=\"card scroll\"><table id=\"processes\"><thead><tr><th>process</th><th>command</th>\
         <th>life, of {}</th><th>lived</th><th>{noun}</th><th>share</th></tr></thead><tbody>",
        time(end_ns)
    );
    for at in &observed {
        let process = &head.processes[*at];
        let share = sums[*at] / all;
        let begun_ns = process.begun_ns.min(end_ns);
        let lived_ns = process.ended_ns.unwrap_or(end_ns).min(end_ns).saturating_sub(begun_ns);
        let of_all = |ns: u64| ns as f64 / end_ns as f64 * 100.0;
        let command = process.command.join(" ");
        let short: String = command.chars().take(COMMAND_CHARS).collect();
        let more = if short.len() < command.len() { "…" } else { "" };
        let _ = write!(
            out,
            "<tr><th>{}</th><td title=\"{}\">{}{more}</td><td><i style=\"--from:{:.1}%;--of:{:.1}%\"><b></b></i></td><td>{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape(&process.name),
            escape(&command),
            escape(&short),
            of_all(begun_ns),
            of_all(lived_ns),
            time(lived_ns),
            count(sums[*at].round()),
            Quantity::Share.text(share)
        );
    }
    *out += "</tbody></table>";
    let short = head.processes.len() - observed.len();
    if short > 0 {
        let short = several(short, "process ended", "processes ended");
        let _ = write!(out, "<p class=\"note\">{short} too soon to be looked at.</p>");
    }
    *out +=
        "<p class=\"note\">What several processes have mapped counts for each of them.</p></div></section>";
}
