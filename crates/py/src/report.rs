//! The report page.

use pyo3::prelude::*;
use tiermem_base::tier::Price;
use tiermem_model::cost::{Offer, Prices};
use tiermem_report::{Gatherer, Options, sample_rate_for};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::{Input, Reading};

/// Prices of memory, from a mapping.
#[derive(Clone, Copy, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct PriceItems {
    dram_per_gb: Option<f64>,
    cxl_per_gb: Option<f64>,
    months: Option<f64>,
    per_million_misses: Option<f64>,
}

impl PriceItems {
    fn prices(self) -> Result<Prices, Failure> {
        let usual = Prices::default();
        let given = |offer: Offer, dollars: Option<f64>| Offer {
            price: dollars.map_or(offer.price, Price::dollars_per_gb),
            name: offer.name,
        };
        let prices = Prices {
            fast: given(usual.fast, self.dram_per_gb),
            slow: given(usual.slow, self.cxl_per_gb),
            months: self.months.unwrap_or(usual.months),
            per_million_misses: self.per_million_misses,
            fast_hit_share: usual.fast_hit_share,
        };
        let all = [self.dram_per_gb, self.cxl_per_gb, self.per_million_misses];
        let valid = all.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0);
        match valid && prices.months.is_finite() && prices.months > 0.0 {
            true => Ok(prices),
            false => Err(Failure::Value("prices are numbers from 0 on, and months are above 0".to_owned())),
        }
    }
}

/// The page as text.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python side has one signature for people")]
pub fn report(
    py: Python<'_>,
    trace: Input,
    reading: Reading,
    name: String,
    sample: Option<f64>,
    seed: u64,
    prices: PriceItems,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let progress = Progress::new(progress);
    let result = py.detach(|| -> Result<_, Failure> {
        let sample = match sample {
            Some(sample) => sample,
            None => trace.expected_requests(&reading)?.map_or(1.0, sample_rate_for),
        };
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(Failure::Value(format!("sample is above 0 and at most 1, not {sample}")));
        }
        let options =
            Options { name, sample_rate: sample, seed, prices: prices.prices()?, ..Options::default() };
        let mut gatherer = Gatherer::new(options);
        let value = |error: tiermem_report::ReportError| Failure::Value(error.to_string());
        for access in trace.open(&reading)?.records(&progress) {
            gatherer.observe(&access?).map_err(value)?;
        }
        let total = Some(gatherer.curves() as f64);
        let report = gatherer.finish(&|done| progress.report_later("curves", done as f64, total));
        progress.raise()?;
        Ok(report.map_err(value)?.to_html())
    });
    Ok(result?)
}
