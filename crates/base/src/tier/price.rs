//! Price of memory, in money.

use serde::{Deserialize, Serialize};

use super::error::TierError;
use super::kind::TierKind;

/// Bytes of the gigabyte by which memory is sold.
const GB: f64 = 1e9;
/// Hours of a month: a twelfth of 365.25 days.
pub const HOURS_PER_MONTH: f64 = 365.25 / 12.0 * 24.0;
/// Dollars for a GB of DRAM, as work on hybrid memory pools cites it.
pub const DRAM_USD_PER_GB: f64 = 4.875;
/// Dollars for a GB of flash: the upper of the two that Yang 2023, Figure 14, quotes.
pub const FLASH_USD_PER_GB: f64 = 0.30;

/// For what the money is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// For each 10^9 bytes.
    PerGb(f64),
    /// For all of the tier.
    Each(f64),
}

/// How often it is paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// When it is bought.
    #[default]
    Once,
    /// Each month.
    Month,
    /// Each hour.
    Hour,
}

/// The price of a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PriceTable", into = "PriceTable")]
pub struct Price {
    /// How much, for what.
    pub amount: Amount,
    /// How often.
    pub per: Per,
    /// Three letters, such as `USD`.
    pub currency: String,
    /// Of when it is: a year, a month or a day, such as `2025-11`.
    pub date: Option<String>,
    /// The source of the figure.
    pub source: Option<String>,
}

impl Price {
    /// Dollars for 10^9 bytes, paid once.
    pub fn dollars_per_gb(dollars: f64) -> Self {
        let (amount, currency) = (Amount::PerGb(dollars), USD.to_owned());
        Price { amount, per: Per::Once, currency, date: None, source: None }
    }

    /// The assumed price of a tier of this kind where none is given. For memory beyond DRAM no public list price exists: it is
    /// assumed to cost half as much, as where memory of retired servers is used again. Of compressed and remote memory nothing is
    /// assumed.
    pub fn usual(kind: TierKind) -> Option<Self> {
        let (dollars, source) = match kind {
            TierKind::Dram => (DRAM_USD_PER_GB, "cited by work on hybrid memory pools"),
            TierKind::Numa | TierKind::Dax | TierKind::Emulated => {
                (DRAM_USD_PER_GB / 2.0, "an assumption: half of DRAM's")
            }
            TierKind::Flash => (FLASH_USD_PER_GB, "Yang 2023, Figure 14"),
            TierKind::Compressed | TierKind::Remote => return None,
        };
        Some(Price { source: Some(source.to_owned()), ..Price::dollars_per_gb(dollars) })
    }

    /// The price by the gigabyte, of a tier of `capacity_bytes`; none if the price is for all of a tier whose size is unknown.
    pub fn by_gb(&self, capacity_bytes: Option<u64>) -> Option<Price> {
        let amount = match (self.amount, capacity_bytes) {
            (Amount::PerGb(_), _) => self.amount,
            (Amount::Each(each), Some(bytes @ 1..)) => Amount::PerGb(each / (bytes as f64 / GB)),
            (Amount::Each(_), _) => return None,
        };
        Some(Price { amount, ..self.clone() })
    }

    /// The cost of `bytes`, each time that it is paid. A price for all of the tier is the same for any part of it.
    pub fn of(&self, bytes: f64) -> f64 {
        match self.amount {
            Amount::PerGb(price) => price * bytes / GB,
            Amount::Each(price) => price,
        }
    }

    /// The cost of `bytes` in a month; a cost that is paid once is spread over `months`.
    pub fn per_month(&self, bytes: f64, months: f64) -> f64 {
        match self.per {
            Per::Once => self.of(bytes) / months,
            Per::Month => self.of(bytes),
            Per::Hour => self.of(bytes) * HOURS_PER_MONTH,
        }
    }

    /// Checks what cannot be wrong by its type alone, of the tier of this name.
    pub(super) fn check(&self, tier: &str) -> Result<(), TierError> {
        let (key, amount) = match self.amount {
            Amount::PerGb(amount) => ("price_per_gb", amount),
            Amount::Each(amount) => ("price_each", amount),
        };
        if !(amount >= 0.0 && amount.is_finite()) {
            return Err(TierError::new(
                tier,
                key,
                format!("{amount} must be a number that is not negative, such as 4.875"),
            ));
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|letter| letter.is_ascii_uppercase()) {
            let problem = format!("{:?} is not three capital letters, such as USD", self.currency);
            return Err(TierError::new(tier, "currency", problem));
        }
        match &self.date {
            Some(date) if !is_date(date) => Err(TierError::new(
                tier,
                "date",
                format!(
                    "{date:?} is not a year, month or day such as \"2025\", \"2025-11\" or \"2025-11-25\""
                ),
            )),
            _ => Ok(()),
        }
    }
}

const USD: &str = "USD";

/// `2025`, `2025-11` or `2025-11-25`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |text: &str, digits: usize, range: core::ops::RangeInclusive<u32>| {
        let is_whole = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
        is_whole && text.parse().is_ok_and(|number| range.contains(&number))
    };
    let limits = [(4, 1900..=2999), (2, 1..=12), (2, 1..=31)];
    parts.len() <= limits.len()
        && parts.iter().zip(limits).all(|(part, (digits, range))| number(part, digits, range))
}

/// The keys of a price, by themselves or among those of a tier.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PriceTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) price_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) price_each: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per: Option<Per>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
}

impl PriceTable {
    /// The price of the tier of this name, if there is one.
    pub(super) fn price(self, tier: &str) -> Result<Option<Price>, TierError> {
        let amount = match (self.price_per_gb, self.price_each) {
            (Some(_), Some(_)) => {
                let problem = "contradicts price_each: leave one of them out";
                return Err(TierError::new(tier, "price_per_gb", problem));
            }
            (Some(price), None) => Amount::PerGb(price),
            (None, Some(price)) => Amount::Each(price),
            (None, None) => {
                let beside = [
                    ("per", self.per.is_some()),
                    ("currency", self.currency.is_some()),
                    ("date", self.date.is_some()),
                    ("source", self.source.is_some()),
                ];
                return match beside.into_iter().find(|(_, is_given)| *is_given) {
                    Some((key, _)) => Err(TierError::new(
                        tier,
                        key,
                        "says of which price, but there is none: give price_per_gb or price_each",
                    )),
                    None => Ok(None),
                };
            }
        };
        let price = Price {
            amount,
            per: self.per.unwrap_or_default(),
            currency: self.currency.unwrap_or_else(|| USD.to_owned()),
            date: self.date,
            source: self.source,
        };
        price.check(tier).map(|()| Some(price))
    }
}

impl From<Price> for PriceTable {
    fn from(price: Price) -> Self {
        let (price_per_gb, price_each) = match price.amount {
            Amount::PerGb(amount) => (Some(amount), None),
            Amount::Each(amount) => (None, Some(amount)),
        };
        PriceTable {
            price_per_gb,
            price_each,
            per: Some(price.per).filter(|per| *per != Per::default()),
            currency: Some(price.currency).filter(|currency| currency != USD),
            date: price.date,
            source: price.source,
        }
    }
}

impl TryFrom<PriceTable> for Price {
    type Error = String;

    fn try_from(table: PriceTable) -> Result<Self, String> {
        match table.price("") {
            Ok(Some(price)) => Ok(price),
            Ok(None) => Err("a price is price_per_gb or price_each".to_owned()),
            Err(TierError { key, problem, .. }) => Err(format!("{key}: {problem}")),
        }
    }
}
