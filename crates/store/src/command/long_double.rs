//! Decimal arithmetic in 64 bits of mantissa, for `INCRBYFLOAT`.
//!
//! Redis adds in C's `long double`, which on x86 has 64 bits of mantissa, and prints 17 decimals without
//! trailing zeros. In `f64` the sum of 3.0 and 0.1 would print as 3.10000000000000009. Numbers here are whole
//! numbers times a power of two, exact in between and rounded, half to even, where the hardware would round.

use core::cmp::Ordering;

/// Bits of mantissa.
const MANTISSA_BITS: u64 = 64;
/// Decimals printed.
const DECIMALS: u32 = 17;
/// Powers of two beyond which a `long double` is infinite or zero.
const EXPONENT_MAX: i64 = 16_384;
const EXPONENT_MIN: i64 = -16_445;
/// Longer texts are no numbers to Redis either.
const TEXT_BYTES_MAX: usize = 5 * 1024;

/// A whole number of any size, 32 bits per digit, the least significant first, no zeros at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole(Vec<u32>);

impl Whole {
    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn bits(&self) -> u64 {
        self.0.last().map_or(0, |top| self.0.len() as u64 * 32 - u64::from(top.leading_zeros()))
    }

    fn bit(&self, at: u64) -> bool {
        self.0.get((at / 32) as usize).is_some_and(|digit| digit >> (at % 32) & 1 == 1)
    }

