//! Prices of hit ratios.

use std::fmt::Write;

use tiermem_base::tier::{Amount, Per};
use tiermem_model::cost::{Cost, Offer};

use super::{escape, policy_name};
use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::gather::Report;
use crate::quantity::{Quantity, grouped, trimmed};

/// Number of caches like this one that are priced together: a
/// power of a thousand, so that sums are at least some dollars.
fn caches(report: &Report) -> f64 {
    let whole = report.costs.last().map_or(0.0, |cost| cost.all_fast);
    [1.0, 1e3, 1e6].into_iter().find(|count| whole * count >= 1.0).unwrap_or(1e9)
}

/// The words for a sum over this number of caches.
fn per_month(count: f64) -> String {
    if count == 1.0 {
        "a month".to_owned()
    } else {
        format!("a month for {} caches like this", grouped(count as u64))
    }
}

/// A price as given, and its source.
fn offered(offer: &Offer) -> String {
    let (Amount::PerGb(amount) | Amount::Each(amount)) = offer.price.amount;
    // A price for all of a tier, by the gigabyte, has no end of digits.
    let amount = (amount * 1e4).round() / 1e4;
    let per = match offer.price.per {
        Per::Once => "",
        Per::Month => " a month",
        Per::Hour => " an hour",
    };
    let date = offer.price.date.as_deref().map_or(String::new(), |date| format!(", {date}"));
    let source = match &offer.price.source {
        Some(source) => format!(" ({}{})", escape(source), escape(&date)),
        None => escape(&date),
    };
    format!("{} at ${amount} a GB{per}{source}", escape(&offer.name))
}

/// The total, where misses have a price.
fn total(cost: &Cost) -> Option<f64> {
    cost.misses.map(|misses| cost.tiered + misses)
}

/// The memory that costs least together with the misses that it leaves.
fn cheapest(report: &Report) -> Option<(&Cost, f64)> {
    let totals = report.costs.iter().filter_map(|cost| total(cost).map(|total| (cost, total)));
    totals.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The chart; none where sizes are not in bytes.
pub fn chart(report: &Report) -> Option<Chart> {
    let last = report.costs.last()?;
    let count = caches(report);
    let (fast, slow) = (&report.prices.fast.name[..], &report.prices.slow.name[..]);
    let line = |name: &str, colour, of: &dyn Fn(&Cost) -> Option<f64>| Mark::Line {
        name: name.to_owned(),
        colour,
        dashed: false,
        told: true,
        points: report
            .costs
            .iter()
            .filter_map(|cost| of(cost).map(|y| At::new(cost.hit_ratio, y * count)))
            .collect(),
    };
    let mut marks = vec![
        line(fast, Colour::Distinct(1), &|cost| Some(cost.all_fast)),
        line(slow, Colour::Distinct(0), &|cost| Some(cost.all_slow)),
        line(&format!("{fast} + {slow}"), Colour::Distinct(2), &|cost| Some(cost.tiered)),
    ];
    let mut largest = last.all_fast.max(last.all_slow) * count;
    let finding = match cheapest(report) {
        Some((cost, total_cost)) => {
            // Misses of tiny caches would squeeze everything else.
            largest = largest.max(3.0 * total_cost * count);
            let shown = |cost: &Cost| total(cost).filter(|total| total * count <= largest);
            marks.push(line("with misses", Colour::Distinct(3), &shown));
            marks.push(Mark::Rule { x: cost.hit_ratio, name: "cheapest".to_owned() });
            format!(
                "Memory and misses together cost least at a hit ratio of {}: {} {} of {}.",
                Quantity::Share.tick(cost.hit_ratio),
                Quantity::Money.text(total_cost * count),
                per_month(count),
                report.size_text(cost.bytes)
            )
        }
        None => {
            let half =
                report.costs.iter().find(|cost| cost.hit_ratio >= 0.9 * last.hit_ratio).unwrap_or(last);
            format!(
                "The last tenth of the hits costs {} times what the first nine cost together. {fast} + {slow}: {fast} where \
                 {} of the hits are, {slow} for the rest.",
                trimmed((last.tiered - half.tiered) / half.tiered.max(f64::MIN_POSITIVE), 2),
                Quantity::Share.tick(report.prices.fast_hit_share)
            )
        }
    };
    Some(Chart {
        id: "prices",
        title: "What each hit ratio costs".to_owned(),
        finding,
        x: Axis::up_to("hits of all requests", Quantity::Share, last.hit_ratio),
        y: Axis::from_zero(&format!("dollars {}", per_month(count)), Quantity::Money, largest),
        marks,
    })
}

/// Round hit ratios and what they need.
pub fn table(report: &Report, out: &mut String) {
    let Some(last) = report.costs.last() else { return };
    let (prices, count) = (&report.prices, caches(report));
    let (fast, slow) = (escape(&prices.fast.name), escape(&prices.slow.name));
    let priced = report.costs.iter().any(|cost| cost.misses.is_some());
    let _ = write!(
        out,
        "<section class=\"card\" id=\"costs\"><h3>Prices</h3><div class=\"scroll\"><table><thead><tr><th>hit ratio</th><th>memory</th>\
         <th>of it {fast}</th><th>all {fast}</th><th>all {slow}</th><th>{fast} + {slow}</th>{}</tr></thead><tbody>",
        if priced { "<th>misses</th><th>together</th>" } else { "" }
    );
    let mut rows: Vec<&Cost> = Vec::new();
    for share in [0.25, 0.5, 0.75, 0.9, 0.95, 0.99] {
        let wanted = share * last.hit_ratio;
        if let Some(cost) = report.costs.iter().find(|cost| cost.hit_ratio >= wanted - 1e-9) {
            rows.push(cost);
        }
    }
    rows.push(last);
    rows.dedup_by_key(|cost| cost.hit_ratio.to_bits());
    for cost in rows {
        let _ = write!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            Quantity::Share.tick(cost.hit_ratio),
            Quantity::Bytes.text(cost.bytes),
            Quantity::Bytes.text(cost.fast_bytes),
            Quantity::Money.text(cost.all_fast * count),
            Quantity::Money.text(cost.all_slow * count),
            Quantity::Money.text(cost.tiered * count),
        );
        if let Some((misses, total)) = cost.misses.zip(total(cost)) {
            let _ = write!(
                out,
                "<td>{}</td><td>{}</td>",
                Quantity::Money.text(misses * count),
                Quantity::Money.text(total * count)
            );
        }
        *out += "</tr>";
    }
    let misses = match prices.per_million_misses {
        Some(price) if priced => format!(" A million misses cost {}.", Quantity::Money.text(price)),
        Some(_) => " The trace tells no times, so the cost of misses per month is unknown.".to_owned(),
        None => " Misses are taken to cost nothing.".to_owned(),
    };
    let once = match [&prices.fast, &prices.slow].map(|offer| offer.price.per) {
        [Per::Once, Per::Once] => format!(", bought once and used for {} months", trimmed(prices.months, 3)),
        [Per::Once, _] | [_, Per::Once] => {
            format!("; what is bought once is used for {} months", trimmed(prices.months, 3))
        }
        _ => String::new(),
    };
    let _ = write!(
        out,
        "</tbody></table></div><p class=\"note\">Dollars {}, under {}: {} and {}{once}; values alone, without what a store \
         keeps about them.{misses}</p></section>",
        per_month(count),
        policy_name(report.bought),
        offered(&prices.fast),
        offered(&prices.slow),
    );
}
