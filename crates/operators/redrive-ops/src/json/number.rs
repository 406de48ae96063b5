//! Compares numbers by their digits.

/// A decimal number: `digits` × 10^`exponent`, without a zero at either end of the digits. Zero has no digits.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

/// Returns true if both texts are numbers, and the same one: `1.10` and `1.1`, `1e2` and `100`, `0` and `-0`. Takes time with the
/// length of the texts, whatever the exponents are.
///
/// ```
/// use redrive_ops::same_number;
///
/// assert!(same_number("1.10", "1.1") && same_number("1e2", "100"));
/// assert!(!same_number("12345678901234567890123", "12345678901234567890124"));
/// ```
#[must_use]
pub fn same_number(one: &str, other: &str) -> bool {
    match (Decimal::parse(one), Decimal::parse(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Returns a text that equal numbers share. A number whose exponent has too many digits is only like itself.
pub(super) fn canonical(number: &str) -> String {
    match Decimal::parse(number) {
        Some(Decimal { is_negative, digits, exponent }) => {
            format!("{}{digits}e{exponent}", if is_negative { "-" } else { "" })
        }
        None => number.to_owned(),
    }
}

impl Decimal {
    /// Returns `None` for a text that is no number, and for an exponent beyond 64 bits.
    fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let mut digits = [whole, fraction].concat();
        let significant = digits.trim_end_matches('0').len();
        let trailing = i64::try_from(digits.len() - significant).ok()?;
        digits.truncate(significant);
        digits.drain(..digits.len() - digits.trim_start_matches('0').len());
        if digits.is_empty() {
            // Whatever its sign and its exponent, which must be one all the same.
            let is_exponent = |text: &str| !text.is_empty() && is_digits(text);
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            return is_exponent(unsigned).then_some(Self { is_negative: false, digits, exponent: 0 });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let fraction = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.checked_sub(fraction)?.checked_add(trailing)?;
        Some(Self { is_negative, digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_has_many_forms() {
        for (one, other) in [
            ("1.10", "1.1"),
            ("1e2", "100"),
            ("1E+2", "100.00"),
            ("0.00120e3", "1.2"),
            ("-0", "0"),
            ("-0.0e99999999999999999999", "0"),
            ("12345678901234567890123", "12345678901234567890123.0"),
            ("1e9223372036854775807", "10e9223372036854775806"),
            ("007", "7"),
            ("+1.", "1"),
            (".5", "0.5"),
        ] {
            assert!(same_number(one, other) && same_number(other, one), "{one} {other}");
            assert_eq!(canonical(one), canonical(other));
        }
    }

    #[test]
    fn different_digits_are_different_numbers() {
        for (one, other) in [
            ("12345678901234567890123", "12345678901234567890124"),
            ("9007199254740993", "9007199254740992.0"),
            ("0.1", "0.10000000000000000001"),
            ("1e400", "1e401"),
            ("-1", "1"),
            ("1e-99999999999999999999", "0"),
            ("10", "1"),
        ] {
            assert!(!same_number(one, other), "{one} {other}");
        }
        for text in ["", "-", ".", "e5", "1e", "1e+", "0e", "1.2.3", "NaN", "0x10", "1 ", "١"] {
            assert!(!same_number(text, text), "{text}");
        }
    }
}
