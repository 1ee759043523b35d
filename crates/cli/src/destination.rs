//! Destination of a report: standard output, standard error or a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where a result goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// To standard output.
    #[default]
    Output,
    /// To standard error: standard output is that of a program which was run.
    Error,
    /// To a file.
    File(PathBuf),
}

impl Destination {
    /// That of the report of a command which runs a program, or observes one that runs already.
    pub fn of_report(file: Option<&Path>, runs_a_program: bool) -> Self {
        match file {
            Some(file) => Destination::File(file.to_owned()),
            None if runs_a_program => Destination::Error,
            None => Destination::Output,
        }
    }

    /// Opens it; a file is made anew.
    pub fn open(&self) -> io::Result<Box<dyn Write>> {
        Ok(match self {
            Destination::Output => Box::new(io::stdout().lock()),
            Destination::Error => Box::new(io::BufWriter::new(io::stderr().lock())),
            Destination::File(path) => {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                Box::new(io::BufWriter::new(File::create(path).map_err(named)?))
            }
        })
    }
}
