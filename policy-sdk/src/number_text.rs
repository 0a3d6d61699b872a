//! Formatting of numbers. Hand-written, because formatting one float with the standard library adds 17 KB to
//! a component.

/// Formats a number as text; the text is valid JSON if the number is finite.
///
/// The notation is plain if it is exact to a millionth. Otherwise it has an exponent and 15 digits.
pub(crate) fn decimal(number: f64) -> String {
    const MILLION: f64 = 1e6;
    /// Largest number below which every integer is exact.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    let sign = if number < 0.0 { "-" } else { "" };
    let size = number.abs();
    if !size.is_finite() {
        return [sign, if number.is_nan() { "nan" } else { "infinity" }].concat();
    }
    let whole = size as u64;
    let fraction = ((size - whole as f64) * MILLION + 0.5) as u64;
    let is_exact = (whole as f64 + fraction as f64 / MILLION - size).abs() <= size * f64::EPSILON;
    if size > WHOLE || !is_exact {
        return [sign, &scientific(size)].concat();
    }
    // A fraction that rounds up to a million millionths is carried.
    let (whole, fraction) = (whole + fraction / 1_000_000, fraction % 1_000_000);
    let mut text = [sign, &digits(whole)].concat();
    if fraction > 0 {
        text.push('.');
        push_fraction(&mut text, &digits(1_000_000 + fraction));
    }
    text
}

/// Formats a positive number with an exponent.
fn scientific(size: f64) -> String {
    /// Digits after the first one.
    const DIGITS: i32 = 14;
    let (mut scaled, mut exponent) = (size, 0_i32);
    while scaled >= 10.0 {
        scaled /= 10.0;
        exponent += 1;
    }
    while scaled < 1.0 {
        scaled *= 10.0;
        exponent -= 1;
    }
    let mut all = (scaled * 10_f64.powi(DIGITS) + 0.5) as u64;
    // Rounding may have added a digit.
    if all >= 10_u64.pow(DIGITS as u32 + 1) {
        all /= 10;
        exponent += 1;
    }
    let all = digits(all);
    let mut text = String::new();
    text.extend(all.chars().next());
    if all.bytes().skip(1).any(|digit| digit != b'0') {
        text.push('.');
        push_fraction(&mut text, &all);
    }
    let sign = if exponent < 0 { "e-" } else { "e" };
    text.push_str(sign);
    text.push_str(&digits(u64::from(exponent.unsigned_abs())));
    text
}

/// Appends all digits but the first, without trailing zeros. Works on characters, because slicing text adds 9
/// KB of panic code to a component.
fn push_fraction(text: &mut String, digits: &str) {
    let zeros = digits.bytes().rev().take_while(|&digit| digit == b'0').count();
    let wanted = digits.len().saturating_sub(zeros + 1);
    text.extend(digits.chars().skip(1).take(wanted));
}

fn digits(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|&digit| char::from(digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_number_parses_to_the_same_value() {
        for number in [
            1.0 / 3.0,
            1e-300,
            123_456.789_012_345,
            6.02e23,
            0.1 + 0.2,
            1e-7 * (1.0 - f64::EPSILON),
        ] {
            let back: f64 = decimal(number).parse().unwrap();
            assert!((back / number - 1.0).abs() < 1e-14, "{number} {back}");
        }
    }

    #[test]
    fn decimals_are_formatted_plainly() {
        for (number, text) in [
            (0.0, "0"),
            (0.75, "0.75"),
            (-1.5, "-1.5"),
            (0.000_001, "0.000001"),
            (1_048_576.0, "1048576"),
            (10.05, "10.05"),
            (0.999_999_9, "9.999999e-1"),
            (1e-7, "1e-7"),
            (-2.5e-9, "-2.5e-9"),
            (1e20, "1e20"),
            (f64::INFINITY, "infinity"),
            (9_007_199_254_740_992.0, "9007199254740992"),
        ] {
            assert_eq!(decimal(number), text);
        }
    }
}
