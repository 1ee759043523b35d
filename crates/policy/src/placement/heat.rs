//! Heat of granules: access counts that decay.

/// Accesses of granules, each worth less the longer ago it was.
#[derive(Clone, Debug)]
pub(super) struct Decaying {
    heat: Vec<f32>,
    /// When `heat` was last brought down.
    at_ns: u64,
    half_life_ns: u64,
}

impl Decaying {
    pub fn new(granules: u32, half_life_ns: u64) -> Self {
        Decaying { heat: vec![0.0; granules as usize], at_ns: 0, half_life_ns: half_life_ns.max(1) }
    }

    /// Adds the accesses until `now_ns`.
    pub fn add(&mut self, now_ns: u64, accesses: &[(u32, f32)]) {
        let passed = now_ns.saturating_sub(self.at_ns) as f32 / self.half_life_ns as f32;
        self.at_ns = self.at_ns.max(now_ns);
        let keep = (-passed).exp2();
        self.heat.iter_mut().for_each(|heat| *heat *= keep);
        for (granule, accesses) in accesses {
            if let Some(heat) = self.heat.get_mut(*granule as usize) {
                *heat += accesses;
            }
        }
    }

    pub fn of(&self, granule: u32) -> f32 {
        self.heat.get(granule as usize).copied().unwrap_or(0.0)
    }
}
