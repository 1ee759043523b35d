//! Default sample rate of a trace.

use tiermem_trace::{Trace, TraceError};

/// Requests up to which a trace is looked at as a whole: more take minutes.
const WHOLE_REQUESTS_MAX: u64 = 3_000_000;
/// Requests that are sampled of longer traces.
const SAMPLED_REQUESTS: f64 = 1_000_000.0;
/// Below this rate, the sample of a trace would have too few keys to tell much.
const SAMPLE_RATE_MIN: f64 = 0.0005;
/// Records that are read to see how long a trace is.
const LOOK_AHEAD: u64 = 200_000;

/// The sample rate for a trace of `requests` requests.
pub fn sample_rate_for(requests: u64) -> f64 {
    if requests <= WHOLE_REQUESTS_MAX {
        1.0
    } else {
        (SAMPLED_REQUESTS / requests as f64).max(SAMPLE_RATE_MIN)
    }
}

/// About how many of the first `limit` requests a trace has that was just opened: what it says, or else what the share of the
/// file says that the first 200,000 take.
///
/// # Errors
/// What is wrong with these.
pub fn expected_requests(mut trace: Trace, limit: Option<u64>) -> Result<u64, TraceError> {
    let limit = limit.unwrap_or(u64::MAX);
    if let Some(len) = trace.len_hint() {
        return Ok(len.min(limit));
    }
    let mut read = 0;
    while read < LOOK_AHEAD {
        match trace.next() {
            Some(record) => record.map(|_| read += 1)?,
            None => return Ok(read.min(limit)),
        }
    }
    let share = trace.share_read().filter(|share| *share > 0.0).unwrap_or(1.0);
    Ok(((read as f64 / share) as u64).min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_traces_are_looked_at_as_a_whole() {
        assert_eq!(sample_rate_for(0), 1.0);
        assert_eq!(sample_rate_for(3_000_000), 1.0);
        assert_eq!(sample_rate_for(100_000_000), 0.01);
        assert_eq!(sample_rate_for(u64::MAX), SAMPLE_RATE_MIN);
    }

    #[test]
    fn generators_say_how_long_they_are() {
        let expected =
            |limit| expected_requests(tiermem_trace::open("zipf:requests=5M").unwrap(), limit).unwrap();
        assert_eq!((expected(None), expected(Some(7))), (5_000_000, 7));
    }
}
