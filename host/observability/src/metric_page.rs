//! Metric families whose values are read at scrape time instead of being counted twice.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Writer of metric families that a collector reads at scrape time.
#[derive(Debug)]
pub struct MetricPage<'a>(DescriptorEncoder<'a>);

impl<'a> MetricPage<'a> {
    /// Returns a writer to the encoder of a scrape.
    #[must_use]
    pub fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a gauge.
    ///
    /// # Errors
    /// [`fmt::Error`] of the encoder.
    pub fn gauge(&mut self, name: &str, help: &str, value: usize) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let metric = self.0.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }

    /// Writes a counter.
    ///
    /// # Errors
    /// [`fmt::Error`] of the encoder.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
        let counter = ConstCounter::new(value);
        let metric = self
            .0
            .encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)
    }

    /// Writes a family of gauges.
    ///
    /// # Errors
    /// [`fmt::Error`] of the encoder.
    pub fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a family of gauges in seconds.
    ///
    /// # Errors
    /// [`fmt::Error`] of the encoder.
    pub fn seconds<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, Duration)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let gauge = ConstGauge::new(value.as_secs_f64());
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a family of counters.
    ///
    /// # Errors
    /// [`fmt::Error`] of the encoder.
    pub fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
