//! Sizes as users write them (`10G`, `10GB`, `+2G`, `50%FREE`) and as they read them (`10.0 GiB`).

/// A size argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeArgument {
    /// Whether it is to be added to the present size (`+2G`).
    pub relative: bool,
    /// How much.
    pub amount: Amount,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// A share, 1 to 100, of the free space of the group.
    PercentFree(u64),
}

/// The share of `amount` that is `percent`, 1 to 100, of it.
pub fn share(amount: u64, percent: u64) -> u64 {
    let share = u128::from(amount) * u128::from(percent) / 100;
    u64::try_from(share).expect("a share of a number is not larger than it")
}

/// Why a size is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// There is no number, or something that is none.
    #[error("{0:?} is not a size: write a number and a unit, like 10G, 1.5TiB or 512MB")]
    Number(String),
    /// The unit is not known.
    #[error("{0:?} is not a unit: K M G T P E and KiB … count by 1024, KB … by 1000")]
    Unit(String),
    /// It does not fit in 64 bits.
    #[error("{0:?} is more bytes than a device can have")]
    TooBig(String),
    /// A share that is not one.
    #[error("{0:?} is not a share of the free space: write 1%FREE to 100%FREE")]
    Percent(String),
    /// A size below zero.
    #[error("{0:?} is negative: give the size that the volume is to have")]
    Negative(String),
    /// A relative or shared size where only bytes make sense.
    #[error("{0:?} cannot be used here: give a plain size, like 10G")]
    NotPlain(String),
}

const UNITS: &str = "KMGTPE";
/// The most digits behind the point.
const FRACTION_DIGITS_MAX: usize = 9;

impl SizeArgument {
    /// `bytes`, as the size to have.
    pub const fn bytes(bytes: u64) -> Self {
        Self { relative: false, amount: Amount::Bytes(bytes) }
    }

    /// Parses `10G`, `+2G`, `50%FREE` or `+100%FREE`.
    pub fn parse(text: &str) -> Result<Self, SizeError> {
        let (relative, rest) = match text.strip_prefix('+') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.starts_with('-') {
            return Err(SizeError::Negative(text.into()));
        }
        let Some((number, share)) = rest.split_once('%') else {
            return Ok(Self { relative, amount: Amount::Bytes(parse_bytes(rest)?) });
        };
        let percent = number.parse().ok().filter(|percent| (1..=100).contains(percent));
        match percent {
            Some(percent) if share.eq_ignore_ascii_case("free") => {
                Ok(Self { relative, amount: Amount::PercentFree(percent) })
            }
            _ => Err(SizeError::Percent(text.into())),
        }
    }
}

/// Parses a plain size, where neither `+` nor `%FREE` makes sense.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    match SizeArgument::parse(text)? {
        SizeArgument { relative: false, amount: Amount::Bytes(bytes) } => Ok(bytes),
        _ => Err(SizeError::NotPlain(text.into())),
    }
}

fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let split =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit_bytes(unit.trim_start()).ok_or_else(|| SizeError::Unit(unit.into()))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return Err(SizeError::Number(text.into()));
    }
    let too_big = || SizeError::TooBig(text.into());
    let whole: u64 = whole.parse().map_err(|_| too_big())?;
    let denominator = fraction.bytes().fold(1_u128, |scale, _| scale * 10);
    let numerator: u128 = fraction.parse().map_err(|_| too_big())?;
    let bytes = u128::from(whole) * u128::from(unit) + numerator * u128::from(unit) / denominator;
    u64::try_from(bytes).map_err(|_| too_big())
}

/// Bytes of a unit: `` and `B`, `K` and `KiB` (1024), `KB` (1000), and so on, in any case.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    let Some(letter) = unit.chars().next().filter(|_| unit != "B") else {
        return Some(1);
    };
    let power = u32::try_from(UNITS.find(letter)? + 1).ok()?;
    match &unit[letter.len_utf8()..] {
        "" | "IB" => 1024_u64.checked_pow(power),
        "B" => 1000_u64.checked_pow(power),
        _ => None,
    }
}

/// The size as users read it: `0 B`, `512 B`, `1.5 KiB`, `10.0 GiB`. Rounded to a tenth, half up.
pub fn format_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 1024_u128;
    let mut letters = UNITS.chars();
    let mut letter = letters.next().expect("there are units");
    let tenths = |unit: u128| (u128::from(bytes) * 10 + unit / 2) / unit;
    for next in letters {
        if tenths(unit) < 10_240 {
            break;
        }
        (unit, letter) = (unit * 1024, next);
    }
    assert!(tenths(unit) >= 10, "the largest unit that is not more than the size");
    format!("{}.{} {letter}iB", tenths(unit) / 10, tenths(unit) % 10)
}

/// Seconds of a time such as `90s`, `15m`, `1h`, `1d` or `1w`; nothing if it is none.
pub fn parse_seconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 7 * 86_400)];
    let (number, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let number = number.parse::<u64>().ok().filter(|_| number.bytes().all(|digit| digit.is_ascii_digit()))?;
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_of_the_contract() {
        for (text, bytes) in [
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("10g", 10 << 30),
            ("10GB", 10_000_000_000),
            ("10gb", 10_000_000_000),
            ("4096", 4096),
            ("4096B", 4096),
            ("0", 0),
            ("1.5T", 3 << 39),
            ("0.5K", 512),
            ("10 GiB", 10 << 30),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        let relative = SizeArgument { relative: true, amount: Amount::Bytes(2 << 30) };
        assert_eq!(SizeArgument::parse("+2G"), Ok(relative));
        let share = SizeArgument { relative: false, amount: Amount::PercentFree(50) };
        assert_eq!(SizeArgument::parse("50%FREE"), Ok(share));
    }

    #[test]
    fn absurd_sizes_are_refused_by_kind() {
        for text in ["", ".", "G", ".5G", "1.G", "1.2.3", "1.0000000000G", "++1"] {
            assert!(matches!(parse_size(text), Err(SizeError::Number(_) | SizeError::Unit(_))), "{text}");
        }
        for text in ["10X", "10GiBB", "10i", "10é", "1e9", "10 G B"] {
            assert!(matches!(parse_size(text), Err(SizeError::Unit(_))), "{text}");
        }
        for text in ["16E", "18446744073709551616", "99999999999999999999999T"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooBig(_))), "{text}");
        }
        for text in ["0%FREE", "101%FREE", "50%", "50%USED", "x%FREE", "-5%FREE "] {
            assert!(SizeArgument::parse(text).is_err(), "{text}");
        }
        assert!(matches!(parse_size("-1G"), Err(SizeError::Negative(_))));
        assert!(matches!(parse_size("+1G"), Err(SizeError::NotPlain(_))));
        assert!(matches!(parse_size("5%FREE"), Err(SizeError::NotPlain(_))));
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10.0 GiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn plain_bytes_are_read_as_written(bytes: u64) {
            prop_assert_eq!(parse_size(&bytes.to_string()), Ok(bytes));
        }
        #[test]
        fn what_people_read_is_within_a_twentieth(bytes in 1024_u64..1 << 62) {
            let read = parse_size(&format_size(bytes)).expect("our own words");
            prop_assert!(read.abs_diff(bytes) <= bytes / 20, "{} as {}", bytes, format_size(bytes));
        }
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = SizeArgument::parse(&text);
        }
    }
}
