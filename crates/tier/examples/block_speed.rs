//! Speed of a block device: random reads of 4 KiB from a file per second, and their processor
//! time, by backend and by requests in flight. For comparison, plain reads from a warm page cache.
//!
//! `cargo run --release -p tiermem-tier --example block_speed -- FILE [SIZE_GIB [SECONDS]]`
//!
//! FILE is created, filled and removed. Processor time is given for all threads and for the submitting thread alone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tiermem_base::rng::Rng;
use tiermem_sys::cpu_time::{process_cpu_time, thread_cpu_time};
use tiermem_tier::block::{AlignedBuffer, BLOCK_BYTES, Backend, BlockIo, Op, Request, open};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first().map(Path::new) else {
        return Err("which file? block_speed FILE [SIZE_GIB [SECONDS]]".into());
    };
    let number = |at: usize, otherwise: u64| arguments.get(at).map_or(Ok(otherwise), |text| text.parse());
    let (capacity, time) = (number(1, 4)? << 30, Duration::from_secs(number(2, 5)?));
    let result = measure(path, capacity, time);
    std::fs::remove_file(path)?;
    result
}

fn measure(path: &Path, capacity: u64, time: Duration) -> Result<(), Failure> {
    fill(path, capacity)?;
    println!("{:36} {:>5} {:>10} {:>12} {:>12}", "", "depth", "reads/s", "CPU us/read", "asker's us");
    for depth in [1, 16, 64] {
        for backend in [Backend::Uring, Backend::Threads] {
            let mut device = open(path, capacity, backend)?;
            let line = random_reads(&mut device, depth, time)?;
            println!("{:36} {depth:5} {line}", device.describe());
        }
    }
    let line = cached_reads(path, capacity, time)?;
    println!("{:36} {:5} {line}", "pread, warm page cache", 1);
    Ok(())
}

/// Writes the whole file: space that was only reserved is read without the disk.
fn fill(path: &Path, capacity: u64) -> Result<(), Failure> {
    let mut device = open(path, capacity, Backend::Auto)?;
    let mut rng = Rng::seeded(1);
    let (mut offset, mut done) = (0, Vec::new());
    let mut buffers: Vec<AlignedBuffer> = (0..8).map(|_| AlignedBuffer::zeroed(1 << 20)).collect();
    while offset < capacity {
        while let Some(mut buffer) = buffers.pop().filter(|_| offset < capacity) {
            buffer.chunks_mut(64).for_each(|part| part[0] = rng.next_u64() as u8);
            device.submit(Request::write(0, offset, buffer));
            offset += 1 << 20;
        }
        device.wait(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            buffers.push(completion.buffer);
        }
    }
    while device.in_flight() > 0 {
        device.wait(&mut done);
    }
    for completion in done {
        completion.result?;
    }
    device.sync()?;
    Ok(())
}

struct Clocks(Instant, Duration, Duration);

impl Clocks {
    fn start() -> Self {
        Clocks(Instant::now(), process_cpu_time(), thread_cpu_time())
    }

    fn line(&self, reads: u64) -> String {
        let per_read = |spent: Duration| spent.as_secs_f64() * 1e6 / reads.max(1) as f64;
        let rate = reads as f64 / self.0.elapsed().as_secs_f64();
        let (all, own) = (process_cpu_time() - self.1, thread_cpu_time() - self.2);
        format!("{rate:10.0} {:12.2} {:12.2}", per_read(all), per_read(own))
    }
}

fn random_reads(device: &mut dyn BlockIo, depth: usize, time: Duration) -> Result<String, Failure> {
    let blocks = device.capacity_bytes() / BLOCK_BYTES as u64;
    let mut rng = Rng::seeded(2);
    let mut place = || rng.below(blocks) * BLOCK_BYTES as u64;
    let mut batch: Vec<Request> = (0..depth as u64)
        .map(|token| Request::read(token, place(), AlignedBuffer::zeroed(BLOCK_BYTES)))
        .collect();
    let (mut done, mut reads) = (Vec::with_capacity(depth), 0);
    let clocks = Clocks::start();
    while clocks.0.elapsed() < time {
        device.submit_all(&mut batch);
        device.wait(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            reads += 1;
            let (token, op, offset) = (completion.token, Op::Read, place());
            batch.push(Request { token, op, offset, buffer: completion.buffer });
        }
    }
    let line = clocks.line(reads);
    while device.in_flight() > 0 {
        device.wait(&mut done);
    }
    Ok(line)
}

fn cached_reads(path: &Path, capacity: u64, time: Duration) -> Result<String, Failure> {
    let file = File::open(path)?;
    let mut large = vec![0; 1 << 20];
    for offset in (0..capacity).step_by(large.len()) {
        file.read_exact_at(&mut large, offset)?;
    }
    let mut rng = Rng::seeded(3);
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    let (mut reads, clocks) = (0, Clocks::start());
    while clocks.0.elapsed() < time {
        for _ in 0..256 {
            file.read_exact_at(&mut block, rng.below(capacity / BLOCK_BYTES as u64) * BLOCK_BYTES as u64)?;
        }
        reads += 256;
    }
    Ok(clocks.line(reads))
}
