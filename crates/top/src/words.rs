//! Numbers for people: three digits and a prefix.

/// `12.3 Mbit/s`.
pub(crate) fn bits(bps: f64) -> String {
    scaled(bps, "bit/s")
}

/// Packets or drops per second, `-` for none, so that what is not zero is seen.
pub(crate) fn per_second(rate: f64) -> String {
    if rate == 0.0 { "-".to_owned() } else { scaled(rate, "/s") }
}

/// `870 us`, `12.3 ms`; `-` where nothing left.
pub(crate) fn delay(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 999.5 => format!("{us:.0} us"),
        Some(us) if us < 999_500.0 => format!("{} ms", digits(us / 1e3)),
        Some(us) => format!("{} s", digits(us / 1e6)),
    }
}

/// `97 %`.
pub(crate) fn part(of: f64) -> String {
    format!("{:.0} %", of * 100.0)
}

fn scaled(value: f64, unit: &str) -> String {
    for (size, prefix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= size * 0.9995 {
            return format!("{} {prefix}{unit}", digits(value / size));
        }
    }
    format!("{} {unit}", digits(value))
}

/// Three digits.
fn digits(value: f64) -> String {
    let decimals = match value {
        v if v == 0.0 || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        assert_eq!(bits(0.0), "0 bit/s");
        assert_eq!(bits(999_600.0), "1.00 Mbit/s");
        assert_eq!(bits(12_345_678.0), "12.3 Mbit/s");
        assert_eq!(bits(123_456_789_000.0), "123 Gbit/s");
        assert_eq!((per_second(0.0), per_second(2.5)), ("-".to_owned(), "2.50 /s".to_owned()));
        let delays = [None, Some(870.4), Some(12_340.0), Some(2.5e6)].map(delay);
        assert_eq!(delays, ["-", "870 us", "12.3 ms", "2.50 s"]);
    }
}
