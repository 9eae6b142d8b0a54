//! What figures have in common, whatever they count: they add up over workers, and have a difference
//! over time. And the form of a histogram in JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use flash_engine::Bucket;

/// A figure or a group of them.
pub(super) trait Figures {
    /// Adds that of another worker.
    fn add(&mut self, other: &Self);
    /// What came to it since `before`; of what is held, what is held now.
    fn since(&self, before: &Self) -> Self;
}

impl Figures for u64 {
    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }

    fn since(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }
}

/// How much of something there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gauge(pub u64);

impl Figures for Gauge {
    fn add(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn since(&self, _: &Self) -> Self {
        *self
    }
}

/// A group of figures: a struct of which each field is one, or a group of them. What an older server does
/// not tell counts as nothing.
macro_rules! figures {
    ($(#[$of:meta])* $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$meta])* pub $field: $type,)*
        }

        impl $crate::stats::figures::Figures for $name {
            fn add(&mut self, other: &Self) {
                $($crate::stats::figures::Figures::add(&mut self.$field, &other.$field);)*
            }

            fn since(&self, before: &Self) -> Self {
                Self { $($field: $crate::stats::figures::Figures::since(&self.$field, &before.$field),)* }
            }
        }
    };
}
pub(super) use figures;

/// A histogram of the engine, with a form in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub flash_engine::Histogram);

impl Figures for Histogram {
    fn add(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    fn since(&self, before: &Self) -> Self {
        Self(self.0.since(&before.0))
    }
}

/// The form: what was counted, and the figures that follow from it, for readers alone.
#[derive(Serialize, Deserialize)]
struct Form {
    sum: u64,
    max: u64,
    /// From, to, and how many.
    buckets: Vec<(u64, u64, u64)>,
    #[serde(skip_deserializing)]
    count: u64,
    #[serde(skip_deserializing)]
    plain: Summary,
    #[serde(skip_deserializing)]
    weighted: Summary,
}

#[derive(Default, Serialize)]
struct Summary {
    mean: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
}

impl Summary {
    fn new(mean: Option<f64>, percentile: impl Fn(f64) -> Option<u64>) -> Self {
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(percentile);
        // Nobody needs more digits, and they would fill the message.
        Self { mean: mean.map(|mean| (mean * 1000.0).round() / 1000.0), p50, p90, p99, p999 }
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let counted = &self.0;
        let form = Form {
            sum: counted.sum(),
            max: counted.max(),
            buckets: counted.buckets().map(|Bucket { from, to, count }| (from, to, count)).collect(),
            count: counted.count(),
            plain: Summary::new(counted.mean(), |part| counted.percentile(part)),
            weighted: Summary::new(counted.weighted_mean(), |part| counted.weighted_percentile(part)),
        };
        form.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = Form::deserialize(from)?;
        let mut counted = flash_engine::Histogram::with_sum(form.sum, form.max);
        form.buckets.iter().for_each(|(from, _, count)| counted.put(*from, *count));
        Ok(Self(counted))
    }
}
