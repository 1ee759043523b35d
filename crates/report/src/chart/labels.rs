//! Labels beside lines: in the order of the lines, as near to them as possible without overlap.

/// Moves places, one for each name, apart until they are `gap` from each other and within `range`; the order stays, and equal
/// ones keep the order given. Shifts are small: neighbours that are too close move as one block around their middle.
pub fn spread(places: &[f64], gap: f64, range: (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    // Blocks of names that touch: where the first one stands, and how many they are.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for &at in &order {
        let mut block = (places[at], 1);
        while let Some(&(start, count)) = blocks.last() {
            if start + count as f64 * gap <= block.0 {
                break;
            }
            blocks.pop();
            // The middle of both, weighted; each wants its own.
            let joined = count + block.1;
            let wanted = start * count as f64 + (block.0 - count as f64 * gap) * block.1 as f64;
            block = (wanted / joined as f64, joined);
        }
        let length = (block.1 - 1) as f64 * gap;
        block.0 = block.0.min(range.1 - length).max(range.0);
        blocks.push(block);
    }
    // What was held at the end of the range may have come over the block before it: pushed back from the end.
    let mut limit = range.1 + gap;
    for block in blocks.iter_mut().rev() {
        block.0 = block.0.min(limit - block.1 as f64 * gap);
        limit = block.0;
    }
    let mut result = vec![0.0; places.len()];
    let stands = blocks.iter().flat_map(|&(start, count)| (0..count).map(move |at| start + at as f64 * gap));
    for (&at, place) in order.iter().zip(stands) {
        result[at] = place;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_order() {
        let cases: [&[f64]; 6] = [
            &[],
            &[50.0],
            &[50.0, 50.0, 50.0],
            &[10.0, 90.0, 12.0],
            &[99.0, 98.0, 97.0, 96.0],
            &[0.0, 1.0, 60.0, 61.0],
        ];
        for places in cases {
            let spread = spread(places, 10.0, (0.0, 100.0));
            let mut sorted: Vec<(f64, f64)> = places.iter().copied().zip(spread.iter().copied()).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            assert!(
                sorted.windows(2).all(|two| two[1].1 - two[0].1 >= 10.0 - 1e-9),
                "{places:?}: {spread:?}"
            );
            assert!(spread.iter().all(|at| (0.0..=100.0).contains(at)), "{spread:?}");
        }
        assert_eq!(spread(&[20.0, 80.0], 10.0, (0.0, 100.0)), [20.0, 80.0]);
        assert_eq!(spread(&[50.0, 50.0], 10.0, (0.0, 100.0)), [45.0, 55.0]);
    }
}
