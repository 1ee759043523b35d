//! Page of a report: its sections and their order. One file per chart.

mod arrival;
mod by_k;
mod by_policy;
mod gains;
mod growth;
mod histogram;
mod popularity;
mod prices;
mod reuse;
mod sizes;

use std::fmt::Write;

use tiermem_model::cost::size_for;
use tiermem_model::mrc::{Kind, Unit};

use crate::document::{self, section};
use crate::escape::escape;
use crate::gather::{PolicyCurve, Report};
use crate::quantity::{Quantity, grouped, trimmed};

/// Name of a policy on curves.
fn policy_name(kind: Kind) -> String {
    match kind {
        Kind::Lru => "LRU".to_owned(),
        Kind::KLru { k } => format!("K = {}", trimmed(k, 3)),
        Kind::Redis { k } => format!("Redis, {k}"),
        other => match other.name().as_str() {
            "s3-fifo" => "S3-FIFO".to_owned(),
            "sieve" => "SIEVE".to_owned(),
            name @ ("fifo" | "arc" | "clock" | "lfu" | "lhd" | "slru" | "aet" | "2q") => name.to_uppercase(),
            _ => other.to_string(),
        },
    }
}

impl Report {
    /// Quantity of cache sizes.
    fn size_quantity(&self) -> Quantity {
        match self.unit {
            Unit::Bytes => Quantity::Bytes,
            Unit::Objects => Quantity::Count,
        }
    }

