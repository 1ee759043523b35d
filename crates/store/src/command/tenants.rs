//! `TENANTS`: requests, memory and share of each tenant. A command of this store, not of Redis.

use core::fmt::Write;

use crate::engine::{DivisionStats, TenantAdvice, TenantStats, TenantTierStats, TierStats};
use crate::resp::Args;

use super::context::Context;
use super::refusal::{Outcome, Refusal};

pub(super) fn tenants(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let figures = context.host.all_figures(context.engine).engine;
    match args.get(1) {
        None => {
            let text = division(figures.division.as_ref()) + &lines(&figures.tenants, &figures.tiers);
            context.reply().verbatim(text.as_bytes());
        }
        Some(word) if word.eq_ignore_ascii_case(b"json") && args.len() == 2 => {
            let json = serde_json::json!({ "division": figures.division, "tenants": figures.tenants });
            let json = json.to_string().into_bytes();
            context.reply().bulk(&json);
        }
        Some(_) => return Err(Refusal::SYNTAX),
    }
    Ok(())
}

/// Outcome of the last division of memory.
fn division(division: Option<&DivisionStats>) -> String {
    let Some(it) = division else { return String::new() };
    let mut text = format!("# Division\r\nobjective:{}\r\nwindows:{}\r\n", it.objective, it.windows);
    let _ = write!(text, "last_window:{}\r\n", it.verdict);
    if let Some(after) = it.divided_after {
        let _ = write!(text, "divided_after_window:{after}\r\n");
        let us = [it.predicted_before_ns, it.predicted_after_ns, it.measured_before_ns].map(|ns| ns / 1e3);
        let _ = write!(text, "predicted_before_us:{:.3}\r\npredicted_after_us:{:.3}\r\n", us[0], us[1]);
        let _ = write!(text, "measured_before_us:{:.3}\r\n", us[2]);
        if let Some(ns) = it.measured_after_ns {
            let _ = write!(text, "measured_after_us:{:.3}\r\n", ns / 1e3);
        }
    }
    let _ = write!(text, "sample_rate:{}\r\nmetadata_bytes:{}\r\n", it.sample_rate, it.metadata_bytes);
    text
}

/// A line for each tenant, and one for each tier in which it has or had something.
fn lines(tenants: &[TenantStats], tiers: &[TierStats]) -> String {
    let mut text = String::from("# Tenants\r\n");
    for (number, tenant) in tenants.iter().enumerate() {
        let TenantStats { name, gets, hits, sets, tiers: has, advice } = tenant;
        let ratio = *hits as f64 / (*gets).max(1) as f64;
        // Writing to a string does not fail.
        let _ = write!(text, "tenant{number}:name={},gets={gets},hits={hits},", plain(name));
        let _ = write!(text, "hit_ratio={ratio:.4},sets={sets}\r\n");
        if let Some(advice) = advice {
            let TenantAdvice { rate, miss_ns, is_miss_known, keys_sampled, bytes, ks: _, miss_ratio, .. } =
                &**advice;
            let (best, known) = (bytes.iter().sum::<u64>(), if *is_miss_known { "yes" } else { "no" });
            let _ =
                write!(text, "tenant{number}_advice:lookups={rate:.0},miss_cost_us={:.1},", miss_ns / 1e3);
            let _ = write!(text, "miss_cost_known={known},keys_sampled={keys_sampled},best_bytes={best}");
            if let Some(ratio) = miss_ratio {
                let _ = write!(text, ",miss_ratio_predicted={ratio:.4}");
            }
            text.push_str("\r\n");
        }
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
