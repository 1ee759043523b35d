//! Regions of model files, divided by tensors.

use super::{Recording, Region, RegionKind, Sample};
use crate::tensor_file::Tensor;

impl Recording {
    /// The same recording, in which regions of files that hold tensors are divided: `tensors` tells those of a file in the order of their
    /// places, none if it is no such file. A part has the region's name and the tensor's (`model.gguf: blk.0.attn_q.weight`); what is no
    /// tensor's keeps the region's. What was seen of several tensors as one counts for each by its bytes.
    pub fn by_tensor(&self, mut tensors: impl FnMut(&str) -> Vec<Tensor>) -> Recording {
        let mut head = self.head.clone();
        head.regions.clear();
        // Of each region, the bytes from its start at which parts begin.
        let mut begins: Vec<Vec<u64>> = Vec::with_capacity(self.head.regions.len());
        let mut first: Vec<u32> = Vec::with_capacity(self.head.regions.len());
        for region in &self.head.regions {
            first.push(head.regions.len() as u32);
            let path = region.path.as_deref().filter(|_| region.kind == RegionKind::File);
            let parts = parts(region, &path.map(&mut tensors).unwrap_or_default());
            begins.push(parts.iter().map(|part| part.start - region.start).collect());
            head.regions.extend(parts);
        }
        let mut samples = Vec::with_capacity(self.samples.len());
        for sample in &self.samples {
            let region = sample.region as usize;
            divide(sample, first[region], &begins[region], |part| samples.push(part));
        }
        Recording { head, samples }
    }
}

/// A region's parts, in the order of their places; the region itself if it has no tensors.
fn parts(region: &Region, tensors: &[Tensor]) -> Vec<Region> {
    let end = region.file_offset + region.bytes;
    let mut found: Vec<Region> = Vec::new();
    let mut part = |from: u64, to: u64, name: String| {
        if from < to {
            let start = region.start + (from - region.file_offset);
            found.push(Region { name, start, bytes: to - from, file_offset: from, ..region.clone() });
        }
    };
    let mut at = region.file_offset;
    for tensor in tensors {
        let (from, to) = (tensor.start.clamp(at, end), (tensor.start + tensor.bytes).clamp(at, end));
        part(at, from, region.name.clone());
        part(from, to, format!("{}: {}", region.name, tensor.name));
        at = to;
    }
    part(at, end, region.name.clone());
    if found.is_empty() { vec![region.clone()] } else { found }
}

/// Tells the parts of a sample: `first` is the number of its region's first part, `begins` where parts begin.
fn divide(sample: &Sample, first: u32, begins: &[u64], mut each: impl FnMut(Sample)) {
    let end = sample.offset + u64::from(sample.bytes);
    let from = begins.partition_point(|begin| *begin <= sample.offset).max(1) - 1;
    let to = begins.partition_point(|begin| *begin < end).max(from + 1);
    if to == from + 1 {
        return each(Sample { region: first + from as u32, offset: sample.offset - begins[from], ..*sample });
    }
    for at in from..to {
        let start = sample.offset.max(begins[at]);
        let bytes = (begins.get(at + 1).map_or(end, |next| end.min(*next)) - start) as u32;
        let share = f64::from(bytes) / f64::from(sample.bytes);
        each(Sample {
            region: first + at as u32,
            offset: start - begins[at],
            bytes,
            resident: (f64::from(sample.resident) * share).round() as u32,
            weight: (f64::from(sample.weight) * share) as f32,
            ..*sample
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Head;
    use tiermem_base::Op;

    fn sample(region: u32, offset: u64, bytes: u32, weight: f32) -> Sample {
        Sample { region, offset, bytes, resident: bytes, weight, op: Op::Load, ..Sample::default() }
    }

    #[test]
    fn a_model_is_told_by_tensors_and_nothing_is_lost() {
        let region = |name: &str, kind, file_offset, start| Region {
            name: name.to_owned(),
            kind,
            path: (kind == RegionKind::File).then(|| format!("/{name}")),
            file_offset,
            start,
            bytes: 1000,
            ..Region::default()
        };
        let head = Head {
            regions: vec![
                region("heap", RegionKind::Heap, 0, 0),
                region("m.gguf", RegionKind::File, 100, 5000),
                region("libc.so.6", RegionKind::File, 0, 9000),
            ],
            ..Head::default()
        };
        let samples = vec![
            sample(0, 10, 10, 1.0),
            sample(1, 0, 400, 8.0),
            sample(1, 950, 50, 3.0),
            sample(2, 1, 1, 2.0),
        ];
        // One that lies before what is mapped, one that is cut by it, and one behind.
        let tensor = |name: &str, start, bytes| Tensor { name: name.to_owned(), start, bytes };
        let tensors =
            [tensor("a", 0, 100), tensor("b", 200, 100), tensor("c", 300, 500), tensor("d", 800, 900)];
        let asked = |path: &str| if path == "/m.gguf" { tensors.to_vec() } else { Vec::new() };
        let told = Recording { head, samples }.by_tensor(asked);
        let regions: Vec<(&str, u64, u64, u64)> = told
            .head
            .regions
            .iter()
            .map(|it| (it.name.as_str(), it.start, it.bytes, it.file_offset))
            .collect();
        assert_eq!(
            regions,
            [
                ("heap", 0, 1000, 0),
                ("m.gguf", 5000, 100, 100),
                ("m.gguf: b", 5100, 100, 200),
                ("m.gguf: c", 5200, 500, 300),
                ("m.gguf: d", 5700, 300, 800),
                ("libc.so.6", 9000, 1000, 0),
            ]
        );
        assert_eq!(
            told.samples,
            [
                sample(0, 10, 10, 1.0),
                sample(1, 0, 100, 2.0),
                sample(2, 0, 100, 2.0),
                sample(3, 0, 200, 4.0),
                sample(4, 250, 50, 3.0),
                sample(5, 1, 1, 2.0),
            ]
        );
    }
}
