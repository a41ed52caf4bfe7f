//! Prometheus' text exposition form: metrics with their samples, labels, histograms.

use std::fmt::Write;
use std::time::Duration;
use varve_api::{RequestLatency, Traffic};
use varve_block::Latency;

/// One metric.
pub(super) struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: Vec<Sample>,
}

/// One line: what follows the name, the labels, the value.
struct Sample {
    suffix: &'static str,
    labels: String,
    value: String,
}

impl Metric {
    fn new<V: ToString>(
        kind: &'static str,
        name: &'static str,
        help: &'static str,
        samples: Vec<(String, V)>,
    ) -> Self {
        let sample = |(labels, value): (String, V)| Sample { suffix: "", labels, value: value.to_string() };
        Self { name, help, kind, samples: samples.into_iter().map(sample).collect() }
    }

    /// Adds it to `text`. One without samples is left out.
    pub(super) fn write(&self, text: &mut String) {
        let Metric { name, help, kind, samples } = self;
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { suffix, labels, value } in samples {
            let _ = writeln!(text, "{name}{suffix}{labels} {value}");
        }
    }
}

pub(super) fn gauge<V: ToString>(
    name: &'static str,
    help: &'static str,
    samples: Vec<(String, V)>,
) -> Metric {
    Metric::new("gauge", name, help, samples)
}

/// A sample without labels.
pub(super) fn one(value: u64) -> Vec<(String, u64)> {
    vec![(String::new(), value)]
}

/// Nouns with their labels, of each of which several metrics have a sample.
pub(super) struct Rows<T>(Vec<(String, T)>);

impl<T> Rows<T> {
    /// What a gauge shows of each.
    pub(super) fn gauge(&self, name: &'static str, help: &'static str, value: impl Fn(&T) -> u64) -> Metric {
        gauge(name, help, self.values(value))
    }

    /// What was counted of each.
    pub(super) fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        value: impl Fn(&T) -> u64,
    ) -> Metric {
        Metric::new("counter", name, help, self.values(value))
    }

    fn values(&self, value: impl Fn(&T) -> u64) -> Vec<(String, u64)> {
        self.0.iter().map(|(labels, noun)| (labels.clone(), value(noun))).collect()
    }
}

impl<T> FromIterator<(String, T)> for Rows<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}

/// How the metrics of traffic of one kind of noun are called.
pub(super) struct TrafficNames {
    pub(super) counters: [&'static str; 7],
    pub(super) in_flight: &'static str,
    pub(super) duration: &'static str,
}

/// The names with this prefix.
macro_rules! traffic_names {
    ($prefix:literal) => {
        TrafficNames {
            counters: [
                concat!($prefix, "_reads_total"),
                concat!($prefix, "_read_bytes_total"),
                concat!($prefix, "_writes_total"),
                concat!($prefix, "_written_bytes_total"),
                concat!($prefix, "_flushes_total"),
                concat!($prefix, "_discards_total"),
                concat!($prefix, "_errors_total"),
            ],
            in_flight: concat!($prefix, "_requests_in_flight"),
            duration: concat!($prefix, "_request_duration_seconds"),
        }
    };
}
pub(super) use traffic_names;

/// What went through nouns.
pub(super) fn traffic(names: &TrafficNames, rows: &Rows<&Traffic>) -> Vec<Metric> {
    type Value = fn(&Traffic) -> u64;
    let kinds: [(&'static str, Value); 7] = [
        ("Read requests.", |traffic| traffic.reads),
        ("Bytes read.", |traffic| traffic.read_bytes),
        ("Write requests, zeroes included.", |traffic| traffic.writes),
        ("Bytes written, zeroes included.", |traffic| traffic.write_bytes),
        ("Flushes.", |traffic| traffic.flushes),
        ("Discards.", |traffic| traffic.discards),
        ("Requests that failed.", |traffic| traffic.errors),
    ];
    let counters = names.counters.into_iter().zip(kinds);
    let mut metrics: Vec<Metric> =
        counters.map(|(name, (help, value))| rows.counter(name, help, |traffic| value(traffic))).collect();
    metrics.push(rows.gauge(names.in_flight, "Requests under way now.", |traffic| traffic.in_flight));
    let mut samples = Vec::new();
    for (labels, traffic) in &rows.0 {
        let latency = &traffic.latency;
        for (kind, latency) in
            [("read", &latency.reads), ("write", &latency.writes), ("flush", &latency.flushes)]
        {
            histogram(&mut samples, &with(labels, "request", kind), latency);
        }
    }
    let help = "How long requests took; of a kind of which there were none there is no series.";
    metrics.push(Metric { name: names.duration, help, kind: "histogram", samples });
    metrics
}

/// The lines of one histogram; none if there was no request.
fn histogram(samples: &mut Vec<Sample>, labels: &str, latency: &RequestLatency) {
    if latency.counts.is_empty() {
        return;
    }
    let mut sum = 0;
    for (bucket, count) in latency.counts.iter().enumerate() {
        sum += count;
        let bound = Latency::bound(bucket).map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        let labels = with(labels, "le", &bound);
        samples.push(Sample { suffix: "_bucket", labels, value: sum.to_string() });
    }
    let seconds = Duration::from_nanos(latency.nanoseconds).as_secs_f64();
    samples.push(Sample { suffix: "_sum", labels: labels.to_owned(), value: seconds.to_string() });
    samples.push(Sample { suffix: "_count", labels: labels.to_owned(), value: sum.to_string() });
}

/// `labels` and one more.
pub(super) fn with(labels: &str, name: &str, value: &str) -> String {
    let more = self::labels(&[(name, value)]);
    match labels.strip_suffix('}') {
        Some(before) => format!("{before},{}", more.trim_start_matches('{')),
        None => more,
    }
}

/// `{name="value",…}` with what must be escaped escaped.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("a", "x\"\\\n")]), r#"{a="x\"\\\n"}"#);
        assert_eq!(with(&labels(&[("a", "}")]), "le", "1"), r#"{a="}",le="1"}"#);
        assert_eq!(with("", "le", "1"), r#"{le="1"}"#);
    }

    #[test]
    fn buckets_of_a_histogram_hold_all_that_took_no_longer() {
        let mut counts = vec![0; varve_block::LATENCY_BUCKETS];
        (counts[0], counts[2], counts[20]) = (3, 1, 2);
        let mut samples = Vec::new();
        histogram(&mut samples, "{a=\"b\"}", &RequestLatency { counts, nanoseconds: 1_500_000_000 });
        let line = |sample: &Sample| format!("{}{} {}", sample.suffix, sample.labels, sample.value);
        let lines: Vec<String> = samples.iter().map(line).collect();
        assert_eq!(lines.len(), 23);
        assert_eq!(lines[0], r#"_bucket{a="b",le="0.000032"} 3"#);
        assert_eq!(lines[1], r#"_bucket{a="b",le="0.000064"} 3"#);
        assert_eq!(lines[2], r#"_bucket{a="b",le="0.000128"} 4"#);
        assert_eq!(lines[19], r#"_bucket{a="b",le="16.777216"} 4"#);
        assert_eq!(lines[20], r#"_bucket{a="b",le="+Inf"} 6"#);
        assert_eq!(lines[21..], [r#"_sum{a="b"} 1.5"#, r#"_count{a="b"} 6"#]);
        let mut none = Vec::new();
        histogram(&mut none, "", &RequestLatency::default());
        assert!(none.is_empty(), "there was no request");
    }
}