    fn size_title(&self) -> &'static str {
        match self.unit {
            Unit::Bytes => "cache size, bytes of values",
            Unit::Objects => "cache size, objects",
        }
    }

    /// A size in words.
    fn size_text(&self, size: f64) -> String {
        match self.unit {
            Unit::Bytes => Quantity::Bytes.text(size),
            Unit::Objects => format!("{} objects", grouped(size.round() as u64)),
        }
    }

    /// The page, complete in itself.
    pub fn to_html(&self) -> String {
        let mut out = String::with_capacity(400_000);
        let (headline, lead) = self.answer();
        document::begin(&mut out, &self.name, &self.source(), (&headline, &lead));
        self.figures(&mut out);
        let memory = [Some(by_policy::chart(self)), by_k::chart(self)];
        section(&mut out, "How much memory", &memory, true);
        section(&mut out, "What the memory buys", &[Some(gains::chart(self)), prices::chart(self)], false);
        if !self.costs.is_empty() {
            prices::table(self, &mut out);
        }
        section(&mut out, "What is asked for", &[popularity::chart(self), sizes::chart(self)], false);
        section(&mut out, "When it is asked for", &[reuse::chart(self), arrival::chart(self)], false);
        section(&mut out, "The working set", &[growth::chart(self)], true);
        self.footer(&mut out);
        document::end(&mut out);
        out
    }

    /// The first line: what the data is.
    fn source(&self) -> String {
        let requests = grouped(self.stat.requests);
        let name = escape(&self.name);
        if self.is_sampled() {
            format!(
                "{name}: {requests} requests, <b>sampled</b>: {} of {} keys ({}) followed, all their requests",
                grouped(self.keys_sampled),
                if self.keys == 0 { "the".to_owned() } else { format!("some {}", grouped(self.keys)) },
                Quantity::Share.tick(self.stat.sample_rate),
            )
        } else {
            format!("{name}: {requests} requests, <b>not sampled</b>: every key and every request counted")
        }
    }

    /// The answer in a headline, and the figures behind it.
    fn answer(&self) -> (String, String) {
        let lowest = |one: &PolicyCurve| one.curve.points.last().map_or(1.0, |point| point.miss_ratio);
        let first = self.by_policy.first().or(self.by_k.first());
        let Some((first, best)) = first.map(|first| (first, 1.0 - lowest(first))) else {
            return (self.name.clone(), String::new());
        };
        let all = self.size_text(self.working_set as f64);
        // Nine tenths of the hits that can be had.
        let wanted = size_for(&first.curve, 1.0 - 0.9 * best).filter(|_| best > 0.0);
        let Some(size) = wanted else {
            return (
                "No memory makes these requests hit".to_owned(),
                format!("No key comes twice while all {all} fit: each request is the first of its key."),
            );
        };
        let headline = format!(
            "Nine tenths of the hits need {}, {} of the working set",
            self.size_text(size),
            Quantity::Share.tick(size / self.working_set.max(1) as f64)
        );
        let lead = format!(
            "With room for all {all}, {} of the requests hit; the others are the first of their key. Under {}, {} is enough for \
             nine tenths of these hits.",
            Quantity::Share.tick(best),
            policy_name(first.kind),
            self.size_text(size)
        );
        (headline, lead)
    }

    fn figures(&self, out: &mut String) {
        let stat = &self.stat;
        let about = if self.is_sampled() { "about " } else { "" };
        let ratio = match stat.read_write_ratio {
            Some(ratio) if ratio >= 1.0 => format!("{} : 1", trimmed(ratio, 3)),
            Some(ratio) if ratio > 0.0 => format!("1 : {}", trimmed(1.0 / ratio, 3)),
            Some(_) => "only writes".to_owned(),
            None if stat.reads > 0 => "only reads".to_owned(),
            None => "none".to_owned(),
        };
        let duration = match stat.duration_ns {
            0 => "no times in the trace".to_owned(),
            duration => {
                let rate = stat.requests_per_second.unwrap_or(0.0);
                format!(
                    "{} a second over {}",
                    Quantity::Count.tick(rate),
                    Quantity::Time.text(duration as f64)
                )
            }
        };
        let deletes = match stat.deletes {
            0 => String::new(),
            deletes => format!(", {} deletes", Quantity::Count.tick(deletes as f64)),
        };
        let figures = [
            ("Requests", Quantity::Count.tick(stat.requests as f64), duration),
            (
                "Unique keys",
                Quantity::Count.tick(self.keys as f64),
                format!(
                    "{about}{} requests each",
                    trimmed(stat.requests as f64 / (self.keys.max(1)) as f64, 3)
                ),
            ),
            (
                "Working set",
                self.size_quantity().tick(self.working_set as f64),
                match self.unit {
                    Unit::Bytes => format!("{} requested", Quantity::Bytes.text(stat.requested_bytes as f64)),
                    Unit::Objects => "objects; the trace tells no sizes".to_owned(),
                },
            ),
            (
                "Reads : writes",
                ratio,
                format!(
                    "{} reads, {} writes{deletes}",
                    Quantity::Count.tick(stat.reads as f64),
                    Quantity::Count.tick(stat.writes as f64)
                ),
            ),
            (
                "One-hit wonders",
                Quantity::Share.tick(stat.one_hit_ratio),
                format!("of keys: {about}{} asked for once", Quantity::Count.tick(stat.one_hit_keys as f64)),
            ),
        ];
        document::figures(out, &figures);
    }

    fn footer(&self, out: &mut String) {
        let sampling = if self.is_sampled() {
            "Curves are estimates from a spatial sample of the keys (SHARDS, FAST’15); a band holds the truth in 95 of 100 \
             samples. Sizes, operations and inter-arrival times are of all requests. Traces of more than 3 million requests are \
             sampled unless --sample says how much. "
        } else {
            ""
        };
        let _ = write!(
            out,
            "<footer><p>{sampling}A cache is empty at the start, so the first request of each key misses at every size. LRU is \
             exact stack distances, K-LRU a model of sampling K objects per eviction, other policies are simulated at each \
             size. Reuse time counts requests from one access of a key to its next.</p><p>Made by tiermem {} from {}.</p></footer>",
            env!("CARGO_PKG_VERSION"),
            escape(&self.name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::{Gatherer, Options};

    fn page(spec: &str, options: Options) -> String {
        let options = Options { name: spec.to_owned(), ..options };
        let mut gatherer = Gatherer::new(options);
        for access in tiermem_trace::open(spec).unwrap() {
            gatherer.observe(&access.unwrap()).unwrap();
        }
        gatherer.finish(&|_| ()).unwrap().to_html()
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        let mut report = Gatherer::new(Options { name: "</script><b>".to_owned(), ..Options::default() });
        report.observe(&tiermem_base::Access::get(0, 1, 1)).unwrap();
        let html = report.finish(&|_| ()).unwrap().to_html();
        assert!(!html.contains("</script><b>") && html.contains("&lt;/script&gt;&lt;b&gt;"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let html = page("zipf:objects=1000,requests=20000,size=64-1024", Options::default());
        for outside in ["http://", "https://", "url(", "@import", " src="] {
            assert!(!html.contains(outside), "{outside}");
        }
        for id in ["policies", "ks", "gains", "prices", "popularity", "sizes", "reuse", "arrival", "growth"] {
            assert!(
                html.contains(&format!("<figure class=\"card wide\" id=\"{id}\""))
                    || html.contains(&format!("<figure class=\"card\" id=\"{id}\"")),
                "{id}"
            );
        }
        assert!(html.contains("not sampled") && !html.contains("NaN") && !html.contains("inf"), "{html}");
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    }

    #[test]
    fn a_sample_is_called_one_and_has_bands() {
        let options = Options { sample_rate: 0.2, ..Options::default() };
        let html = page("zipf:objects=5000,requests=50000", options);
        assert!(html.contains("<b>sampled</b>") && html.contains("class=\"band"));
    }

    #[test]
    fn the_smallest_and_strangest_traces_have_a_page() {
        for spec in [
            "zipf:requests=1",
            "zipf:objects=1,requests=10",
            "scan:objects=100,requests=100",
            "loop:objects=3,requests=9,size=0",
            "uniform:objects=1000,requests=3000,size=0-4096",
            "mix:ycsb-a(objects=100)+scan(objects=10),requests=2000",
        ] {
            let html = page(spec, Options::default());
            assert!(!html.contains("NaN") && html.ends_with("</html>"), "{spec}");
        }
    }
}
