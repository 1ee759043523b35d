//! `TENANTS`: what each tenant asks for and has. A command of this store's own.

use core::fmt::Write;

use crate::engine::{TenantStats, TenantTierStats, TierStats};
use crate::resp::Args;

use super::context::{Context, Outcome, Refusal};

pub(super) fn tenants(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let figures = context.host.all_figures(context.engine).engine;
    match args.get(1) {
        None => {
            let text = lines(&figures.tenants, &figures.tiers);
            context.reply().verbatim(text.as_bytes());
        }
        Some(word) if word.eq_ignore_ascii_case(b"json") && args.len() == 2 => {
            // Figures have no keys that could fail to be text.
            let json = serde_json::to_vec(&figures.tenants).unwrap_or_default();
            context.reply().bulk(&json);
        }
        Some(_) => return Err(Refusal::SYNTAX),
    }
    Ok(())
}

/// A line for each tenant, and one for each tier in which it has or had something.
fn lines(tenants: &[TenantStats], tiers: &[TierStats]) -> String {
    let mut text = String::from("# Tenants\r\n");
    for (number, tenant) in tenants.iter().enumerate() {
        let TenantStats { name, gets, hits, sets, tiers: has } = tenant;
        let ratio = *hits as f64 / (*gets).max(1) as f64;
        // Writing to a string does not fail.
        let _ = write!(text, "tenant{number}:name={},gets={gets},hits={hits},", plain(name));
        let _ = write!(text, "hit_ratio={ratio:.4},sets={sets}\r\n");
        for (tier, of) in has.iter().zip(tiers) {
            let TenantTierStats { items, bytes, share_bytes, k, evictions, trespasses } = tier;
            let _ = write!(text, "tenant{number}_{}:items={items},bytes={bytes},", plain(&of.name));
            let _ = write!(text, "share_bytes={share_bytes},k={k},evictions={evictions},");
            let _ = write!(text, "trespasses={trespasses}\r\n");
        }
    }
    text
}

/// A name without what would end a field or a line.
fn plain(name: &str) -> String {
    name.chars().map(|it| if it.is_control() || matches!(it, ',' | ':' | '=') { '_' } else { it }).collect()
}
