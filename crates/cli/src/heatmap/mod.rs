//! `tiermem heatmap`: number of accesses to each part of a program's memory.

mod asked;
mod choice;
mod files;
mod granules;
mod idle;
mod options;
mod read;
mod tables;
mod text;
mod working_set;

pub use self::options::Options;

use tiermem_report::heatmap::AccessClass;

use self::asked::Asked;
use self::options::{ShowArg, View};
use crate::failure::Failure;
use crate::output::print_rows;
use crate::print_text::print_text;
use crate::process_choice;

/// Reads, gathers, and draws or prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let output = options.output.as_deref().map(|path| Ok((path, files::kind(path)?))).transpose()?;
    let mut recording = read::read(options)?;
    if let Some(name) = &options.process {
        recording = process_choice::named(&recording, name)?;
    }
    if let Some(note) = recording.incompleteness() {
        eprintln!("tiermem: {note}");
    }
    let asked = Asked::new(options, &recording)?;
    match output {
        None if options.processes => {
            let printed = print_rows(options.format, &process_choice::table(&recording, &asked.selection));
            printed.map_err(|error| Failure::writing("the table", error))
        }
        None if options.text => {
            let printed = print_text(&text::map(&asked)?);
            printed.map_err(|error| Failure::writing("the map", error))
        }
        None => {
            if let Some(why) = recording.emptiness() {
                eprintln!("tiermem: {why}");
            }
            let fields = asked.by_heat(&[AccessClass::Accesses])?;
            let rows = match options.view {
                _ if options.show == ShowArg::Idle => idle::table(&asked, &fields),
                View::Wss => working_set::table(&asked, &fields),
                _ => tables::regions(&asked, &fields),
            };
            let printed = print_rows(options.format, &rows);
            printed.map_err(|error| Failure::writing("the table", error))
        }
        Some((path, kind)) => {
            files::write(path, |file| asked.write(file, kind))?;
            let printed = print_text(&format!("{}\n", path.display()));
            printed.map_err(|error| Failure::writing("the file's name", error))
        }
    }
}
