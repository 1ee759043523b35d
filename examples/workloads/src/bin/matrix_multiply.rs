//! Multiplies many small matrices, each of which lies in a piece of memory of its own.
#![forbid(unsafe_code)]

use tiermem_workloads::{mix, settings};

const N: usize = 4;
type Matrix = [[f64; N]; N];
/// Three matrices, each with what the allocator and the list of pointers add.
const TRIPLE_BYTES: u64 = 3 * (size_of::<Matrix>() as u64 + 16 + 8);

fn main() {
    let [footprint, rounds, seed] = settings(
        "Multiplies pairs of 4 x 4 matrices, each reached through a pointer, again and again.",
        [
            ("footprint", 900 << 20, "bytes of factors and products"),
            ("rounds", 20, "times that all are multiplied"),
            ("seed", 1, "of the numbers in the matrices"),
        ],
    );
    let count = (footprint / TRIPLE_BYTES).max(1);
    let filled = |first: u64| -> Vec<Box<Matrix>> {
        (first..first + count).map(|number| Box::new([[f64::from(number as i32); N]; N])).collect()
    };
    let (a, b) = (filled(seed), filled(seed.rotate_left(16)));
    let mut products = filled(0);
    for _ in 0..rounds {
        for ((product, a), b) in products.iter_mut().zip(&a).zip(&b) {
            multiply(a, b, product);
        }
    }
    let trace: f64 = products.iter().map(|it| (0..N).map(|at| it[at][at]).sum::<f64>()).sum();
    println!("matrix_multiply: {count} products, checksum {:016x}", mix(trace.to_bits()));
}

fn multiply(a: &Matrix, b: &Matrix, product: &mut Matrix) {
    for (out, row) in product.iter_mut().zip(a) {
        *out = [0.0; N];
        for (factor, of) in row.iter().zip(b) {
            for (sum, value) in out.iter_mut().zip(of) {
                *sum += factor * value;
            }
        }
    }
}
