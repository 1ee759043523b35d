//! One process of a recording of several.

use super::{Process, Recording, Region, Sample, Selection};

impl Recording {
    /// The index of the process of this name; `None` if there is none.
    pub fn process(&self, name: &str) -> Option<usize> {
        self.head.processes.iter().position(|process| process.name == name)
    }

    /// What was recorded of one process, as if it had been recorded alone: its regions have their own names, and the program is its own.
    /// The notes and the cost stay those of all.
    pub fn of_process(&self, index: usize) -> Recording {
        let process = self.head.processes.get(index).cloned().unwrap_or_default();
        let prefix = format!("{}: ", process.name);
        let mut head = self.head.clone();
        let mut places: Vec<Option<u32>> = Vec::with_capacity(head.regions.len());
        let mut kept: Vec<Region> = Vec::new();
        for region in head.regions.drain(..) {
            let is_its_own = region.process as usize == index;
            places.push(is_its_own.then_some(kept.len() as u32));
            if is_its_own {
                let name = match region.name.strip_prefix(&prefix) {
                    Some(own) if index > 0 => own.to_owned(),
                    _ => region.name.clone(),
                };
                kept.push(Region { name, process: 0, ..region });
            }
        }
        let own = |it: &Sample| Some(Sample { region: places[it.region as usize]?, ..*it });
        let samples = self.samples.iter().filter_map(own).collect();
        head.regions = kept;
        if index > 0 {
            head.command.clone_from(&process.command);
            head.executable = process.executable.clone();
        }
        head.sites = head.sites.map(|sites| sites.of_process(index));
        head.processes = vec![Process { parent: None, ..process }];
        Recording { head, samples }
    }

    /// The selected accesses of each process; one number where descendants were not followed.
    pub fn accesses_of_processes(&self, selection: &Selection) -> Vec<f64> {
        let mut sums = vec![0.0; self.head.processes.len().max(1)];
        for sample in self.samples.iter().filter(|sample| selection.takes(sample)) {
            let process = self.head.regions[sample.region as usize].process as usize;
            if let Some(sum) = sums.get_mut(process) {
                *sum += f64::from(sample.weight);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Slice};

    #[test]
    fn a_process_is_as_if_it_had_been_recorded_alone() {
        let process = |name: &str, program: &str| {
            let command = vec![program.to_owned()];
            Process { name: name.to_owned(), command, parent: Some(0), ..Process::default() }
        };
        let region = |name: &str, process: u32, start: u64| Region {
            name: name.to_owned(),
            process,
            start,
            bytes: 1 << 20,
            ..Region::default()
        };
        let sample = |region: u32, weight: f32| Sample {
            region,
            bytes: 4096,
            resident: 4096,
            weight,
            ..Sample::default()
        };
        let head = Head {
            command: vec!["sh".to_owned()],
            slices: vec![Slice::default()],
            processes: vec![process("sh", "sh"), process("a", "./a"), process("a #2", "./a")],
            regions: vec![
                region("heap", 0, 0),
                region("a: heap", 1, 0),
                region("a #2: heap", 2, 0),
                region("a #2: a", 2, 9),
            ],
            ..Head::default()
        };
        let samples = vec![sample(1, 1.0), sample(3, 2.0), sample(2, 4.0), sample(0, 8.0)];
        let all = Recording { head, samples };
        assert_eq!(all.accesses_of_processes(&Selection::default()), [8.0, 1.0, 6.0]);
        assert_eq!((all.process("a #2"), all.process("b")), (Some(2), None));
        let second = all.of_process(2);
        let names: Vec<&str> = second.head.regions.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            (names.as_slice(), second.head.command.as_slice()),
            (&["heap", "a"][..], &["./a".to_owned()][..])
        );
        assert_eq!(second.samples, [sample(1, 2.0), sample(0, 4.0)]);
        assert_eq!(second.accesses_of_processes(&Selection::default()), [6.0]);
        let first = all.of_process(0);
        assert_eq!((first.head.regions.len(), first.head.command), (1, vec!["sh".to_owned()]));
        assert_eq!(first.samples, [sample(0, 8.0)]);
    }
}
