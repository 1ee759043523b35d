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
            ("scale", 20, "binary logarithm of the number of vertices, at most 31"),
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

/// The bits that four levels give to both ends of an edge, the first end's in the upper half, in as many of 65,536 places as
/// they are likely: one random number of 16 bits draws four levels.
fn quarters() -> Vec<u8> {
    let mut table = Vec::with_capacity(1 << 16);
    let mut likely = 0.0;
    for ends in 0..=255u8 {
        let level = |at: u8| match (ends >> (4 + at) & 1, ends >> at & 1) {
            (0, 0) => A,
            (0, _) => B,
            (_, 0) => C,
            _ => 1.0 - A - B - C,
        };
        likely += (0..4).map(level).product::<f64>();
        table.resize((likely * 65536.0).round() as usize, ends);
    }
    table.resize(1 << 16, u8::MAX);
    table
}

fn edges(scale: u32, degree: u64, rng: &mut Rng) -> Vec<(u32, u32)> {
    let count = degree << scale;
    let mut edges = Vec::with_capacity(count as usize);
    let quarters = quarters();
    // Four levels at a time; what is beyond the scale is cut off, as all levels are alike.
    let groups = scale.div_ceil(4);
    for _ in 0..count {
        let (mut from, mut to, mut random) = (0, 0, 0);
        for group in 0..groups {
            random = if group % 4 == 0 { rng.number() } else { random >> 16 };
            let ends = u32::from(quarters[random as usize & 0xffff]);
            from = from << 4 | ends >> 4;
            to = to << 4 | ends & 15;
        }
        edges.push((from >> (groups * 4 - scale), to >> (groups * 4 - scale)));
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
