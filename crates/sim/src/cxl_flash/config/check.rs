//! Check of a configuration: it becomes a device that can be simulated, or is refused by key and reason.

use tiermem_base::tier::Amount;
use tiermem_base::units::Bytes;
use tiermem_policy::erase_block_gc::Victim;
use tiermem_policy::evict::Named as Policy;

use super::{Config, ConfigError, Device, Ways};
use crate::cxl_flash::flash::garbage_collection::Rules;
use crate::cxl_flash::flash::{Geometry, Suspension, Technology, Timing};

type Result<T> = std::result::Result<T, ConfigError>;

/// Units are numbered with 32 bits, of which the highest value says "nowhere".
const UNITS_MAX: u64 = u32::MAX as u64 - 1;
const COUNT_MAX: u32 = 1 << 16;

fn refuse<T>(key: &str, why: impl Into<String>) -> Result<T> {
    Err(ConfigError::key(key, why))
}

/// The device of a configuration.
pub fn device(config: &Config) -> Result<Device> {
    let line = config.cache.line;
    if !line.0.is_power_of_two() || !(64..=1 << 20).contains(&line.0) {
        return refuse("cache.line", format!("{line} is no power of two from 64B to 1MiB"));
    }
    let (sets, ways) = sets_and_ways(config)?;
    let policy = policy(config)?;
    let prefetcher = config.prefetch.named().map_err(|(key, why)| ConfigError::key(key, why))?;
    let technology: Technology =
        config.flash.technology.parse().map_err(|why: String| ConfigError::key("flash.technology", why))?;
    numbers(config)?;
    let (geometry, units) = geometry(config)?;
    let suspension =
        |on: bool, time_ns: u64| on.then_some(Suspension { stop_ns: time_ns, least_left_ns: time_ns });
    let flash = &config.flash;
    let timing = Timing {
        memory: technology.promise(),
        transfer_ns_per_byte: 1000.0 / f64::from(flash.mega_transfers),
        read_priority: flash.read_priority,
        suspend_program: suspension(flash.suspend_program, flash.suspend_program_time.0),
        suspend_erase: suspension(flash.suspend_erase, flash.suspend_erase_time.0),
    };
    Ok(Device {
        cleaning: cleaning(config, &geometry, units)?,
        log_units: log_units(config, &geometry)?,
        config: config.clone(),
        units,
        sets,
        ways,
        policy,
        prefetcher,
        geometry,
        timing,
        technology,
    })
}

fn sets_and_ways(config: &Config) -> Result<(u32, u32)> {
    let (size, line) = (config.cache.size, config.cache.line);
    let Ways(ways) = &config.cache.ways;
    if size.0 == 0 {
        return Ok((0, 1));
    }
    if size.0 > config.flash.capacity.0 {
        return refuse(
            "cache.size",
            format!("{size} is more than flash.capacity, {}", config.flash.capacity),
        );
    }
    let lines = size.0 / line.0;
    if lines == 0 || !size.0.is_multiple_of(line.0) || lines > u64::from(u32::MAX >> 4) {
        return refuse("cache.size", format!("{size} is not 1 to 2^28 lines of {line}"));
    }
    let ways = match ways.as_str() {
        "full" => lines,
        text => match text.parse::<u64>() {
            Ok(0) | Err(_) => {
                return refuse("cache.ways", format!("{text:?} is neither a number from 1 on nor full"));
            }
            Ok(ways) => ways,
        },
    };
    if ways > lines || !lines.is_multiple_of(ways) {
        return refuse("cache.ways", format!("{lines} lines cannot be divided into sets of {ways}"));
    }
    Ok(((lines / ways) as u32, ways as u32))
}

fn policy(config: &Config) -> Result<Policy> {
    let cache = &config.cache;
    let policy: Policy = cache.policy.parse().map_err(|why: String| ConfigError::key("cache.policy", why))?;
    if !(1..=4096).contains(&cache.k) {
        return refuse("cache.k", format!("{} is not 1 to 4096", cache.k));
    }
    if !(0.0..=1.0).contains(&cache.window) {
        return refuse("cache.window", format!("{} is not a share from 0 to 1", cache.window));
    }
    Ok(match policy.with_k(cache.k) {
        Policy::Cflru(_) => Policy::Cflru((cache.window * 1024.0).round() as u32),
        policy => policy,
    })
}

