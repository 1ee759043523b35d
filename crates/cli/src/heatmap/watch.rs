//! Map in the terminal of a recording that is under way, drawn anew at each slice (`heatmap --text --watch`).
//!
//! It reads the journal and nothing else, so that several can watch, and the recorder knows of none. A terminal gets its other screen
//! meanwhile, and the last map when the view ends; anything else gets each map once, one below the other.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use tiermem_base::Nanos;
use tiermem_sys::disk::is_locked;
use tiermem_trace::Spec;
use tiermem_trace::recording::Follower;

use super::options::Options;
use super::{text, under_way};
use crate::failure::Failure;
use crate::interrupt;

/// How often the journal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const OTHER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const OWN_SCREEN: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[2K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The recording, if it is under way.
pub fn begun(options: &Options) -> Result<Option<Follower>, Failure> {
    if Spec::looks_like_one(&options.recording) {
        return Ok(None);
    }
    let path = Path::new(&options.recording);
    if !path.exists() {
        let why = "there is no such file; a recording that has begun is there after its first slice";
        return Err(Failure::failed(anyhow::anyhow!("{}: {why}", options.recording)));
    }
    Follower::open(path, under_way::LIMITS).map_err(Failure::failed)
}

/// Draws until the recording ends, or the user ends it.
pub fn run(options: &Options, mut follower: Follower) -> Result<(), Failure> {
    let interrupt = interrupt::watch();
    let mut shown: Option<Shown> = None;
    let mut last = String::new();
    loop {
        // Asked first: what a recorder has written before its end is read then.
        let is_over = interrupt.is_set() || !is_written(&follower);
        let is_new = follower.read().map_err(|reason| of_journal(options, &reason))?;
        let shown = shown.get_or_insert_with(Shown::begin);
        if follower.slices() > 0 && (is_new || shown.has_changed()) {
            last = drawn(options, &follower, shown.columns());
            shown.draw(&status(options, &follower), &last)?;
        }
        if is_over || follower.has_ended() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    shown.map_or(Ok(()), |shown| shown.end(&last))?;
    if follower.slices() == 0 && !interrupt.is_set() {
        return Err(of_journal(options, "it ended before its first slice"));
    }
    let name = &options.recording;
    match () {
        () if follower.is_complete() => eprintln!("tiermem: {name}: the recording has ended"),
        () if interrupt.is_set() => {}
        () => eprintln!("tiermem: {name}: its recorder has ended before the recording was complete"),
    }
    Ok(())
}

fn of_journal(options: &Options, reason: &str) -> Failure {
    Failure::failed(anyhow::anyhow!("{}: {reason}", options.recording))
}

/// Whether its recorder lives; where the file system has no locks it is taken to.
fn is_written(follower: &Follower) -> bool {
    is_locked(follower.file()).unwrap_or(true)
}

/// The map, or why there is none yet.
fn drawn(options: &Options, follower: &Follower, columns: usize) -> String {
    let recording = match follower.recording() {
        Ok(recording) => recording,
        Err(reason) => return format!("{reason}\n"),
    };
    if recording.samples.is_empty() {
        return "No access was seen so far.\n".to_owned();
    }
    let notes = under_way::note_of_slices(follower.together());
    match under_way::text(options, recording, columns) {
        Ok(map) => {
            let notes = notes.into_iter().chain(map.note()).map(|note| format!("({note})\n"));
            map.text + &notes.collect::<String>()
        }
        // A region or process that is asked for may come later.
        Err(Failure::Usage(error) | Failure::Failed(error)) => format!("{error}\n"),
        Err(_) => String::new(),
    }
}

/// The line above the map.
fn status(options: &Options, follower: &Follower) -> String {
    let slices = follower.slices();
    let ending = if slices == 1 { "" } else { "s" };
    let time = Nanos(follower.end_ns());
    let name =
        Path::new(&options.recording).file_name().map_or(Cow::default(), |name| name.to_string_lossy());
    format!("{name}: {slices} slice{ending}, {time}; Ctrl-C ends the view")
}

/// Where maps are shown.
struct Shown {
    is_terminal: bool,
    /// Columns and rows when something was drawn last.
    size: (usize, usize),
}

impl Shown {
    fn begin() -> Self {
        let is_terminal = io::stdout().is_terminal();
        if is_terminal {
            // A terminal that cannot be written to is told at the first map.
            let _ = write(OTHER_SCREEN);
        }
        Shown { is_terminal, size: (0, 0) }
    }

    fn columns(&self) -> usize {
        text::columns()
    }

    /// Columns and rows of the terminal; no bound on rows where it does not know.
    fn size_now() -> (usize, usize) {
        let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        (text::columns(), if rows == 0 { usize::MAX } else { rows })
    }

    /// Whether the terminal has another size than when something was drawn last.
    fn has_changed(&self) -> bool {
        self.is_terminal && self.size != Self::size_now()
    }

    fn draw(&mut self, status: &str, map: &str) -> Result<(), Failure> {
        if !self.is_terminal {
            return written(write(&format!("{map}\n")));
        }
        self.size = Self::size_now();
        written(write(&screen(status, map, self.size)))
    }

    /// Gives the terminal back, with the last map on it.
    fn end(self, map: &str) -> Result<(), Failure> {
        if !self.is_terminal {
            return Ok(());
        }
        drop(self);
        written(write(map))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write(OWN_SCREEN);
        }
    }
}

/// What fills a terminal of this size: as much of the map as it has room for.
fn screen(status: &str, map: &str, (columns, rows): (usize, usize)) -> String {
    let lines: Vec<&str> = std::iter::once(status).chain(map.lines()).collect();
    let (is_cut, is_full) = (lines.len() > rows, lines.len() >= rows);
    let shown = if is_cut { rows.saturating_sub(1) } else { lines.len() };
    let mut lines: Vec<String> =
        lines.into_iter().take(shown).map(|line| line.chars().take(columns).collect()).collect();
    if is_cut {
        lines.push("...".to_owned());
    }
    // Lines are cleared before they are written, not after: behind a full line the cursor still stands on its last character.
    let lines: Vec<String> = lines.iter().map(|line| format!("{CLEAR_LINE}{line}")).collect();
    // The last line of a full screen is not left: that would move all of it.
    let rest = if is_full { String::new() } else { format!("\n{CLEAR_BELOW}") };
    format!("{HOME}{}{rest}", lines.join("\n"))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn written(done: io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| Failure::writing("the map", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_no_more_than_it_has_room_for() {
        let all = screen("status", "one\ntwo\n", (80, 24));
        assert_eq!(all, "\x1b[H\x1b[2Kstatus\n\x1b[2Kone\n\x1b[2Ktwo\n\x1b[J");
        let cut = screen("status", "one\ntwo\nthree\n", (4, 3));
        assert_eq!(cut, "\x1b[H\x1b[2Kstat\n\x1b[2Kone\n\x1b[2K...");
        assert!(!screen("status", "one\ntwo\n", (80, 3)).ends_with("\n\x1b[J"));
    }
}
