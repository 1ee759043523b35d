//! Where records go: a file or standard output, and the loop that carries them there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::Args;
use tiermem_base::Access;
use tiermem_trace::filter::Verdict;

use super::records::RecordWriter;
use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

/// For the help of every command that writes a trace.
pub const OUTPUT_HELP: &str = "\
The file to write; - writes csv to standard output";

/// Where to.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The file to write; - writes csv to standard output.
    #[arg(short, long, value_name = "FILE", long_help = OUTPUT_HELP)]
    pub output: String,
}

/// An open output.
pub struct Sink {
    name: String,
    writer: RecordWriter<Box<dyn Write>>,
}

impl Sink {
    /// Opens the file, or standard output for `-`.
    pub fn create(name: &str) -> Result<Sink, Failure> {
        let refused = |error| write_failure(name, error);
        let out: Box<dyn Write> = match name {
            "-" => Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())),
            path => {
                Box::new(BufWriter::with_capacity(1 << 18, File::create(Path::new(path)).map_err(refused)?))
            }
        };
        let writer = RecordWriter::new(out, Format::Csv).map_err(refused)?;
        Ok(Sink { name: name.to_owned(), writer })
    }

    /// Writes a record.
    pub fn write(&mut self, access: &Access) -> Result<(), Failure> {
        let name = &self.name;
        self.writer.write(access).map_err(|error| write_failure(name, error))
    }

    /// Completes the output.
    pub fn finish(self) -> Result<(), Failure> {
        let name = self.name;
        self.writer.finish().map_err(|error| write_failure(&name, error))
    }
}

fn write_failure(name: &str, error: io::Error) -> Failure {
    Failure::writing(&format!("the trace {name}"), error)
}

/// Writes what `judge` keeps of a trace.
pub fn copy(
    trace: &TraceArgs,
    output: &OutputArgs,
    mut judge: impl FnMut(&Access) -> Verdict,
) -> Result<(), Failure> {
    let source = trace.open()?;
    let mut sink = Sink::create(&output.output)?;
    for record in source.records() {
        let access = record?;
        match judge(&access) {
            Verdict::Keep => sink.write(&access)?,
            Verdict::Drop => (),
            Verdict::End => break,
        }
    }
    sink.finish()?;
    source.finish();
    Ok(())
}
