//! Failure of a command: its message and its exit code.

use std::io::Write;
use std::process::{ExitCode, ExitStatus};

/// A failure of our own, where a program was to be run: as `env`, `nohup` and `timeout` have it.
const OWN: u8 = 125;

/// Why a command did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// It was started in a way that cannot work; exit code 2.
    Usage(anyhow::Error),
    /// It was tried and failed; exit code 1.
    Failed(anyhow::Error),
    /// The program that was to be run is not there (127) or cannot be run (126).
    NoProgram(anyhow::Error, u8),
    /// It was tried where a program was run, and failed; exit code 125.
    Own(anyhow::Error),
    /// The work is done, and the program that was run has ended with this code; nothing is printed.
    Program(u8),
    /// The reader of the output has closed it, as `head` does; nothing is printed, exit code 0.
    ReaderGone,
}

impl Failure {
    /// Wrong use.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Failure::Usage(error.into())
    }

    /// A failed try.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Failure::Failed(error.into())
    }

    /// A program that cannot be run; `is_there` says whether there is something of its name.
    pub fn no_program(error: impl Into<anyhow::Error>, is_there: bool) -> Self {
        Failure::NoProgram(error.into(), if is_there { 126 } else { 127 })
    }

    /// A failed try to write a result.
    pub fn writing(what: &str, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Failed(anyhow::anyhow!("cannot write {what}: {error}")),
        }
    }

    /// The same as wrong use: where what is read belongs to how the command was called.
    pub fn into_usage(self) -> Self {
        match self {
            Failure::Failed(error) => Failure::Usage(error),
            other => other,
        }
    }

    /// The same where a program was to be run: its own exit codes must not be mistaken for ours.
    pub fn with_program(self) -> Self {
        match self {
            Failure::Usage(error) | Failure::Failed(error) => Failure::Own(error),
            other => other,
        }
    }

    /// Success of a command that ran a program, as far as the program was successful: its code, or 128 and the signal that ended it.
    pub fn of_program(status: ExitStatus) -> Result<(), Self> {
        match code_of(status) {
            0 => Ok(()),
            code => Err(Failure::Program(code)),
        }
    }

    /// Tells the user and returns the exit code.
    pub fn report(self) -> ExitCode {
        let (error, code) = match self {
            Failure::Usage(error) => (error, 2),
            Failure::Failed(error) => (error, 1),
            Failure::NoProgram(error, code) => (error, code),
            Failure::Own(error) => (error, OWN),
            Failure::Program(code) => return ExitCode::from(code),
            Failure::ReaderGone => return ExitCode::SUCCESS,
        };
        // The output may be closed; the exit code shows the failure all the same.
        let _ = writeln!(std::io::stderr(), "tiermem: {error}");
        ExitCode::from(code)
    }
}

/// The exit code of a command line that cannot be parsed.
pub fn parse_code(runs_a_program: bool) -> u8 {
    if runs_a_program { OWN } else { 2 }
}

fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_program_ends_a_command_with_its_own_code() {
        for (status, code) in [(0, 0), (3 << 8, 3), (15, 143), (9 | 0x80, 137), (255 << 8, 255)] {
            assert_eq!(code_of(ExitStatus::from_raw(status)), code, "{status}");
        }
    }
}
