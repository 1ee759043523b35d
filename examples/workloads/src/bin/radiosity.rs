//! A hierarchical radiosity solver: how light spreads between the surfaces of a room.
//!
//! After Hanrahan, Salzman and Aupperle (SIGGRAPH 1991): surfaces are quad-trees of elements; two elements exchange light by one
//! link as long as the link is coarse enough for both. Light is gathered over the links, and pushed and pulled through the
//! trees, a few rounds; then all links are refined, the larger end of each split, and so on until memory of the size asked for
//! is full. Links are gone through in order, so the locality is high.
#![forbid(unsafe_code)]

use tiermem_workloads::{Rng, mix, settings};

#[derive(Clone, Copy)]
struct Element {
    centre: [f32; 3],
    normal: [f32; 3],
    area: f32,
    emitted: f32,
    reflectance: f32,
    gathered: f32,
    radiosity: f32,
    /// The first of four; 0 for none.
    children: u32,
}

#[derive(Clone, Copy)]
struct Link {
    to: u32,
    from: u32,
    form_factor: f64,
}

fn main() {
    let [footprint, surfaces, rounds, iterations, seed] = settings(
        "Computes how light spreads between random surfaces in a room.",
        [
            ("footprint", 1600 << 20, "bytes of elements and links"),
            ("surfaces", 256, "surfaces in the room"),
            ("rounds", 4, "rounds of light before each refinement"),
            ("iterations", 50, "rounds of light when memory is full"),
            ("seed", 1, "of the room"),
        ],
    );
    let mut elements = room(surfaces.clamp(2, 1 << 14) as u32, &mut Rng::new(seed));
    let roots = elements.len() as u32;
    let mut links = coarsest(&elements, footprint);
    loop {
        spread(&mut elements, &links, roots, rounds);
        if !refine(&mut elements, &mut links, footprint) {
            break;
        }
    }
    spread(&mut elements, &links, roots, iterations);
    let light: f64 = elements[..roots as usize].iter().map(|it| f64::from(it.radiosity * it.area)).sum();
    println!(
        "radiosity: {} elements, {} links, checksum {:016x}",
        elements.len(),
        links.len(),
        mix(light.to_bits())
    );
}

/// Rounds of light over the links that there are.
fn spread(elements: &mut [Element], links: &[Link], roots: u32, rounds: u64) {
    for _ in 0..rounds {
        gather(elements, links);
        for root in 0..roots {
            push_pull(elements, root, 0.0);
        }
    }
}

/// Squares of different size at random places that face the middle; every eighth is a lamp.
fn room(surfaces: u32, rng: &mut Rng) -> Vec<Element> {
    let mut surface = |number: u32| {
        let centre = [(); 3].map(|()| rng.share() as f32 * 2.0 - 1.0);
        let length = centre.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-3);
        Element {
            centre,
            normal: centre.map(|x| -x / length),
            area: 0.01 + 0.04 * rng.share() as f32,
            emitted: if number.is_multiple_of(8) { 1.0 } else { 0.0 },
            reflectance: 0.3 + 0.5 * rng.share() as f32,
            gathered: 0.0,
            radiosity: 0.0,
            children: 0,
        }
    };
    (0..surfaces).map(&mut surface).collect()
}

/// The share of the light leaving `from` that falls on `to`, as if both were discs.
fn form_factor(to: &Element, from: &Element) -> f32 {
    let way = [0, 1, 2].map(|axis| from.centre[axis] - to.centre[axis]);
    let square = way.iter().map(|x| x * x).sum::<f32>();
    let dot = |normal: &[f32; 3]| normal.iter().zip(&way).map(|(a, b)| a * b).sum::<f32>();
    let cosines = dot(&to.normal).max(0.0) * (-dot(&from.normal)).max(0.0) / square.max(1e-6);
    cosines * from.area / (std::f32::consts::PI * square + from.area)
}

fn link(elements: &[Element], to: u32, from: u32) -> Link {
    Link { to, from, form_factor: f64::from(form_factor(&elements[to as usize], &elements[from as usize])) }
}

/// Links between all surfaces that see each other, with room for what will become of them.
fn coarsest(elements: &[Element], footprint: u64) -> Vec<Link> {
    let roots = elements.len() as u32;
    let mut links = Vec::with_capacity(footprint as usize / size_of::<Link>());
    for to in 0..roots {
        let all = (0..roots).filter(|from| *from != to).map(|from| link(elements, to, from));
        links.extend(all.filter(|link| link.form_factor > 0.0));
    }
    links
}

/// Splits each link once, at its larger end. `false`: memory is full, or nothing could be split.
fn refine(elements: &mut Vec<Element>, links: &mut Vec<Link>, footprint: u64) -> bool {
    let before = links.len();
    for at in 0..before {
        let bytes = elements.len() * size_of::<Element>() + (links.len() + 3) * size_of::<Link>();
        if bytes as u64 > footprint {
            return false;
        }
        let Link { to, from, form_factor } = links[at];
        if form_factor > 1e-9 {
            let is_to = elements[to as usize].area > elements[from as usize].area;
            let first = split(elements, if is_to { to } else { from });
            for child in first..first + 4 {
                let part = if is_to { link(elements, child, from) } else { link(elements, to, child) };
                // The first takes the place of what was split.
                if child == first { links[at] = part } else { links.push(part) }
            }
        }
    }
    links.len() > before
}

/// The first of the element's four children.
fn split(elements: &mut Vec<Element>, at: u32) -> u32 {
    let parent = elements[at as usize];
    if parent.children == 0 {
        let first = elements.len() as u32;
        elements[at as usize].children = first;
        // Two directions within the surface, any two that are square to its normal.
        let [x, y, z] = parent.normal;
        let across = if x.abs() < 0.9 { [0.0, z, -y] } else { [-z, 0.0, x] };
        let length = across.iter().map(|it| it * it).sum::<f32>().sqrt();
        let across = across.map(|it| it / length);
        let along = [0, 1, 2].map(|axis| {
            let (b, c) = ((axis + 1) % 3, (axis + 2) % 3);
            parent.normal[b] * across[c] - parent.normal[c] * across[b]
        });
        let quarter = parent.area.sqrt() / 4.0;
        for (a, b) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)] {
            let centre =
                [0, 1, 2].map(|axis| parent.centre[axis] + quarter * (a * across[axis] + b * along[axis]));
            elements.push(Element { centre, area: parent.area / 4.0, children: 0, ..parent });
        }
    }
    elements[at as usize].children
}

fn gather(elements: &mut [Element], links: &[Link]) {
    for link in links {
        let light = link.form_factor as f32 * elements[link.from as usize].radiosity;
        elements[link.to as usize].gathered += light;
    }
}

/// Hands what an element has gathered down to its parts, and takes the mean of theirs.
fn push_pull(elements: &mut [Element], at: u32, from_above: f32) -> f32 {
    let element = elements[at as usize];
    let down = from_above + element.reflectance * element.gathered;
    elements[at as usize].gathered = 0.0;
    let radiosity = match element.children {
        0 => element.emitted + down,
        first => (first..first + 4).map(|child| push_pull(elements, child, down)).sum::<f32>() / 4.0,
    };
    elements[at as usize].radiosity = radiosity;
    radiosity
}