    fn multiply_add(&mut self, factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides and returns the remainder.
    fn divide(&mut self, by: u32) -> u32 {
        let mut rest = 0u64;
        for digit in self.0.iter_mut().rev() {
            let value = rest << 32 | u64::from(*digit);
            *digit = (value / u64::from(by)) as u32;
            rest = value % u64::from(by);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        rest as u32
    }

    fn power_of_ten(exponent: u32) -> Self {
        let mut power = Whole(vec![1]);
        for _ in 0..exponent / 9 {
            power.multiply_add(1_000_000_000, 0);
        }
        power.multiply_add(10u32.pow(exponent % 9), 0);
        power
    }

    fn shifted_left(&self, by: u64) -> Self {
        let mut digits = vec![0; (by / 32) as usize];
        let mut carry = 0u64;
        for digit in &self.0 {
            carry |= u64::from(*digit) << (by % 32);
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        Whole(digits).trimmed()
    }

    fn shifted_right(&self, by: u64) -> Self {
        let skip = ((by / 32) as usize).min(self.0.len());
        let rest = &self.0[skip..];
        let part = by % 32;
        let digits = rest.iter().enumerate().map(|(at, digit)| {
            let next = u64::from(rest.get(at + 1).copied().unwrap_or(0)) << 32;
            ((next | u64::from(*digit)) >> part) as u32
        });
        Whole(digits.collect()).trimmed()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut carry = 0u64;
        let len = self.0.len().max(other.0.len()) + 1;
        let digit = |of: &Whole, at: usize| u64::from(of.0.get(at).copied().unwrap_or(0));
        let digits = (0..len).map(|at| {
            carry += digit(self, at) + digit(other, at);
            let low = carry as u32;
            carry >>= 32;
            low
        });
        Whole(digits.collect()).trimmed()
    }

    /// Takes away what is not larger.
    fn minus(&self, other: &Self) -> Self {
        let mut borrow = 0i64;
        let digits = self.0.iter().enumerate().map(|(at, digit)| {
            let value = i64::from(*digit) - i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            borrow = value >> 32;
            value as u32
        });
        Whole(digits.collect()).trimmed()
    }

    fn compare(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Divides by a power of two and rounds, half to even; `beyond` says that a little was cut off before.
    fn rounded_right(&self, by: u64, beyond: bool) -> Self {
        let whole = self.shifted_right(by);
        let half = by > 0 && self.bit(by - 1);
        let below = beyond || (by > 1 && (0..by - 1).any(|at| self.bit(at)));
        if half && (below || whole.bit(0)) { whole.plus(&Whole(vec![1])) } else { whole }
    }
}

/// A finite number: `mantissa` times two to the power `exponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    negative: bool,
    mantissa: Whole,
    exponent: i64,
}

/// What a text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Finite(Extended),
    Infinite,
}

impl Extended {
    /// Zero.
    pub(super) fn zero() -> Self {
        Extended { negative: false, mantissa: Whole(Vec::new()), exponent: 0 }
    }

    /// Rounds to the mantissa's width; `None` when the number is too large. `beyond`: a little was cut off.
    fn round(negative: bool, mantissa: &Whole, exponent: i64, beyond: bool) -> Option<Self> {
        if mantissa.0.is_empty() {
            return Some(Extended { negative, ..Extended::zero() });
        }
        let bits = mantissa.bits() as i64;
        // Below the smallest normal number the mantissa loses bits.
        let excess = (bits - MANTISSA_BITS as i64).max(EXPONENT_MIN - exponent);
        if excess <= 0 {
            return (exponent + bits <= EXPONENT_MAX).then(|| Extended {
                negative,
                mantissa: mantissa.clone(),
                exponent,
            });
        }
        let mantissa = mantissa.rounded_right(excess as u64, beyond);
        let exponent = exponent + excess;
        let fits = exponent + mantissa.bits() as i64 <= EXPONENT_MAX;
        fits.then_some(Extended { negative, mantissa, exponent })
    }

    /// Reads a whole text as C's `strtold` would, leading blanks excepted.
    pub(super) fn parse(text: &[u8]) -> Option<Parsed> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(Parsed::Infinite);
        }
        if let [b'0', b'x' | b'X', digits @ ..] = unsigned {
            return Self::parse_hexadecimal(negative, digits).map(Parsed::Finite);
        }
        let split = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (number, scale) = match split {
            Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let point = number.iter().position(|byte| *byte == b'.');
        let (before, after) = match point {
            Some(at) => (&number[..at], &number[at + 1..]),
            None => (number, &[][..]),
        };
        if before.is_empty() && after.is_empty() {
            return None;
        }
        let mut digits = Whole(Vec::new());
        for byte in before.iter().chain(after) {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            digits.multiply_add(10, u32::from(digit));
        }
        let ten = scale - after.len() as i64;
        Self::from_decimal(negative, digits, ten).map(Parsed::Finite)
    }

    /// What stands behind `0x`: digits with a point perhaps, and perhaps `p` with a power of two.
    fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<Self> {
        let split = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
        let (number, scale) = match split {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (mut mantissa, mut digits, mut behind_point) = (Whole(Vec::new()), 0, None);
        for byte in number {
            match char::from(*byte).to_digit(16) {
                Some(digit) => mantissa.multiply_add(16, digit),
                None if *byte == b'.' && behind_point.is_none() => {
                    behind_point = Some(0);
                    continue;
                }
                None => return None,
            }
            digits += 1;
            behind_point = behind_point.map(|count| count + 1);
        }
        if digits == 0 {
            return None;
        }
        let is_zero = mantissa.0.is_empty();
        let result = Self::round(negative, &mantissa, scale - 4 * behind_point.unwrap_or(0), false)?;
        // `strtold` says that a number that has become zero is out of range.
        (is_zero || !result.mantissa.0.is_empty()).then_some(result)
    }

    /// `digits` times ten to the power `ten`, rounded; `None` when out of range.
    fn from_decimal(negative: bool, mut digits: Whole, ten: i64) -> Option<Self> {
        if digits.0.is_empty() {
            return Some(Extended { negative, ..Extended::zero() });
        }
        // A text has less than 5 KiB, so beyond this exponent it is infinite or zero for any digits.
        if ten.abs() > 11_000 {
            return None;
        }
        if ten >= 0 {
            let power = Whole::power_of_ten(ten as u32);
            let mut product = Whole(Vec::new());
            for digit in digits.0.iter().rev() {
                product = product.shifted_left(32).plus(&scaled(&power, *digit));
            }
            return Self::round(negative, &product, 0, false);
        }
        // Shift so far that the quotient has more bits than are kept.
        let divisor_bits = ten.unsigned_abs() * 3322 / 1000 + 1;
        let shift = (MANTISSA_BITS + 8 + divisor_bits).saturating_sub(digits.bits());
        digits = digits.shifted_left(shift);
        let mut beyond = false;
        let mut left = ten.unsigned_abs() as u32;
        while left > 0 {
            let step = left.min(9);
            beyond |= digits.divide(10u32.pow(step)) != 0;
            left -= step;
        }
        let result = Self::round(negative, &digits, -(shift as i64), beyond)?;
        // `strtold` says that such a number is out of range.
        (!result.mantissa.0.is_empty()).then_some(result)
    }

    /// The sum, rounded; `None` when it is too large.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |it: &Self| it.mantissa.shifted_left((it.exponent - exponent) as u64);
        let (a, b) = (aligned(self), aligned(other));
        if self.negative == other.negative {
            return Self::round(self.negative, &a.plus(&b), exponent, false);
        }
        match a.compare(&b) {
            Ordering::Equal => Some(Extended::zero()),
            Ordering::Greater => Self::round(self.negative, &a.minus(&b), exponent, false),
            Ordering::Less => Self::round(other.negative, &b.minus(&a), exponent, false),
        }
    }

    /// The number with at most 17 decimals, without an exponent and without trailing zeros.
    pub(super) fn format(&self) -> String {
        let scaled_up = {
            let power = Whole::power_of_ten(DECIMALS);
            let mut product = Whole(Vec::new());
            for digit in self.mantissa.0.iter().rev() {
                product = product.shifted_left(32).plus(&scaled(&power, *digit));
            }
            product
        };
        let mut number = match u64::try_from(self.exponent) {
            Ok(left) => scaled_up.shifted_left(left),
            Err(_) => scaled_up.rounded_right(self.exponent.unsigned_abs(), false),
        };
        let mut digits = Vec::new();
        while !number.0.is_empty() || digits.len() <= DECIMALS as usize {
            digits.push(b'0' + number.divide(10) as u8);
        }
        digits.reverse();
        let fraction = digits.split_off(digits.len() - DECIMALS as usize);
        let kept = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        let mut text = String::new();
        if self.negative && !(digits == b"0" && kept == 0) {
            text.push('-');
        }
        text.extend(digits.iter().map(|digit| *digit as char));
        if kept > 0 {
            text.push('.');
            text.extend(fraction[..kept].iter().map(|digit| *digit as char));
        }
        text
    }
}

fn scaled(power: &Whole, by: u32) -> Whole {
    let mut product = power.clone();
    product.multiply_add(by, 0);
    product.trimmed()
}

/// The digits behind `e`; far too large ones are cut to a bound that is still far too large.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1_000_000));
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let (Some(Parsed::Finite(a)), Some(Parsed::Finite(b))) =
            (Extended::parse(a.as_bytes()), Extended::parse(b.as_bytes()))
        else {
            return None;
        };
        a.plus(&b).map(|sum| sum.format())
    }

    #[test]
    fn sums_print_as_long_doubles_do() {
        for (a, b, expected) in [
            ("3.0", "0.1", "3.1"),
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("1e20", "8", "100000000000000000008"),
            ("1e20", "1", "100000000000000000000"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "-1e-30", "0"),
            ("3", "1.000000000000000005", "4.00000000000000001"),
            ("18446744073709551615", "1", "18446744073709551616"),
            (".5", "5.", "5.5"),
            ("0x10", "-0X.8p1", "15"),
            ("0xFFFFFFFFFFFFFFFF8", "0", "295147905179352825856"),
            ("0x1p-2", "0x1.8p+1", "3.25"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "1.2.3",
            "abc",
            "1 ",
            " 1",
            "nan",
            "1e5000",
            "1e-6000",
            "0x",
            "0x.",
            "0x.p1",
            "0x1p",
            "0x1p+",
            "0x1.2.3",
            "0x1g",
            "0x1p16384",
            "0x1p-20000",
            "x1",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Extended::parse(b"-inf"), Some(Parsed::Infinite));
        let large = Extended::parse(b"1e4932");
        let Some(Parsed::Finite(large)) = large else { panic!("in range") };
        assert_eq!(large.plus(&large), None);
    }

    proptest! {
        #[test]
        fn whole_numbers_add_exactly(a in -(1i64 << 61)..1i64 << 61, b in -(1i64 << 61)..1i64 << 61) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some((a + b).to_string()));
        }

        /// A small number with up to ten digits is printed as it was written: 64 bits hold more than that.
        #[test]
        fn short_decimals_survive(whole in 0u64..2, decimals in 1u64..1_000_000_000) {
            let text = format!("{whole}.{decimals:09}");
            let text = text.trim_end_matches('0').to_owned();
            prop_assert_eq!(sum(&text, "0"), Some(text));
        }
    }
}
