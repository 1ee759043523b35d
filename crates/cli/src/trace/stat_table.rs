//! Statistics of a trace for people.

use std::io::{self, Write};

use tiermem_base::{Bytes, Nanos};
use tiermem_report::grouped;
use tiermem_trace::stat::{DistributionStat, TraceStat};

use crate::print_lines::{self, percent};

/// Tenants that are listed; the rest is summed up.
const TENANTS_SHOWN: usize = 20;

/// Prints them to standard output.
pub fn print(stat: &TraceStat) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write(&mut out, stat)?;
    out.flush()
}

fn write(out: &mut impl Write, stat: &TraceStat) -> io::Result<()> {
    let mut line = |name: &str, value: String, remark: String| print_lines::line(out, name, value, remark);
    let none = String::new;
    let estimated = if stat.sample_rate < 1.0 {
        format!(", estimated from {} of the keys", percent(stat.sample_rate))
    } else {
        none()
    };
    line("requests", grouped(stat.requests), none())?;
    line(
        "unique keys",
        grouped(stat.unique_keys),
        format!("{} of requests miss in any cache{estimated}", percent(stat.compulsory_miss_ratio)),
    )?;
    line("one-hit keys", grouped(stat.one_hit_keys), format!("{} of keys", percent(stat.one_hit_ratio)))?;
    line(
        "working set",
        Bytes(stat.working_set_bytes).to_string(),
        format!("requested {}", Bytes(stat.requested_bytes)),
    )?;
    let ratio =
        stat.read_write_ratio.map_or_else(|| "no writes".to_owned(), |ratio| format!("{ratio:.2} : 1"));
    let deletes = if stat.deletes > 0 { format!(", deletes {}", grouped(stat.deletes)) } else { none() };
    line(
        "reads : writes",
        ratio,
        format!("reads {}, writes {}{deletes}", grouped(stat.reads), grouped(stat.writes)),
    )?;
    let rate = stat.requests_per_second.map_or_else(none, |rate| format!("{rate:.1} requests/s"));
    line("duration", Nanos(stat.duration_ns).to_string(), rate)?;
    if stat.time_steps_back > 0 {
        line("time steps back", grouped(stat.time_steps_back), none())?;
    }
    if let Some(zipf) = stat.zipf {
        let likelihood = zipf.alpha_likelihood.zip(zipf.ks_distance);
        let likelihood = likelihood.map_or_else(none, |(alpha, ks)| {
            format!("; by maximum likelihood {alpha:.3}, KS distance {ks:.3}")
        });
        let remark = format!("least squares, R2 {:.3}{likelihood}", zipf.r_squared);
        line("Zipf alpha", format!("{:.3}", zipf.alpha_least_squares), remark)?;
    }
    let spatial = &stat.spatial;
    line(
        "sequential",
        percent(spatial.sequential_share),
        format!(
            "runs of {:.1} on average, at most {}",
            spatial.run_length_mean,
            grouped(spatial.run_length_max)
        ),
    )?;
    let near = spatial.near.iter().map(|near| format!("{}: {}", near.blocks, percent(near.share)));
    let near = near.collect::<Vec<_>>().join("  ");
    let blocks = format!("blocks of {}", spatial.block);
    line("near the last 32", blocks, format!("at most so many blocks away  {near}"))?;

    if let Some(addresses) = &stat.addresses {
        let remark = format!(
            "locality, 0 to 1: in space {:.2}, in time {:.2}",
            addresses.spatial_locality, addresses.temporal_locality
        );
        line("footprint", Bytes(addresses.footprint_bytes).to_string(), remark)?;
    }

    writeln!(out, "\noperation          requests    share   requested")?;
    for op in &stat.ops {
        let bytes = Bytes(op.requested_bytes).to_string();
        writeln!(out, "{:<9}{:>18}{:>9}{bytes:>12}", op.op, grouped(op.requests), percent(op.share))?;
    }
    if stat.tenants.len() > 1 {
        write_tenants(out, stat)?;
    }
    write_columns(out, stat)?;
    write_distributions(out, stat)
}

