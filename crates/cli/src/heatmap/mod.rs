//! `tiermem heatmap`: number of accesses to each part of a program's memory.

mod against;
mod asked;
mod choice;
mod files;
mod granules;
mod idle;
mod options;
mod read;
mod sites;
mod tables;
mod tensors;
pub mod text;
pub mod under_way;
mod watch;
mod working_set;

pub use self::options::Options;

use std::path::Path;

use tiermem_report::heatmap::AccessClass;
use tiermem_trace::recording::Recording;

use self::asked::Asked;
use self::files::Kind;
use self::options::{ShowArg, View};
use crate::failure::Failure;
use crate::output::print_rows;
use crate::print_text::print_text;
use crate::process_choice;

/// Reads, gathers, and draws or prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let output = options.output.as_deref().map(|path| Ok((path, files::kind(path)?))).transpose()?;
    if options.watch
        && let Some(follower) = watch::begun(options)?
    {
        return watch::run(options, follower);
    }
    let recording = of_process(options, &options.recording)?;
    let asked = Asked::new(options, &options.recording, &recording)?;
    asked.warn_of_fine_granule()?;
    if let Some(path) = &options.against {
        let other = of_process(options, path)?;
        let against = Asked::new(options, path, &other)?;
        against.warn_of_fine_granule()?;
        return compare(&asked, &against, output);
    }
    match output {
        None if options.processes => {
            let printed = print_rows(options.format, &process_choice::table(&recording, &asked.selection));
            printed.map_err(|error| Failure::writing("the table", error))
        }
        None if options.sites => {
            let printed = print_rows(options.format, &sites::table(&asked)?);
            printed.map_err(|error| Failure::writing("the table", error))
        }
        None if options.text => {
            let map = text::map(&asked, text::columns())?;
            map.note().iter().for_each(|note| eprintln!("tiermem: {note}"));
            let printed = print_text(&map.text);
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

/// A recording, or one process of it, by regions or by tensors.
fn of_process(options: &Options, path: &str) -> Result<Recording, Failure> {
    let recording = part(options, read::read(options, path)?)?;
    if let Some(note) = read::note_of_part(&recording) {
        // Of two recordings it is told which one is meant.
        let which = options.against.as_ref().map_or(String::new(), |_| format!("{path}: "));
        eprintln!("tiermem: {which}{note}");
    }
    Ok(recording)
}

/// One process of a recording, if one is asked for, by regions or by tensors.
fn part(options: &Options, mut recording: Recording) -> Result<Recording, Failure> {
    if let Some(name) = &options.process {
        recording = process_choice::named(&recording, name)?;
    }
    if options.tensors {
        recording = tensors::divided(&recording)?;
    }
    Ok(recording)
}

/// Prints or draws two recordings.
fn compare(asked: &Asked, against: &Asked, output: Option<(&Path, Kind)>) -> Result<(), Failure> {
    against::check(asked, against)?;
    let Some((path, kind)) = output else {
        let printed = print_rows(asked.options.format, &against::table(asked, against)?);
        return printed.map_err(|error| Failure::writing("the table", error));
    };
    files::write(path, |file| match kind {
        Kind::Html => files::write_page(file, path, &against::page(asked, against)?),
        kind => files::write_scene(file, path, kind, &against::scene(asked, against)?),
    })?;
    let printed = print_text(&format!("{}\n", path.display()));
    printed.map_err(|error| Failure::writing("the file's name", error))
}
