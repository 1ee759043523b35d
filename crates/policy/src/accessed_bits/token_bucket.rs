//! Token bucket: so much in a second, and what was not used for long is lost.

/// What may be spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    per_s: f64,
    most: f64,
    left: f64,
    reckoned_s: Option<f64>,
}

impl TokenBucket {
    /// All of it at first.
    pub fn new(per_s: f64, most: f64) -> Self {
        TokenBucket { per_s, most, left: most, reckoned_s: None }
    }

    /// Takes in what time it is.
    pub fn reckon(&mut self, now_s: f64) {
        let since_s = self.reckoned_s.replace(now_s).map_or(0.0, |before_s| (now_s - before_s).max(0.0));
        self.left = (self.left + since_s * self.per_s).min(self.most);
    }

    /// What is left of it, at least nothing.
    pub fn left(&self) -> f64 {
        self.left.max(0.0)
    }

    /// Spends some; what is over has to be waited for.
    pub fn spend(&mut self, amount: f64) {
        self.left -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_with_time_and_is_no_more_than_all() {
        let mut bucket = TokenBucket::new(10.0, 20.0);
        bucket.reckon(5.0);
        assert_eq!(bucket.left(), 20.0);
        bucket.spend(25.0);
        assert_eq!(bucket.left(), 0.0);
        bucket.reckon(6.0);
        assert_eq!(bucket.left(), 5.0);
        // A clock that goes back gives nothing.
        bucket.reckon(3.0);
        assert_eq!(bucket.left(), 5.0);
        bucket.reckon(100.0);
        assert_eq!(bucket.left(), 20.0);
    }
}
