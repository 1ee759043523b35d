//! Source `damon`: the kernel's Data Access MONitor, driven through its files in sysfs.
//!
//! Another program may use DAMON on this machine, and creating monitors resets its settings. So
//! this source only starts where there are no monitors, and removes the one that it has made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tiermem_base::Op;
use tiermem_sys::agent::Agent;
use tiermem_sys::cpu_time;
use tiermem_sys::numa::Ram;
use tiermem_trace::recording;

use super::{Seen, Shape, Source};

/// Where the kernel keeps DAMON's files.
const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// Periods of sampling pages, of aggregating the samples, and of updating mappings.
const SAMPLE_US: u64 = 5_000;
const AGGREGATION_US: u64 = 100_000;
const UPDATE_US: u64 = 1_000_000;
/// Fewest and most regions that the monitor divides the program's memory into.
const REGIONS: (u64, u64) = (100, 5_000);

/// Subject of monitoring.
enum Subject<'a> {
    /// The virtual addresses of a process.
    Process(u32),
    /// Physical addresses.
    Memory(&'a [Ram]),
}

pub(in crate::capture) struct Damon {
    kdamond: PathBuf,
    /// How many there are; 0 when this one has been taken away.
    count_file: PathBuf,
    is_on: bool,
    /// Whether the monitor is still this source's own: a later one belongs to another program.
    is_ours: bool,
    /// It ends by itself with the process that it monitors; there is none if it is of the whole machine.
    ends_with_process: bool,
    /// Processor time of the kernel's thread, which neither the program nor the recorder is charged for.
    spent: Option<Duration>,
}

impl Damon {
    /// Monitors the virtual addresses of a process.
    ///
    /// # Errors
    /// If the kernel has no DAMON for virtual addresses, or DAMON is in use already.
    pub fn open(pid: u32) -> io::Result<Self> {
        Damon::open_below(Path::new(ADMIN), &Subject::Process(pid))
    }

    /// Monitors physical addresses of all processes.
    ///
    /// # Errors
    /// If the kernel has no DAMON for physical addresses, or DAMON is in use already.
    pub fn open_machine(ram: &[Ram]) -> io::Result<Self> {
        Damon::open_below(Path::new(ADMIN), &Subject::Memory(ram))
    }

    fn open_below(admin: &Path, subject: &Subject<'_>) -> io::Result<Self> {
        let count_file = admin.join("nr_kdamonds");
        let count = fs::read_to_string(&count_file).map_err(|error| {
            io::Error::new(error.kind(), format!("the kernel has no DAMON in sysfs ({error})"))
        })?;
        if count.trim() != "0" {
            return Err(io::Error::other("DAMON is in use by somebody else, whose monitors are left alone"));
        }
        fs::write(&count_file, "1")?;
        let mut damon = Damon {
            kdamond: admin.join("0"),
            count_file,
            is_on: false,
            is_ours: true,
            ends_with_process: matches!(subject, Subject::Process(_)),
            spent: None,
        };
        let set_up = damon.set_up(subject);
        if let Err(error) = set_up {
            damon.finish();
            return Err(error);
        }
        Ok(damon)
    }

