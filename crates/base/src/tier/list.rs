//! List of tiers: what must hold for several tiers together.

use super::error::TierError;
use super::spec::TierSpec;

/// Checks what is between tiers and not within them: each has a name of its own, and all are priced in one currency.
///
/// # Errors
/// When two have one name, or two currencies cannot be summed up.
pub fn check_list(tiers: &[TierSpec]) -> Result<(), TierError> {
    let mut currency: Option<(&str, &str)> = None;
    for (number, tier) in tiers.iter().enumerate() {
        if tiers[..number].iter().any(|other| other.name == tier.name) {
            return Err(tier.error("name", "another tier has that name: give each a name of its own"));
        }
        let Some(price) = &tier.price else { continue };
        match currency {
            Some((other, of)) if other != price.currency => {
                let problem =
                    format!("{} and the {other} of tier {of:?} cannot be summed up: use one", price.currency);
                return Err(tier.error("currency", problem));
            }
            Some(_) => {}
            None => currency = Some((&price.currency, &tier.name)),
        }
    }
    Ok(())
}
