//! Counters, gauges and histograms, and their Prometheus text (exposition format 0.0.4).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::histogram::Histogram;
use super::process;
use super::progress::ProgressMetric;
use super::value::{Counter, Gauge};

/// All metrics of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MetricsRegistry {
    families: Arc<Mutex<Vec<MetricFamily>>>,
}

/// All series with one name.
#[derive(Debug)]
struct MetricFamily {
    name: Cow<'static, str>,
    help: &'static str,
    series: Vec<MetricSeries>,
}

#[derive(Debug)]
struct MetricSeries {
    /// `{name="value",…}`, or empty without labels.
    labels: String,
    value: MetricValue,
}

/// The value of a series, shared with the code that updates it.
#[derive(Debug)]
enum MetricValue {
    Counter(Counter),
    /// Nanoseconds, exported in seconds.
    Seconds(Counter),
    Gauge(Gauge),
    Progress(ProgressMetric),
    Histogram(Histogram),
}

impl MetricValue {
    fn type_name(&self) -> &'static str {
        match self {
            // Progress is a percentage, but it is exported as a counter, because its name and the
            // contract require one.
            Self::Counter(_) | Self::Seconds(_) | Self::Progress(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    /// Returns the lines of the series `name` with `labels`, or `None` if it must not be shown
    /// yet. Rust's `to_string` never prints these numbers in exponent form.
    fn sample_text(&self, name: &str, labels: &str) -> Option<String> {
        let value = match self {
            Self::Counter(counter) => counter.value().to_string(),
            Self::Seconds(nanos) => Duration::from_nanos(nanos.value()).as_secs_f64().to_string(),
            Self::Gauge(gauge) => gauge.value().to_string(),
            Self::Progress(progress) => progress.value_text()?,
            Self::Histogram(histogram) => return Some(histogram.sample_text(name)),
        };
        Some(format!("{name}{labels} {value}\n"))
    }
}

impl MetricsRegistry {
    /// Registers a new counter. Counter names end in `_total`. Label values must be taken from a
    /// fixed set, never from input.
    pub fn add_counter(
        &self,
        name: impl Into<Cow<'static, str>>,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Counter {
        self.add_series(name.into(), help, labels, Counter::default(), MetricValue::Counter)
    }

    /// Registers a new counter of durations, whose name ends in `_seconds_total`.
    pub fn add_seconds_counter(
        &self,
        name: impl Into<Cow<'static, str>>,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Counter {
        self.add_series(name.into(), help, labels, Counter::default(), MetricValue::Seconds)
    }

    /// Registers a new gauge.
    pub fn add_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Gauge {
        self.add_series(name.into(), help, labels, Gauge::default(), MetricValue::Gauge)
    }

    /// Registers a new progress series with the label `ownerUID`, by which the controllers find
    /// it.
    pub fn add_progress(
        &self,
        name: &'static str,
        help: &'static str,
        owner_uid: &str,
    ) -> ProgressMetric {
        let labels = [("ownerUID", owner_uid)];
        self.add_series(name.into(), help, &labels, Default::default(), MetricValue::Progress)
    }

    /// Registers a new histogram with buckets that end at `bounds` and at infinity.
    pub fn add_histogram(
        &self,
        name: &'static str,
        help: &'static str,
        bounds: &'static [f64],
    ) -> Histogram {
        self.add_series(name.into(), help, &[], Histogram::new(bounds), MetricValue::Histogram)
    }

    /// Registers `value`, which is exported as `kind`, and returns it.
    fn add_series<V: Clone>(
        &self,
        name: Cow<'static, str>,
        help: &'static str,
        labels: &[(&str, &str)],
        value: V,
        kind: fn(V) -> MetricValue,
    ) -> V {
        let series = MetricSeries { labels: label_text(labels), value: kind(value.clone()) };
        let mut families = self.families.lock();
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => {
                debug_assert!(
                    family.series.iter().all(|s| s.labels != series.labels),
                    "{name}{} is registered twice",
                    series.labels
                );
                family.series.push(series);
            }
            None => families.push(MetricFamily { name, help, series: vec![series] }),
        }
        value
    }

    /// Returns the page for Prometheus: all registered series and the metrics of the process
    /// itself.
    pub fn encode_page(&self) -> String {
        self.encode_text() + &process::encode_text()
    }

    /// Returns all registered series that may be shown, as text. A family without such series is
    /// omitted.
    pub fn encode_text(&self) -> String {
        let mut text = String::new();
        for family in self.families.lock().iter() {
            let name = &family.name;
            let mut header = family.series.first().map(|series| {
                format!(
                    "# HELP {name} {}\n# TYPE {name} {}\n",
                    family.help,
                    series.value.type_name()
                )
            });
            for series in &family.series {
                if let Some(samples) = series.value.sample_text(name, &series.labels) {
                    text.push_str(&header.take().unwrap_or_default());
                    text.push_str(&samples);
                }
            }
        }
        text
    }
}

fn label_text(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pair = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        format!("{name}=\"{value}\"")
    };
    let pairs: Vec<String> = labels.iter().map(pair).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::IMPORT_PROGRESS;

    #[test]
    fn progress_has_the_exact_text_of_the_contract() {
        let registry = MetricsRegistry::default();
        let progress = registry.add_progress(IMPORT_PROGRESS.0, IMPORT_PROGRESS.1, "0b9c7c5e-6e0e");
        assert_eq!(registry.encode_text(), "");
        progress.record_bytes(1, 3);
        assert_eq!(
            registry.encode_text(),
            "# HELP kubevirt_cdi_import_progress_total The import progress in percentage\n\
             # TYPE kubevirt_cdi_import_progress_total counter\n\
             kubevirt_cdi_import_progress_total{ownerUID=\"0b9c7c5e-6e0e\"} 33.33\n"
        );
    }

    #[test]
    fn series_of_one_family_share_a_header() {
        let registry = MetricsRegistry::default();
        let source = registry.add_counter("x_errors_total", "Errors.", &[("stage", "source")]);
        registry.add_counter("x_errors_total", "Errors.", &[("stage", "target")]);
        let seconds = registry.add_gauge("x_seconds", "Seconds.", &[]);
        registry.add_counter("x_retries_total", "Retries.", &[]).add(u64::MAX);
        // The buckets of a histogram are cumulative and include their bounds.
        let sizes = registry.add_histogram("x_bytes", "Sizes.", &[1.0, 2.5]);
        [0.5, 1.0, 2.0, 7.0].into_iter().for_each(|value| sizes.observe(value));
        source.add(2);
        seconds.set(0.000_000_25);
        assert_eq!(
            registry.encode_text(),
            "# HELP x_errors_total Errors.\n\
             # TYPE x_errors_total counter\n\
             x_errors_total{stage=\"source\"} 2\n\
             x_errors_total{stage=\"target\"} 0\n\
             # HELP x_seconds Seconds.\n\
             # TYPE x_seconds gauge\n\
             x_seconds 0.00000025\n\
             # HELP x_retries_total Retries.\n\
             # TYPE x_retries_total counter\n\
             x_retries_total 18446744073709551615\n\
             # HELP x_bytes Sizes.\n\
             # TYPE x_bytes histogram\n\
             x_bytes_bucket{le=\"1\"} 2\n\
             x_bytes_bucket{le=\"2.5\"} 3\n\
             x_bytes_bucket{le=\"+Inf\"} 4\n\
             x_bytes_sum 10.5\n\
             x_bytes_count 4\n"
        );
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(label_text(&[("a", "x\"y\\z\n"), ("b", "")]), r#"{a="x\"y\\z\n",b=""}"#);
    }
}
