//! Tail age: how long what would go next from a class was not used, by which classes and tiers are compared.

use super::Context;
use super::classes::Class;
use super::residents::Residents;

/// How many times longer unused one item must be than another, in [`CLEARLY_WHOLE`]s, to be clearly colder.
const CLEARLY: u64 = 9;
const CLEARLY_WHOLE: u64 = 8;
/// Victims of a class without an order that are asked for their age, and items drawn from one.
const SAMPLES: u32 = 8;

/// How long the item was not used that would go next from a class, in ticks. Of a class without an order, several that could go: the
/// harmonic mean, since the inverse of the time is what is expected to be lost. `None`: nothing of it may go.
pub(super) fn tail_age(
    tier: usize,
    class: Class,
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> Option<u32> {
    let Residents { orders, nodes, levels, .. } = residents;
    let slots = &levels[tier].slots;
    let now = context.now;
    if orders.has_order_by_class(tier)
        && let Some(last) = orders.last(tier, class).filter(|&id| nodes.get(id).may_go())
    {
        return Some(nodes.age(last, now));
    }
    // A policy without a cold end, or all that is there stays for now.
    let asked = if orders.has_order_by_class(tier) { 1 } else { SAMPLES };
    let victims = (0..asked).filter_map(|_| orders.victim(tier, class, (nodes, slots), context));
    let (count, rates) = victims.fold((0u32, 0.0), |(count, rates), id| {
        (count + 1, rates + 1.0 / (f64::from(nodes.age(id, now)) + 1.0))
    });
    (count > 0).then(|| (f64::from(count) / rates - 0.5) as u32)
}

/// Ages of the youngest and the oldest of a few items drawn from a class.
pub(super) fn drawn_ages(
    tier: usize,
    class: Class,
    residents: &Residents,
    context: &mut Context<'_>,
) -> (u32, u32) {
    let (nodes, slots) = (&residents.nodes, &residents.levels[tier].slots);
    let drawn = (0..SAMPLES).filter_map(|_| slots.by_class().draw(class, slots.pages(), context.rng));
    let ages = drawn.filter(|&id| nodes.get(id).may_go()).map(|id| nodes.age(id, context.now));
    ages.fold(None, |range, age| match range {
        None => Some((age, age)),
        Some((youngest, oldest)) => Some((age.min(youngest), age.max(oldest))),
    })
    .unwrap_or((0, 0))
}

/// Whether an item of `age` is clearly colder than one of `other`.
pub(super) fn is_clearly_colder(age: u32, other: u32) -> bool {
    u64::from(age) * CLEARLY_WHOLE > u64::from(other) * CLEARLY
}
