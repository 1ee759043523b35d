//! Total cost of memory.
//!
//! Source: Yang 2024, section 4.2, equations 4.1 and 4.2.

/// Price of DRAM per GB (10^9 bytes), as cited there, in dollars.
pub const DRAM_PER_GB: f64 = 4.875;
/// Price of NVMe flash per GB, as cited there, in dollars.
pub const FLASH_PER_GB: f64 = 0.16;

/// DRAM for a program that needs `required_bytes`, at an overcommit ratio (equation 4.1).
pub fn dram_bytes(required_bytes: u64, overcommit: f64) -> u64 {
    (required_bytes as f64 / overcommit.max(1.0)) as u64
}

/// The part of the cost of memory that is saved (equation 4.2), with the flash that was really used in the place of what DRAM lacks; below
/// 0 where more is paid. `None` for a program that needs nothing.
pub fn saved(required_bytes: u64, dram_bytes: u64, flash_bytes: u64) -> Option<f64> {
    let all_in_dram = required_bytes as f64 * DRAM_PER_GB;
    let hybrid = dram_bytes as f64 * DRAM_PER_GB + flash_bytes as f64 * FLASH_PER_GB;
    (required_bytes > 0).then(|| 1.0 - hybrid / all_in_dram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_those_of_figure_4_7() {
        const REQUIRED: u64 = 64 << 30;
        let at = |overcommit| {
            let dram = dram_bytes(REQUIRED, overcommit);
            saved(REQUIRED, dram, REQUIRED - dram).unwrap()
        };
        assert_eq!(at(1.0), 0.0);
        // "32%" and "72.5%".
        assert!(
            (at(1.5) - 0.322).abs() < 0.001 && (at(4.0) - 0.725).abs() < 0.001,
            "{} {}",
            at(1.5),
            at(4.0)
        );
        assert_eq!(saved(0, 1, 1), None);
        assert_eq!(dram_bytes(1000, 0.5), 1000);
    }
}
