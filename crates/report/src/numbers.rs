//! Numbers for people: grouped thousands, microseconds with sensible digits, axis ticks.

use evenkeel_scenario::Term;

/// Between groups of thousands: a no-break space, so that tables and pages never wrap inside a
/// number.
pub(crate) const GROUP: char = '\u{a0}';

/// A rate or count with two significant digits or more, thousands grouped: `4 275`, `12`, `1.3`,
/// `0.42`.
#[must_use]
pub(crate) fn grouped(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m >= 9.95 || m == 0.0 => 0,
        m if m >= 0.995 => 1,
        _ => 2,
    };
    let text = format!("{magnitude:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    if value < 0.0 {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(GROUP);
        }
        out.push(digit);
    }
    out + rest
}

/// A number with up to three decimals and no trailing zeros: `0.75`, `25`.
#[must_use]
pub(crate) fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Microseconds as milliseconds with two decimals, or with three where two would say little:
/// `8.31`, `143.20`, `0.042`.
#[must_use]
pub(crate) fn micros(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        m if m >= 999.995 => grouped(m),
        m if m >= 0.0995 => format!("{m:.2}"),
        m => format!("{m:.3}"),
    }
}

/// A number behind an expectation, with its unit: `9.12 ms`.
#[must_use]
pub(crate) fn measured(term: &Term) -> String {
    match (term.value, term.unit) {
        (None, _) => "not measured".to_owned(),
        (Some(us), "us") => format!("{} ms", micros(us)),
        (Some(value), "") => fraction(value),
        (Some(value), unit) => format!("{} {unit}", grouped(value)),
    }
}

/// A number without a unit: as many decimals as say something.
pub(crate) fn fraction(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 99.95 {
        grouped(value)
    } else {
        format!("{value:.3}")
    }
}

/// Round numbers that cover `0..=max` in about `count` steps; the last is at or above `max`.
#[must_use]
pub fn linear_ticks(max: f64, count: usize) -> Vec<f64> {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let raw = max / count.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|s| *s >= raw * 0.999)
        .unwrap_or(raw);
    let steps = (max / step - 1e-9).ceil().max(1.0) as usize;
    (0..=steps).map(|i| i as f64 * step).collect()
}

/// Powers of ten that enclose `low..=high` (both above zero).
#[must_use]
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let first = (low.log10() + 1e-9).floor() as i32;
    let last = ((high.log10() - 1e-9).ceil() as i32).max(first + 1);
    (first..=last).map(|e| 10f64.powi(e)).collect()
}

/// A tick's label: grouped whole numbers, decimals only as needed.
#[must_use]
pub fn tick_label(value: f64) -> String {
    if value >= 1000.0 || value.fract() == 0.0 {
        return grouped_whole(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn grouped_whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(GROUP);
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_and_small_numbers_keep_digits() {
        assert_eq!(grouped(4275.4), "4\u{a0}275");
        assert_eq!(grouped(1_002_311.0), "1\u{a0}002\u{a0}311");
        assert_eq!(grouped(12.34), "12");
        assert_eq!(grouped(1.34), "1.3");
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(0.4242), "0.42");
        assert_eq!(micros(412.4), "0.41");
        assert_eq!(micros(42.4), "0.042");
        assert_eq!(micros(8_306.0), "8.31");
        assert_eq!(micros(143_204.0), "143.20");
        assert_eq!(micros(2_143_204.0), "2\u{a0}143");
    }

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        assert_eq!(linear_ticks(8_700.0, 5), [0.0, 2000.0, 4000.0, 6000.0, 8000.0, 10_000.0]);
        assert_eq!(linear_ticks(50.0, 5), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(linear_ticks(0.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(log_ticks(0.3, 120.0), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(log_ticks(1.0, 1.0), [1.0, 10.0]);
    }

    #[test]
    fn measured_numbers_carry_their_unit() {
        let term = |value, unit| measured(&Term { text: String::new(), value, unit });
        assert_eq!(term(Some(9_120.0), "us"), "9.12 ms");
        assert_eq!(term(Some(4_275.0), "packets/s"), "4\u{a0}275 packets/s");
        assert_eq!(term(Some(0.472), ""), "0.472");
        assert_eq!(term(Some(1000.0), ""), "1\u{a0}000");
        assert_eq!(term(None, "us"), "not measured");
    }
}
