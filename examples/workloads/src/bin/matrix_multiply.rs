//! Multiplies two square matrices.
#![forbid(unsafe_code)]

use tiermem_workloads::{mix, settings};

fn main() {
    let [footprint, rows, seed] = settings(
        "Fills two square matrices of doubles and multiplies them, row by row.",
        [
            ("footprint", 900 << 20, "bytes of the three matrices"),
            ("rows", u64::MAX, "rows of the product that are computed"),
            ("seed", 1, "of the numbers in the matrices"),
        ],
    );
    let n = (((footprint / 24) as f64).sqrt() as usize).max(1);
    // Next to no instructions: it is the product that is to be seen.
    let filled =
        |first: u64| (0..n * n).map(|at| f64::from((first as u32).wrapping_add(at as u32) as i32)).collect();
    let (a, b): (Vec<f64>, Vec<f64>) = (filled(seed), filled(!seed));
    let mut product = vec![0.0; n * n];
    for (row, out) in product.chunks_mut(n).enumerate().take(rows.min(n as u64) as usize) {
        // The middle loop goes over rows of `b`, so that the inner one walks through memory.
        for (k, factor) in a[row * n..][..n].iter().enumerate() {
            for (sum, value) in out.iter_mut().zip(&b[k * n..][..n]) {
                *sum += factor * value;
            }
        }
    }
    let trace: f64 = (0..n).map(|at| product[at * n + at]).sum();
    println!("matrix_multiply: {n} rows, checksum {:016x}", mix(trace.to_bits()));
}
