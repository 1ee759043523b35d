//! Document around the charts of a page: head, figures, sections, script. It needs no network.

use std::fmt::Write;

use serde_json::json;

use crate::chart::{Chart, Shape, draw};
use crate::escape::escape;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The beginning of a page. `title`, `headline` and `lead` are text; `source` is markup.
pub fn begin(out: &mut String, title: &str, source: &str, (headline, lead): (&str, &str)) {
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>{} · tiermem report</title><style>{STYLE}</style></head><body><header>\
         <p class=\"source\">{source}</p><h1>{}</h1><p class=\"lead\">{}</p></header><main>",
        escape(title),
        escape(headline),
        escape(lead)
    );
}

/// The end of a page.
pub fn end(out: &mut String) {
    let _ = write!(
        out,
        "</main><div id=\"tip\" role=\"status\" hidden></div><script>{SCRIPT}</script></body></html>"
    );
}

/// Figures side by side: name, value, remark.
pub fn figures(out: &mut String, figures: &[(&str, String, String)]) {
    *out += "<dl class=\"figures\">";
    for (name, value, remark) in figures {
        let _ = write!(
            out,
            "<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>",
            escape(value),
            escape(remark)
        );
    }
    *out += "</dl>";
}

/// A section with its charts; none without.
pub fn section(out: &mut String, title: &str, charts: &[Option<Chart>], wide: bool) {
    let charts: Vec<&Chart> = charts.iter().flatten().collect();
    if charts.is_empty() {
        return;
    }
    let _ = write!(out, "<section><h2>{}</h2><div class=\"charts\">", escape(title));
    // One that has no neighbour takes the whole width.
    let wide = wide || charts.len() == 1;
    charts.iter().for_each(|chart| card(out, chart, wide));
    *out += "</div></section>";
}

fn card(out: &mut String, chart: &Chart, wide: bool) {
    let Chart { id, title, finding, .. } = chart;
    let _ = write!(
        out,
        "<figure class=\"card{}\" id=\"{id}\"><figcaption><h3 id=\"{id}-title\">{}</h3><p id=\"{id}-finding\">{}</p></figcaption>",
        if wide { " wide" } else { "" },
        escape(title),
        escape(finding)
    );
    let shapes: &[Shape] =
        if wide { &[Shape::LARGE, Shape::MEDIUM, Shape::SMALL] } else { &[Shape::MEDIUM, Shape::SMALL] };
    shapes.iter().for_each(|shape| *out += &draw(chart, *shape));
    values(out, chart);
    *out += "</figure>";
}

/// The values for the script, and as a table for readers.
fn values(out: &mut String, chart: &Chart) {
    let stops = chart.stops();
    let series = chart.series();
    let data = json!({
        "series": series.iter().map(|(name, colour)| json!([name, colour.class()])).collect::<Vec<_>>(),
        "stops": stops.iter().map(|stop| {
            let values: Vec<_> = stop
                .values
                .iter()
                .map(|(number, y, text)| json!([number, rounded(chart.y.place(*y)), text]))
                .collect();
            json!([rounded(chart.x.place(stop.x)), stop.name, values])
        }).collect::<Vec<_>>(),
    });
    // Within a script element only this could end it.
    let data = data.to_string().replace("</", "<\\/");
    let _ = write!(out, "<script type=\"application/json\" class=\"values\">{data}</script>");
    let _ = write!(
        out,
        "<details><summary>Values</summary><div class=\"scroll\"><table><thead><tr><th>{}</th>",
        escape(&chart.x.title)
    );
    series.iter().for_each(|(name, _)| *out += &format!("<th>{}</th>", escape(name)));
    *out += "</tr></thead><tbody>";
    for stop in &stops {
        let _ = write!(out, "<tr><th>{}</th>", escape(&stop.name));
        for number in 0..series.len() {
            let value = stop.values.iter().find(|value| value.0 == number);
            let _ = write!(out, "<td>{}</td>", value.map_or(String::new(), |value| escape(&value.2)));
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div></details>";
}

fn rounded(place: f64) -> f64 {
    (place * 1e4).round() / 1e4
}