    fn set_up(&mut self, subject: &Subject<'_>) -> io::Result<()> {
        self.set("contexts/nr_contexts", "1")?;
        let (operations, addresses) = match subject {
            Subject::Process(_) => ("vaddr", "virtual"),
            Subject::Memory(_) => ("paddr", "physical"),
        };
        self.set("contexts/0/operations", operations).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("this kernel's DAMON does not know {addresses} addresses ({error})"),
            )
        })?;
        let attributes = "contexts/0/monitoring_attrs";
        for (name, value) in [
            ("intervals/sample_us", SAMPLE_US),
            ("intervals/aggr_us", AGGREGATION_US),
            ("intervals/update_us", UPDATE_US),
            ("nr_regions/min", REGIONS.0),
            ("nr_regions/max", REGIONS.1),
        ] {
            self.set(&format!("{attributes}/{name}"), &value.to_string())?;
        }
        self.set("contexts/0/targets/nr_targets", "1")?;
        let target = "contexts/0/targets/0";
        match subject {
            Subject::Process(pid) => self.set(&format!("{target}/pid_target"), &pid.to_string())?,
            Subject::Memory(ram) => {
                self.set(&format!("{target}/regions/nr_regions"), &ram.len().to_string())?;
                for (number, it) in ram.iter().enumerate() {
                    self.set(&format!("{target}/regions/{number}/start"), &it.start.to_string())?;
                    self.set(&format!("{target}/regions/{number}/end"), &it.end.to_string())?;
                }
            }
        }
        // A scheme that does nothing to any region has the kernel list them all.
        self.set("contexts/0/schemes/nr_schemes", "1")?;
        let scheme = "contexts/0/schemes/0";
        self.set(&format!("{scheme}/action"), "stat")?;
        for (name, value) in [
            ("sz/min", "0"),
            ("sz/max", "18446744073709551615"),
            ("nr_accesses/min", "0"),
            ("nr_accesses/max", "4294967295"),
            ("age/min", "0"),
            ("age/max", "4294967295"),
        ] {
            self.set(&format!("{scheme}/access_pattern/{name}"), value)?;
        }
        self.set("state", "on")?;
        self.is_on = true;
        Ok(())
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let file = self.kdamond.join(name);
        fs::write(&file, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    }
}

/// The number that a file holds.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl Source for Damon {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::PageTouches;
        recording::Source { name: "damon".to_owned(), unit, tells_stores: false, tells_level: false }
    }

    fn begin(&mut self, _: &Shape<'_>, _: Option<&mut Agent>) -> io::Result<()> {
        Ok(())
    }

    fn collect(&mut self, slice: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        match self.set("state", "update_schemes_tried_regions") {
            Err(_) if self.ends_with_process => return Ok(()),
            done => done?,
        }
        let tried = self.kdamond.join("contexts/0/schemes/0/tried_regions");
        // Looks in one aggregation, of which `nr_accesses` found the region's page touched.
        let looks = (AGGREGATION_US / SAMPLE_US) as f64;
        let slice_looks = slice.as_secs_f64() * 1e6 / SAMPLE_US as f64;
        for entry in fs::read_dir(&tried)?.flatten() {
            let of = |name: &str| number(&entry.path().join(name));
            let (Some(start), Some(end), Some(accesses)) = (of("start"), of("end"), of("nr_accesses")) else {
                continue;
            };
            if accesses > 0 && end > start {
                let pages = ((end - start) / 4096) as f64;
                let weight = pages * slice_looks * accesses as f64 / looks;
                each(Seen { address: start, bytes: end - start, weight, op: Op::Unknown });
            }
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let note = |spent: Duration| {
            format!("damon: the kernel's monitor took {:.3} s of a processor", spent.as_secs_f64())
        };
        self.spent.map(note).into_iter().collect()
    }

    fn finish(&mut self) {
        if self.is_on {
            self.spent = number(&self.kdamond.join("pid"))
                .and_then(|pid| cpu_time::spent_by_thread(u32::try_from(pid).ok()?));
            // The monitor of a program that has ended is off already.
            let _ = self.set("state", "off");
            self.is_on = false;
        }
        if std::mem::take(&mut self.is_ours) {
            let _ = fs::write(&self.count_file, "0");
        }
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_of_somebody_elses_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("tiermem-damon-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let process = Subject::Process(1);
        assert!(
            Damon::open_below(&dir.join("none"), &process).err().unwrap().to_string().contains("no DAMON")
        );
        fs::write(dir.join("nr_kdamonds"), "1\n").unwrap();
        assert!(Damon::open_below(&dir, &process).err().unwrap().to_string().contains("somebody else"));
        assert_eq!(fs::read_to_string(dir.join("nr_kdamonds")).unwrap(), "1\n");
        // What cannot be set up is taken away again.
        fs::write(dir.join("nr_kdamonds"), "0").unwrap();
        assert!(Damon::open_below(&dir, &process).is_err());
        assert_eq!(fs::read_to_string(dir.join("nr_kdamonds")).unwrap(), "0");
        fs::remove_dir_all(dir).unwrap();
    }
}
