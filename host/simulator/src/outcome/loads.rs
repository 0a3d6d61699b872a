//! Load of the pools while requests arrive, and its swing.

use serde::Serialize;

use super::Sample;

/// The loads of both pools over the samples ([`Sample::prefill_load`], [`Sample::decode_load`]) that were taken while
/// requests came. NaN where there is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolLoads {
    /// Swing of the workers that compute prompts.
    pub prefill: Swing,
    /// Swing of the workers that write answers.
    pub decode: Swing,
    /// Correlation of the two, from -1 to 1 (Pearson). Below 0 the one is busy when the other is not, as in the
    /// anti-phase that early rejection by the loads of the moment brings (`mooncake-paper.md`, section 6).
    pub correlation: f64,
}

/// Swing of one pool's load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Swing {
    /// The mean load; 1 is as much as the limit lets it have.
    pub mean: f64,
    /// Standard deviation over the mean.
    pub swing: f64,
}

impl PoolLoads {
    /// Returns the loads of the samples till the last request came.
    pub(super) fn of(samples: &[Sample], last_arrival_us: u64) -> Self {
        let coming = samples
            .iter()
            .take_while(|sample| sample.at_us <= last_arrival_us);
        let both = coming
            .clone()
            .filter_map(|sample| Some((sample.prefill_load?, sample.decode_load?)));
        let prefill = Moments::of(coming.clone().filter_map(|sample| sample.prefill_load));
        let decode = Moments::of(coming.filter_map(|sample| sample.decode_load));
        Self {
            prefill: prefill.swing(),
            decode: decode.swing(),
            correlation: correlation(both),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Moments {
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares = values.map(|value| (value - mean).powi(2));
        Self {
            mean,
            variance: squares.sum::<f64>() / count,
        }
    }

    fn swing(self) -> Swing {
        Swing {
            mean: self.mean,
            swing: self.variance.sqrt() / self.mean,
        }
    }
}

fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let first = Moments::of(pairs.clone().map(|(first, _)| first));
    let second = Moments::of(pairs.clone().map(|(_, second)| second));
    let count = pairs.clone().count() as f64;
    let products = pairs.map(|(a, b)| (a - first.mean) * (b - second.mean));
    products.sum::<f64>() / count / (first.variance * second.variance).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(loads: impl IntoIterator<Item = (Option<f64>, Option<f64>)>) -> Vec<Sample> {
        let sample = |(at_us, (prefill_load, decode_load))| Sample {
            at_us,
            prefill_load,
            decode_load,
            ..Sample::default()
        };
        (0..).zip(loads).map(sample).collect()
    }

    #[test]
    fn pools_in_turn_are_reported_with_their_shares() {
        let high = (Some(1.5), Some(0.1));
        let low = (Some(0.5), Some(0.3));
        let drained = (Some(0.0), Some(0.0));
        let loads = PoolLoads::of(&samples([high, low, high, low, drained]), 3);
        assert_eq!((loads.prefill.mean, loads.prefill.swing), (1.0, 0.5));
        assert!((loads.decode.swing - 0.5).abs() < 1e-12);
        assert!((loads.correlation + 1.0).abs() < 1e-12, "the end does not count");
    }

    #[test]
    fn a_pool_that_is_not_there_has_no_load() {
        let loads = PoolLoads::of(&samples([(Some(2.0), None), (Some(4.0), None)]), 9);
        assert_eq!(loads.prefill.mean, 3.0);
        assert!(loads.decode.mean.is_nan() && loads.correlation.is_nan());
    }
}
