//! When an X.509 certificate is valid: the one field of it that the library for TLS does not show (RFC 5280, 4.1.2.5).

use std::ops::Range;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Seconds since 1970 of its begin and its end; none if the certificate cannot be read so far.
pub(super) fn validity(certificate: &[u8]) -> Option<Range<u64>> {
    let (mut outer, _) = expect(certificate, SEQUENCE)?;
    let mut fields = take(&mut outer, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        take(&mut fields, VERSION)?;
    }
    for _serial_signature_issuer in 0..3 {
        let (_, _, rest) = item(fields)?;
        fields = rest;
    }
    let mut times = take(&mut fields, SEQUENCE)?;
    let begin = time(&mut times)?;
    Some(begin..time(&mut times)?)
}

/// Tag, content and what is behind the first item.
fn item(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    item(bytes).filter(|(tag, ..)| *tag == wanted).map(|(_, content, rest)| (content, rest))
}

fn take<'a>(bytes: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    let (content, rest) = expect(bytes, wanted)?;
    *bytes = rest;
    Some(content)
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`; one before 1970 is taken for 1970.
fn time(bytes: &mut &[u8]) -> Option<u64> {
    let (tag, content, rest) = item(bytes)?;
    *bytes = rest;
    let digits = content.strip_suffix(b"Z")?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i64>().ok();
    let (year, digits) = match tag {
        UTC_TIME => {
            let (year, digits) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits)
        }
        GENERALIZED_TIME => {
            let (year, digits) = digits.split_at_checked(4)?;
            (number(year)?, digits)
        }
        _ => return None,
    };
    let mut parts = [0; 5];
    if digits.len() != 2 * parts.len() {
        return None;
    }
    for (part, digits) in parts.iter_mut().zip(digits.chunks(2)) {
        *part = number(digits)?;
    }
    let [month, day, hour, minute, second] = parts;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Days since 1970 of a date in the Gregorian calendar; years begin in March, so that the leap day is their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let in_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + in_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[tag, 0x82][..], &length, content].concat()
    }

    /// A certificate as far as its dates.
    fn certificate(has_version: bool, begin: &[u8], end: &[u8]) -> Vec<u8> {
        let times = [begin, end].concat();
        let version = if has_version { wrapped(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let issuer = wrapped(SEQUENCE, &[0; 200]);
        let fields = [version, vec![2, 1, 7], wrapped(SEQUENCE, &[]), issuer, wrapped(SEQUENCE, &times)];
        wrapped(SEQUENCE, &wrapped(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn dates_of_both_kinds_are_read() {
        let begin = [&[UTC_TIME, 13][..], b"700101000000Z"].concat();
        let end = [&[GENERALIZED_TIME, 15][..], b"20500228235959Z"].concat();
        for has_version in [true, false] {
            let read = validity(&certificate(has_version, &begin, &end));
            assert_eq!(read, Some(0..2_529_705_599));
        }
        // As `date -d … +%s` has them.
        for (text, seconds) in [
            (b"261130004000Z", 1_795_999_200),
            (b"000229120000Z", 951_825_600),
            (b"491231235959Z", 2_524_607_999),
            (b"500101000000Z", 0),
        ] {
            let end = [&[UTC_TIME, 13][..], text].concat();
            assert_eq!(validity(&certificate(true, &begin, &end)).map(|valid| valid.end), Some(seconds));
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        let begin = [&[UTC_TIME, 13][..], b"700101000000Z"].concat();
        let whole = certificate(true, &begin, &begin);
        for length in 0..whole.len() {
            assert_eq!(validity(&whole[..length]), None, "{length} bytes");
        }
        for wrong in
            [&b"700001000000Z"[..], b"7001010000Z", b"700101000000+0100", b"x00101000000Z", b"700101000000"]
        {
            let end = [&[UTC_TIME, u8::try_from(wrong.len()).expect("short")][..], wrong].concat();
            assert_eq!(validity(&certificate(true, &begin, &end)), None);
        }
    }
}
