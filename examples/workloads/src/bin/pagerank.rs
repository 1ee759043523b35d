//! PageRank on a Kronecker graph, in the three phases that Yang 2023 sees in its trace (figure 16): the edges are loaded, the
//! graph is built, the scores are computed.
//!
//! The graph is R-MAT with the parameters of Graph 500: each bit of an edge's ends falls into one of four quarters with
//! probabilities 0.57, 0.19, 0.19 and 0.05. It is kept as compressed rows of incoming edges, and each vertex pulls what
//! its neighbours give.
#![forbid(unsafe_code)]

use std::time::Instant;

use tiermem_workloads::{Rng, mix, settings};

const A: f64 = 0.57;
const B: f64 = 0.19;
const C: f64 = 0.19;
/// The share of its score that a vertex passes on.
const DAMPING: f32 = 0.85;

/// Edges that come into each vertex: those of `v` are `sources[starts[v]..starts[v + 1]]`.
struct Graph {
    starts: Vec<u64>,
    sources: Vec<u32>,
    outgoing: Vec<u32>,
}

fn main() {
    let [scale, degree, iterations, seed] = settings(
        "Computes PageRank of a Kronecker graph with 2^SCALE vertices.",
        [
            ("scale", 22, "binary logarithm of the number of vertices, at most 31"),
            ("degree", 16, "edges of a vertex, on average"),
            ("iterations", 20, "rounds of scores"),
            ("seed", 1, "of the graph"),
        ],
    );
    let scale = scale.min(31) as u32;
    let mut begun = Instant::now();
    let mut phase = |name: &str| {
        eprintln!("pagerank: {name}, after {:.3} s", begun.elapsed().as_secs_f64());
        begun = Instant::now();
    };
    phase("loading edges");
    let edges = edges(scale, degree, &mut Rng::new(seed));
    phase("building the graph");
    let graph = build(1 << scale, &edges);
    drop(edges);
    phase("computing scores");
    let scores = scores(&graph, iterations);
    phase("done");
    let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0);
    let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
    println!("pagerank: best vertex {best}, sum {sum:.6}, checksum {:016x}", mix(sum.to_bits()));
}

fn edges(scale: u32, degree: u64, rng: &mut Rng) -> Vec<(u32, u32)> {
    let count = degree << scale;
    let mut edges = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (mut from, mut to) = (0, 0);
        for _ in 0..scale {
            let quarter = rng.share();
            let down = quarter >= A + B;
            let right = if down { quarter >= A + B + C } else { quarter >= A };
            from = from << 1 | u32::from(down);
            to = to << 1 | u32::from(right);
        }
        edges.push((from, to));
    }
    edges
}

fn build(vertices: usize, edges: &[(u32, u32)]) -> Graph {
    let mut starts = vec![0u64; vertices + 1];
    let mut outgoing = vec![0u32; vertices];
    for (from, to) in edges {
        outgoing[*from as usize] += 1;
        starts[*to as usize + 1] += 1;
    }
    for vertex in 0..vertices {
        starts[vertex + 1] += starts[vertex];
    }
    let mut next = starts.clone();
    let mut sources = vec![0; edges.len()];
    for (from, to) in edges {
        let place = &mut next[*to as usize];
        sources[*place as usize] = *from;
        *place += 1;
    }
    Graph { starts, sources, outgoing }
}

fn scores(graph: &Graph, iterations: u64) -> Vec<f32> {
    let vertices = graph.outgoing.len();
    let base = (1.0 - DAMPING) / vertices as f32;
    let mut scores = vec![1.0 / vertices as f32; vertices];
    let mut given = vec![0.0; vertices];
    for _ in 0..iterations {
        for ((given, score), outgoing) in given.iter_mut().zip(&scores).zip(&graph.outgoing) {
            *given = score / (*outgoing).max(1) as f32;
        }
        for (vertex, score) in scores.iter_mut().enumerate() {
            let incoming = graph.starts[vertex] as usize..graph.starts[vertex + 1] as usize;
            let sum: f32 = graph.sources[incoming].iter().map(|source| given[*source as usize]).sum();
            *score = base + DAMPING * sum;
        }
    }
    scores
}