/// The optional columns, if the trace has any: each value of nodes and levels, the range of others.
fn write_columns(out: &mut impl Write, stat: &TraceStat) -> io::Result<()> {
    for column in &stat.columns {
        writeln!(out, "\n{:<9}{} to {}", column.column, column.min, column.max)?;
        for value in &column.values {
            let (requests, share) = (grouped(value.requests), percent(value.share));
            writeln!(out, "{:>9}{requests:>18}{share:>9}", value.value)?;
        }
    }
    Ok(())
}

fn write_tenants(out: &mut impl Write, stat: &TraceStat) -> io::Result<()> {
    writeln!(out, "\n    tenant         requests    share   requested        unique keys  working set")?;
    for tenant in stat.tenants.iter().take(TENANTS_SHOWN) {
        let (requested, set) = (Bytes(tenant.requested_bytes), Bytes(tenant.working_set_bytes));
        writeln!(
            out,
            "{:>10}{:>17}{:>9}{:>12}{:>19}{:>13}",
            tenant.tenant,
            grouped(tenant.requests),
            percent(tenant.share),
            requested.to_string(),
            grouped(tenant.unique_keys),
            set.to_string()
        )?;
    }
    if stat.tenants.len() > TENANTS_SHOWN {
        writeln!(out, "and {} more; --format csv lists all", stat.tenants.len() - TENANTS_SHOWN)?;
    }
    Ok(())
}

fn write_distributions(out: &mut impl Write, stat: &TraceStat) -> io::Result<()> {
    const COLUMNS: [&str; 8] = ["", "min", "mean", "p50", "p90", "p99", "max", "by powers of two"];
    let unit: [fn(u64) -> String; 5] =
        [|n| Bytes(n).to_string(), |n| Nanos(n).to_string(), grouped, grouped, grouped];
    let labels =
        ["size", "inter-arrival", "reuse time, requests", "stack distance, keys", "accesses of a key"];
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    for (((_, distribution), unit), label) in stat.distributions().into_iter().zip(unit).zip(labels) {
        if let Some(d) = distribution {
            let [min, mean, p50, p90, p99, max] =
                [d.min, d.mean.round() as u64, d.p50, d.p90, d.p99, d.max].map(unit);
            lines.push([label.to_owned(), min, mean, p50, p90, p99, max, bars(d)]);
        }
    }
    writeln!(out)?;
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    for line in &lines {
        let mut text = format!("{:<1$}", line[0], width(0));
        for (column, cell) in line.iter().enumerate().take(COLUMNS.len() - 1).skip(1) {
            text += &format!("  {cell:>0$}", width(column));
        }
        writeln!(out, "{}", format!("{text}  {}", line[COLUMNS.len() - 1]).trim_end())?;
    }
    Ok(())
}

/// A bar for each class of the histogram, from the smallest value's to the largest one's.
fn bars(distribution: &DistributionStat) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = distribution.histogram.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let bar = |count: u64| match count {
        0 => ' ',
        // Rounded up, so that what is there is seen.
        _ => BARS[((count as f64 / largest as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    distribution.histogram.iter().map(|bucket| bar(bucket.count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_trace::stat::{Bucket, StatOptions, collect};

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn bars_show_whatever_is_there() {
        let bucket = |count| Bucket { from: 0, to: 0, count };
        let histogram = [0, 1, 500, 1000].map(bucket).to_vec();
        let distribution = DistributionStat {
            count: 1501,
            min: 0,
            mean: 0.0,
            p50: 0,
            p90: 0,
            p99: 0,
            p999: 0,
            max: 0,
            histogram,
        };
        assert_eq!(bars(&distribution), " ▁▄█");
    }

    #[test]
    fn every_trace_can_be_printed() {
        for spec in ["zipf:requests=0", "zipf:requests=1", "mix:zipf+ycsb-a(objects=10),requests=1000"] {
            let trace = tiermem_trace::open(spec).unwrap();
            let accesses: Vec<_> = trace.map(|access| access.unwrap()).collect();
            let mut out = Vec::new();
            write(&mut out, &collect(&accesses, StatOptions::default())).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(
                text.starts_with("requests") && text.lines().all(|line| line == line.trim_end()),
                "{text}"
            );
        }
    }
}