/// Numbers that only have to be in their range.
fn numbers(config: &Config) -> Result<()> {
    let Config { host, dram, mshr, prefetch, hints, flash, cleaning, price, .. } = config;
    let counts = [
        ("host.outstanding", host.outstanding, 1),
        ("mshr.entries", mshr.entries, 1),
        ("mshr.merges", mshr.merges, 1),
        ("prefetch.outstanding", prefetch.outstanding, 0),
        ("flash.channels", flash.channels, 1),
        ("flash.ways", flash.ways, 1),
        ("flash.dies", flash.dies, 1),
        ("flash.planes", flash.planes, 1),
        ("flash.pages_per_block", flash.pages_per_block, 2),
        ("flash.mega_transfers", flash.mega_transfers, 1),
        ("flash.queue", flash.queue, 1),
        ("cleaning.wear_difference", cleaning.wear_difference, 1),
        ("hints.lead_requests", hints.lead_requests, 0),
    ];
    if let Some((key, value, least)) =
        counts.into_iter().find(|(_, value, least)| !(*least..=COUNT_MAX).contains(value))
    {
        return refuse(key, format!("{value} is not {least} to {COUNT_MAX}"));
    }
    if flash.planes > 16 {
        return refuse("flash.planes", format!("{} is more than 16", flash.planes));
    }
    let shares = [
        ("hints.probability", hints.probability, 1.0),
        ("hints.top_percent", hints.top_percent, 100.0),
        ("cleaning.free_share", cleaning.free_share, 0.5),
        ("cleaning.filled", cleaning.filled, 1.0),
        ("flash.over_provisioning", flash.over_provisioning, 10.0),
        ("host.link_gb_per_s", host.link_gb_per_s, 1e6),
        ("dram.gb_per_s", dram.gb_per_s, 1e6),
    ];
    if let Amount::Each(_) = price.dram.amount {
        let why = "is for DRAM of one size, and it is compared at two: give price_per_gb";
        return refuse("price.dram.price_each", why);
    }
    if (price.dram.per, &price.dram.currency) != (price.flash.per, &price.flash.currency) {
        return refuse("price.flash", "is not paid as price.dram is: give both the same per and currency");
    }
    // NaN is in no range.
    if let Some((key, value, most)) =
        shares.into_iter().find(|(_, value, most)| !(0.0..=*most).contains(value))
    {
        return refuse(key, format!("{value} is not 0 to {most}"));
    }
    // Slower than a megabyte a second nothing is, and times stay in their range.
    let bandwidths = [("host.link_gb_per_s", host.link_gb_per_s), ("dram.gb_per_s", dram.gb_per_s)];
    if let Some((key, value)) = bandwidths.into_iter().find(|(_, value)| *value > 0.0 && *value < 0.001) {
        return refuse(key, format!("{value} is neither 0 (without bound) nor 0.001 or more"));
    }
    let times = [
        ("host.link_latency", host.link_latency),
        ("dram.latency", dram.latency),
        ("flash.suspend_program_time", flash.suspend_program_time),
        ("flash.suspend_erase_time", flash.suspend_erase_time),
    ];
    match times.into_iter().find(|(_, time)| time.0 > 1_000_000_000) {
        Some((key, time)) => refuse(key, format!("{time} is more than a second")),
        None => Ok(()),
    }
}

