//! Page of two recordings: their regions side by side, and maps on one scale.

use std::fmt::Write;

use super::compared::{Pair, Recorded, pairs, ratio};
use super::map::{Side, map_against};
use super::svg::inline;
use super::words::{bytes, capitalised, count, several};
use super::{Look, Theme};
use crate::escape::escape;
use crate::quantity::{Quantity, trimmed};

const STYLE: &str = include_str!("../page/page.css");
const MORE_STYLE: &str = include_str!("page.css");
/// Regions of the table at most.
const ROWS_MAX: usize = 200;
/// For what is not known.
const UNKNOWN: &str = "–";

/// The page of two recordings; `maps` has the fields of some regions in both.
pub fn page_against(sides: [(&Look, &Recorded, &str); 2], maps: &[[Side; 2]], left_out: usize) -> String {
    let [(look, one, name), (other_look, other, other_name)] = sides;
    let pairs = pairs(one, other);
    let noun = look.noun();
    let command = |look: &Look, name: &str| {
        let command = look.recording.head.command.join(" ");
        format!("<p class=\"source\">{}: <b>{}</b></p>", escape(name), escape(&command))
    };
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>{} against {} · tiermem heatmap</title><style>{STYLE}{MORE_STYLE}</style></head><body><header>\
         {}{}<h1>{}</h1><p class=\"lead\">{}</p></header><main>",
        escape(name),
        escape(other_name),
        command(look, name),
        command(other_look, other_name),
        escape(&headline(&pairs[0], noun, [name, other_name])),
        escape(&lead(&pairs[0], noun, [name, other_name])),
    );
    table(&mut out, &pairs, noun, [name, other_name]);
    if !maps.is_empty() {
        out += "<section><h2>Maps</h2>";
        for pair in maps {
            let drawn = |theme: Theme, class: &str| {
                let looks = pair.map(|side| Look { theme, ..side.look.clone() });
                let [one, other] = [0, 1].map(|at| Side { look: &looks[at], ..pair[at] });
                format!("<div class=\"{class}\">{}</div>", inline(&map_against(one, other)))
            };
            let _ = write!(
                out,
                "<figure class=\"card against\">{}{}</figure>",
                drawn(Theme::LIGHT, "in-light"),
                drawn(Theme::DARK, "in-dark")
            );
        }
        if left_out > 0 {
            let regions = several(left_out, "colder region has", "colder regions have");
            let _ = write!(out, "<p class=\"note\">{regions} no map here.</p>");
        }
        out += "</section>";
    }
    let _ = write!(
        out,
        "<footer><p>{}. Of a touched granule those bytes count that were in memory. {UNKNOWN} is not there, or not known.</p>\
         <p>Made by tiermem {}.</p></footer></main></body></html>",
        escape(&capitalised(&look.what())),
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn headline(all: &Pair, noun: &str, [name, other_name]: [&str; 2]) -> String {
    match times(ratio(all.rates())) {
        Some(times) => format!("{name} has {times} {noun} per second as {other_name}"),
        None => format!("{name} against {other_name}"),
    }
}

/// A ratio in words, for what there is as many of.
fn times(ratio: f64) -> Option<String> {
    ratio.is_finite().then(|| format!("{} times as many", trimmed(ratio, 3)))
}

fn lead(all: &Pair, noun: &str, names: [&str; 2]) -> String {
    let side = |at: usize| {
        let touched = all.seen()[at].and_then(|seen| seen.touched_bytes);
        let touched = touched.map_or("an unknown part of memory".to_owned(), |touched| bytes(touched as f64));
        let rate = number(all.rates()[at], |rate| count(rate.round()));
        format!("{}: {rate} {noun} per second, {touched} touched.", names[at])
    };
    format!("{} {}", side(0), side(1))
}

fn number(value: f64, text: impl Fn(f64) -> String) -> String {
    if value.is_finite() { text(value) } else { UNKNOWN.to_owned() }
}

fn table(out: &mut String, pairs: &[Pair], noun: &str, [name, other_name]: [&str; 2]) {
    let (one, other) = (escape(name), escape(other_name));
    let _ = write!(
        out,
        "<section><h2>Regions</h2><div class=\"card scroll\"><table id=\"against\"><thead><tr><th rowspan=\"2\">region</th>\
         <th rowspan=\"2\">kind</th><th colspan=\"2\">touched</th><th colspan=\"2\">share</th>\
         <th colspan=\"4\">{noun} per second</th></tr><tr><th>{one}</th><th>{other}</th><th>{one}</th><th>{other}</th>\
         <th>{one}</th><th>{other}</th><th>difference</th><th>ratio</th></tr></thead><tbody>"
    );
    for pair in pairs.iter().take(ROWS_MAX) {
        let Some(either) = pair.either() else { continue };
        let touched = pair.seen().map(|seen| {
            let bytes = seen.and_then(|seen| seen.touched_bytes).map(|touched| bytes(touched as f64));
            bytes.unwrap_or_else(|| UNKNOWN.to_owned())
        });
        let shares = pair.shares().map(|share| number(share, |share| Quantity::Share.text(share)));
        let rates = pair.rates();
        let [rate, other_rate] = rates.map(|rate| number(rate, |rate| count(rate.round())));
        let difference = number(rates[0] - rates[1], |difference| {
            let sign = if difference < 0.0 { "−" } else { "+" };
            format!("{sign}{}", count(difference.abs().round()))
        });
        let _ = write!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{rate}</td><td>{other_rate}</td>\
             <td>{difference}</td><td>{}</td></tr>",
            escape(&either.name),
            either.kind,
            touched[0],
            touched[1],
            shares[0],
            shares[1],
            number(ratio(rates), |ratio| trimmed(ratio, 3)),
        );
    }
    *out += "</tbody></table>";
    let more = pairs.len().saturating_sub(ROWS_MAX);
    if more > 0 {
        let regions = several(more, "colder region is", "colder regions are");
        let _ = write!(out, "<p class=\"note\">{regions} left out.</p>");
    }
    *out += "</div></section>";
}
