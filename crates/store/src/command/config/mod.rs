//! `CONFIG`: reading and changing parameters while the server runs, and saving changes to the configuration file.
//!
//! `table` lists the parameters. It is the one place to add one.

mod parameter;
mod rewrite;
mod table;
mod users;

use std::path::Path;

use super::context::Context;
use super::refusal::{Outcome, Refusal, printable};
use crate::glob;
use crate::resp::Args;
use parameter::{Access, CONFIG_SECTION, Parameter};
pub use parameter::{Live, Problem};
use table::PARAMETERS;

fn find(name: &[u8]) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Live {
    fn of(context: &mut Context<'_>) -> Live {
        Live {
            server: context.host.settings.clone(),
            policy: context.engine.memory().tuning(),
            division: context.engine.tenants().division(),
            flash_bytes: context.engine.flash().device_bytes(),
        }
    }

    /// Sets a parameter of a configuration file's `[config]`.
    pub fn set_from_file(&mut self, name: &str, text: &str) -> Result<(), Problem> {
        let Some(Parameter { place: (section, key), access, .. }) = find(name.as_bytes()) else {
            return Err(format!("there is no parameter {name:?}"));
        };
        match access {
            Access::Live { set, .. } if *section == CONFIG_SECTION => {
                set(self, text).map_err(|problem| format!("{name}: {problem}"))
            }
            Access::Live { .. } => Err(format!("{name} has its place in [{section}], as {key}")),
            Access::Fixed(_) => Err(format!("{name} cannot be set here")),
        }
    }

    /// Checks that concern several values together.
    pub fn check(&self) -> Result<(), (&'static str, Problem)> {
        let marks = self.policy.watermarks;
        if marks.low > marks.high {
            let problem = format!("{} must not be above policy-high-watermark, {}", marks.low, marks.high);
            return Err(("policy-low-watermark", problem));
        }
        self.division.check().map_err(|problem| ("tenants-terms", problem))
    }
}

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let live = Live::of(context);
    let chosen = PARAMETERS.iter().filter(|parameter| {
        args.iter_from(2).any(|pattern| glob::matches(pattern, parameter.name.as_bytes(), true))
    });
    let value = |parameter: &Parameter| match parameter.access {
        Access::Fixed(get) => get(context),
        Access::Live { get, .. } => get(&live),
    };
    let chosen: Vec<_> = chosen.map(|parameter| (parameter.name, value(parameter))).collect();
    let mut reply = context.reply();
    reply.map(chosen.len());
    for (parameter, value) in chosen {
        reply.bulk(parameter.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn failed(parameter: &str, why: &str) -> Refusal {
    format!("ERR CONFIG SET failed (possibly related to argument '{parameter}') - {why}").into()
}

/// Checks every pair before it changes anything, so that a refused call leaves all as it was.
pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(Refusal::SYNTAX);
    }
    let mut live = Live::of(context);
    let mut seen: Vec<&str> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (&args[at], &args[at + 1]);
        let Some(parameter) = find(name) else {
            let mut text = b"ERR Unknown option or number of arguments for CONFIG SET - '".to_vec();
            text.extend_from_slice(printable(name, name.len()));
            text.push(b'\'');
            return Err(Refusal::Built(text));
        };
        let name = parameter.name;
        let Access::Live { set, .. } = parameter.access else {
            return Err(failed(name, "can't set immutable config"));
        };
        if seen.contains(&name) {
            return Err(failed(name, "duplicate parameter"));
        }
        seen.push(name);
        let text = std::str::from_utf8(value).map_err(|_| failed(name, "argument is not valid UTF-8"))?;
        set(&mut live, text).map_err(|problem| failed(name, &problem))?;
    }
    live.check().map_err(|(name, problem)| failed(name, &problem))?;
    if live.flash_bytes != context.engine.flash().device_bytes() {
        // The only one that may fail yet. It comes before all others, so that these are not changed then.
        let grown = context.engine.flash().grow(live.flash_bytes);
        grown.map_err(|error| failed("flash-capacity", &error.to_string()))?;
    }
    context.engine.memory_mut().tune(live.policy);
    context.engine.tenants_mut().divide_by(live.division);
    context.host.change_settings(live.server);
    context.refresh();
    context.reply().ok();
    Ok(())
}

/// Resets the statistics of `INFO`. Published counters for monitoring continue: they must never fall.
pub(super) fn resetstat(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.forget_statistics(context.engine.stats());
    context.reply().ok();
    Ok(())
}

/// Writes the current values to the file that the server was started with, in one step: a
/// reader sees the old file or the new one. The shard waits for the file system meanwhile.
pub(super) fn rewrite(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Some(path) = context.host.config_file.clone() else {
        return Err(Refusal::Text("ERR The server is running without a config file"));
    };
    rewrite_file(&path, &Live::of(context))
        .map_err(|problem| Refusal::from(format!("ERR Rewriting config file: {problem}")))?;
    tracing::info!(path = %path.display(), "the configuration was rewritten");
    context.reply().ok();
    Ok(())
}

fn rewrite_file(path: &Path, live: &Live) -> Result<(), Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = rewrite::rewritten(&text, live)?;
    rewrite::replace(path, &text).map_err(|error| format!("{}: {error}", path.display()))
}
