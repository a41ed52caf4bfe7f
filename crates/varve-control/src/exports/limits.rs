//! The limits of exports: given when one is made, changed while it is in use.
//!
//! Invariant EXPORTLIMIT1: a door that is being closed has no limits, so that what is under way ends.

use super::known_exports::Exports;
use crate::failures;
use crate::host::remembered::RememberedExport;
use varve_api::{Code, ExportLimits, Failure};
use varve_vg::size::{format_size, parse_size};
use varve_volume::doors::limits::{Limits, Rates};

/// What stands for no limit.
const NONE: &str = "none";

impl Exports {
    /// What the doors of an export share, with the limits that are remembered of it.
    pub(super) fn limits_of(&self, remembered: &RememberedExport) -> Limits {
        let limits = self.limits.borrow_mut().entry(remembered.id.clone()).or_default().clone();
        let ExportLimits { iops, bandwidth } = remembered.limits;
        limits.set(Rates { requests: iops, bytes: bandwidth });
        limits
    }

    /// EXPORTLIMIT1: requests that wait go on.
    pub(super) fn lift_limits(&self, id: &str) {
        self.limits.borrow().get(id).into_iter().for_each(|limits| limits.set(Rates::default()));
    }
}

/// Limits by what a user says of them, who says nothing of those that stay as they are `now`.
pub(super) fn parse(
    iops: Option<&str>,
    bandwidth: Option<&str>,
    now: ExportLimits,
) -> Result<ExportLimits, Failure> {
    let too_low = |what: &str| {
        let message = format!("{what} of 0 would let no request through");
        Failure::new(Code::Usage, message).help("give more, or none for no limit")
    };
    let iops = match iops {
        None => now.iops,
        Some(NONE) => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            Failure::new(Code::Usage, format!("--iops {text} is no number of requests in a second"))
                .help("--iops 500, or --iops none")
        })?),
    };
    let bandwidth = match bandwidth {
        None => now.bandwidth,
        Some(NONE) => None,
        Some(text) => Some(parse_size(text).map_err(|error| failures::bad_size(&error))?),
    };
    match (iops, bandwidth) {
        (Some(0), _) => Err(too_low("--iops")),
        (_, Some(0)) => Err(too_low("--bandwidth")),
        _ => Ok(ExportLimits { iops, bandwidth }),
    }
}

/// Limits in words.
pub(super) fn words(limits: ExportLimits) -> String {
    let requests = limits.iops.map(|iops| format!("{iops} requests a second"));
    let bytes = limits.bandwidth.map(|bytes| format!("{} a second", format_size(bytes)));
    match (requests, bytes) {
        (None, None) => "no limits".to_owned(),
        (Some(one), None) | (None, Some(one)) => format!("a limit of {one}"),
        (Some(requests), Some(bytes)) => format!("limits of {requests} and {bytes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_stays_and_none_ends_a_limit() {
        let now = ExportLimits { iops: Some(500), bandwidth: Some(1 << 20) };
        assert_eq!(parse(None, None, now), Ok(now));
        assert_eq!(parse(Some("7"), None, now), Ok(ExportLimits { iops: Some(7), ..now }));
        assert_eq!(parse(None, Some("30M"), now), Ok(ExportLimits { bandwidth: Some(30 << 20), ..now }));
        assert_eq!(parse(Some("none"), Some("none"), now), Ok(ExportLimits::default()));
        let refused = [(Some("0"), None), (None, Some("0")), (Some("-1"), None), (Some("many"), None)];
        for (iops, bandwidth) in refused {
            let refused = parse(iops, bandwidth, now).expect_err("no limit");
            assert_eq!(refused.code, Code::Usage, "{refused}");
            assert!(refused.help.contains("none"), "{refused}");
        }
        assert_eq!(parse(None, Some("much"), now).map_err(|refused| refused.code), Err(Code::BadSize));
        assert_eq!(words(now), "limits of 500 requests a second and 1.0 MiB a second");
        assert_eq!(words(ExportLimits { bandwidth: None, ..now }), "a limit of 500 requests a second");
        assert_eq!(words(ExportLimits::default()), "no limits");
    }
}
