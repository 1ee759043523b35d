//! Prometheus's text exposition format, version 0.0.4.
//!
//! Names carry their unit and are stable; times are in seconds, as Prometheus wants base units.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use tiermem_sys::process_use::{open_files, process_use};

/// The content type of this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Names begin with this ...
const PREFIX: &str = "tiermem_";
/// ... but for those that every program has which Prometheus asks.
const PROCESS_PREFIX: &str = "process_";

/// Text under construction.
#[derive(Clone, Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins with the samples that every server has.
    pub fn begin(version: &str, uptime_s: f64, ready: bool) -> Self {
        let mut text = Exposition(String::with_capacity(8 << 10));
        text.family("build_info", "gauge", "The program's version, as a label.");
        text.sample("build_info", &format!("{{version=\"{}\"}}", escape(version)), 1);
        text.single("ready", "Whether requests are served: 1 or 0.", u8::from(ready));
        text.single("uptime_seconds", "Time since the server started.", uptime_s);
        text.process(uptime_s);
        text
    }

    /// What the process uses, by the names that Prometheus gives it in all programs.
    fn process(&mut self, uptime_s: f64) {
        let used = process_use();
        let (open, most) = open_files();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        self.of_process("cpu_seconds_total", "Processor time that the process has used.", Some(used.cpu_s));
        let bytes = Some(used.resident_bytes);
        self.of_process("resident_memory_bytes", "Bytes of the process that are in memory.", bytes);
        self.of_process("virtual_memory_bytes", "Bytes of the address space.", Some(used.virtual_bytes));
        self.of_process("threads", "Threads of the process.", Some(used.threads));
        self.of_process("open_fds", "Files that the process has open.", open);
        self.of_process("max_fds", "Files that the process may have open.", most);
        let start_s = Some(now_s - uptime_s);
        self.of_process("start_time_seconds", "When the server started, in seconds since 1970.", start_s);
    }

    fn of_process(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        let Some(value) = value else { return };
        let kind = kind_of(name);
        let name = format!("{PROCESS_PREFIX}{name}");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }

    /// Begins a family of samples.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
    }

    /// A family of counters or gauges: names of counters end in `_total`, those of gauges never do.
    pub fn plain_family(&mut self, name: &str, help: &str) {
        self.family(name, kind_of(name), help);
    }

    /// A sample. Labels are in braces, their values [escaped](escape).
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("{PREFIX}{name}{labels} {value}\n"));
    }

    /// A counter or gauge alone in its family.
    pub fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.plain_family(name, help);
        self.sample(name, "", value);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

fn kind_of(name: &str) -> &'static str {
    if name.ends_with("_total") { "counter" } else { "gauge" }
}

/// Escapes a label's value: a name may have any characters that the configuration allows.
pub fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Checks a text against the format and this project's names, line by line, and returns its
/// samples: the part before the value, and the value. For tests of code that writes such texts.
///
/// # Errors
/// The first line that is wrong, and why.
pub fn check(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let (mut samples, mut kinds, mut helped) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            match rest.split_once(' ') {
                Some((name, help)) if !help.is_empty() && helped.insert(name) => continue,
                _ => return wrong("no help, or twice"),
            }
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            match rest.split_once(' ') {
                Some((name, kind @ ("counter" | "gauge" | "histogram")))
                    if kinds.insert(name, kind).is_none() =>
                {
                    continue;
                }
                _ => return wrong("no type, or twice"),
            }
        }
        let Some((series, value)) = line.rsplit_once(' ') else { return wrong("no sample") };
        let name = series.split('{').next().unwrap_or_default();
        if ![PREFIX, PROCESS_PREFIX].iter().any(|prefix| name.starts_with(prefix))
            || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            return wrong("no name of ours");
        }
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|family| kinds.get(family).is_some_and(|kind| *kind == "histogram"))
            .unwrap_or(name);
        let Some(kind) = kinds.get(family).filter(|_| helped.contains(family)) else {
            return wrong("it stands before its HELP or TYPE");
        };
        if (*kind == "counter") != name.ends_with("_total") {
            return wrong("a counter by another name, or the reverse");
        }
        if series.len() != name.len() && !series.ends_with("\"}") {
            return wrong("labels without an end");
        }
        let Ok(value) = value.parse() else { return wrong("no number") };
        if samples.insert(series.to_owned(), value).is_some() {
            return wrong("twice");
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_well_formed() {
        let mut text = Exposition::begin("1.2.3", 2.5, true);
        text.plain_family("hits_total", "Hits.");
        text.sample("hits_total", &format!("{{name=\"{}\"}}", escape("odd \"\\\nname")), 7);
        let samples = check(&text.into_text()).unwrap();
        assert_eq!(samples["tiermem_ready"], 1.0);
        assert_eq!(samples["tiermem_uptime_seconds"], 2.5);
        assert_eq!(samples["tiermem_build_info{version=\"1.2.3\"}"], 1.0);
        assert!(samples["process_resident_memory_bytes"] > 65_536.0);
        assert!(samples["process_open_fds"] <= samples["process_max_fds"]);
        assert_eq!(samples["tiermem_hits_total{name=\"odd \\\"\\\\\\nname\"}"], 7.0);
    }

    #[test]
    fn what_is_wrong_is_seen() {
        let head = "# HELP tiermem_a_total A.\n# TYPE tiermem_a_total counter\n";
        assert!(check(&format!("{head}tiermem_a_total 1\n")).is_ok());
        for wrong in [
            "tiermem_a_total 1\n".to_owned(),
            format!("{head}{head}"),
            format!("{head}tiermem_a_total one\n"),
            format!("{head}tiermem_a_total{{x=\"y\" 1\n"),
            format!("{head}tiermem_a_total 1\ntiermem_a_total 2\n"),
            "# HELP tiermem_b B.\n# TYPE tiermem_b counter\ntiermem_b 1\n".to_owned(),
            "# HELP b B.\n# TYPE b gauge\nb 1\n".to_owned(),
        ] {
            assert!(check(&wrong).is_err(), "{wrong}");
        }
    }
}