fn geometry(config: &Config) -> Result<(Geometry, u64)> {
    let (flash, line) = (&config.flash, config.cache.line);
    let page = flash.page;
    if !page.0.is_multiple_of(line.0) || page.0 == 0 || page.0 / line.0 > 64 {
        return refuse("flash.page", format!("{page} is not 1 to 64 lines of {line} (cache.line)"));
    }
    let units_per_page = (page.0 / line.0) as u32;
    let units = flash.capacity.0 / line.0;
    let planes = [flash.channels, flash.ways, flash.dies, flash.planes]
        .into_iter()
        .try_fold(1u64, |product, count| product.checked_mul(u64::from(count)))
        .filter(|planes| *planes <= u64::from(COUNT_MAX));
    let Some(planes) = planes else {
        return refuse("flash.channels", format!("channels x ways x dies x planes is more than {COUNT_MAX}"));
    };
    let units_per_block = u64::from(flash.pages_per_block) * u64::from(units_per_page);
    // Data in as many blocks as they need, the same number in each plane, and the spare ones.
    let data_blocks = units.div_ceil(planes * units_per_block).max(1);
    let spare = (data_blocks as f64 * flash.over_provisioning).ceil() as u64;
    let blocks_per_plane = data_blocks + spare;
    let spare_least = spare_blocks_least(data_blocks, u64::from(units_per_page), units_per_block);
    if spare < spare_least {
        let least = spare_least as f64 / data_blocks as f64;
        return refuse(
            "flash.over_provisioning",
            format!(
                "{} leaves {spare} spare blocks to each of {planes} planes; cleaning needs {spare_least}: {least:.3} or more, a \
                 larger capacity, or fewer pages in a block",
                flash.over_provisioning
            ),
        );
    }
    let raw = blocks_per_plane.checked_mul(planes * units_per_block).filter(|raw| *raw <= UNITS_MAX);
    if units == 0 || raw.is_none() {
        let most = Bytes(UNITS_MAX / 2 * line.0);
        return refuse(
            "flash.capacity",
            format!(
                "{} is not at least a line and at most about {most} with lines of {line}",
                flash.capacity
            ),
        );
    }
    let geometry = Geometry {
        channels: flash.channels,
        ways: flash.ways,
        dies: flash.dies,
        planes: flash.planes,
        blocks_per_plane: blocks_per_plane as u32,
        pages_per_block: flash.pages_per_block,
        units_per_page,
        unit_bytes: line.0 as u32,
    };
    Ok((geometry, units))
}

/// Spare blocks that a plane must have so that cleaning always finds a block that frees space.
///
/// One open for writes, one open for cleaning, one free for cleaning, and one whose worth of data is invalid. Beyond that, moved
/// data fill whole pages, so each filled block may hold up to a unit less than a page of invalid data that cannot be reclaimed.
fn spare_blocks_least(data_blocks: u64, units_per_page: u64, units_per_block: u64) -> u64 {
    // With s spare blocks (data + s) x (units_per_page - 1) units may be lost, of s - 3 blocks at most.
    let lost = units_per_page - 1;
    let least =
        (data_blocks * lost + 3 * units_per_block).div_ceil(units_per_block.saturating_sub(lost).max(1));
    least.max(4)
}

fn cleaning(config: &Config, geometry: &Geometry, units: u64) -> Result<Rules> {
    let cleaning = &config.cleaning;
    let victim = match cleaning.policy.as_str() {
        "greedy" => Victim::Greedy,
        "cost-benefit" => Victim::CostBenefit,
        other => return refuse("cleaning.policy", format!("{other:?} is neither greedy nor cost-benefit")),
    };
    let (dynamic, leveled) = match cleaning.wear_levelling.as_str() {
        "none" => (false, false),
        "dynamic" => (true, false),
        "static" => (true, true),
        other => {
            return refuse("cleaning.wear_levelling", format!("{other:?} is none of none, dynamic, static"));
        }
    };
    let free_blocks = (f64::from(geometry.blocks_per_plane) * cleaning.free_share).ceil() as u32;
    Ok(Rules {
        victim,
        free_blocks: free_blocks.clamp(2, 2 + geometry.blocks_per_plane / 2),
        dynamic,
        wear_difference: leveled.then_some(cleaning.wear_difference),
        filled_units: (units as f64 * cleaning.filled) as u64,
    })
}

fn log_units(config: &Config, geometry: &Geometry) -> Result<u32> {
    let (log, line) = (config.flash.write_log, config.cache.line);
    let units = log.0 / line.0;
    if log.0 > 0 && units < u64::from(geometry.units_per_page) {
        let page = config.flash.page;
        return refuse("flash.write_log", format!("{log} holds no page of {page}; 0 turns it off"));
    }
    u32::try_from(units)
        .ok()
        .filter(|units| *units <= 1 << 24)
        .map_or_else(|| refuse("flash.write_log", format!("{log} is more than 2^24 lines")), Ok)
}
