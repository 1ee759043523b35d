//! Lists of numbers on the command line.

use std::str::FromStr;

/// Numbers on the command line: a range from the first number to the last, one without an end, or a list of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<(usize, usize)>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a list such as 0-9 (or 0..9), 3.. or 0,5,10-12");
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
        let range = |part: &str| match part.split_once("..").or(part.split_once('-')) {
            Some((from, "")) if part.ends_with("..") => number(from).map(|from| (from, usize::MAX)),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if from <= to { Ok((from, to)) } else { Err(wrong()) }
            }
            None => number(part).map(|one| (one, one)),
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Numbers)
    }
}

impl Numbers {
    /// The numbers below `count`, ascending; the first that is not, if there is one.
    pub fn below(&self, count: usize) -> Result<Vec<usize>, usize> {
        let beyond =
            |(from, to): &&(usize, usize)| if *to == usize::MAX { *from >= count } else { *to >= count };
        if let Some((from, _)) = self.0.iter().find(beyond) {
            return Err((*from).max(count));
        }
        let range = |(from, to): &(usize, usize)| *from..=(*to).min(count - 1);
        let mut numbers: Vec<usize> = self.0.iter().flat_map(range).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// The first number and the last.
    pub fn ends(&self) -> (usize, usize) {
        let first = self.0.iter().map(|range| range.0).min().unwrap_or(0);
        (first, self.0.iter().map(|range| range.1).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read_and_mistakes_are_told() {
        let numbers: Numbers = "7,0-2,1".parse().unwrap();
        assert_eq!(numbers.below(8), Ok(vec![0, 1, 2, 7]));
        assert_eq!((numbers.below(5), numbers.ends()), (Err(7), (0, 7)));
        let behind: Numbers = "3..".parse().unwrap();
        assert_eq!(
            (behind.below(6), behind.below(4), behind.below(3)),
            (Ok(vec![3, 4, 5]), Ok(vec![3]), Err(3))
        );
        assert_eq!(behind.below(0), Err(3));
        assert_eq!("2..4".parse::<Numbers>().unwrap().below(9), Ok(vec![2, 3, 4]));
        for wrong in ["", "a", "3-1", "-1", "1-", "..3", "3..1", "..", "1..2..3"] {
            assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
        }
    }
}
