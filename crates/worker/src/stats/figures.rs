//! The traits common to all figures: they can be added over workers and subtracted over time. Also the JSON
//! form of a histogram.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use flash_engine::Bucket;

/// A figure or a group of figures.
pub trait Figures: Clone {
    /// Adds the figure of another worker.
    fn add(&mut self, other: &Self);

    /// The increase since `before`. A gauge keeps its present value.
    fn since(&self, _before: &Self) -> Self {
        self.clone()
    }

    /// The figure of a worker that has ended: a count stays, and nothing exists any more.
    fn ended(&self) -> Self {
        self.clone()
    }
}

impl Figures for u64 {
    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }

    fn since(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }
}

/// A group that only some servers have.
impl<T: Figures> Figures for Option<T> {
    fn add(&mut self, other: &Self) {
        match (self.as_mut(), other) {
            (Some(sum), Some(other)) => sum.add(other),
            (None, Some(other)) => *self = Some(other.clone()),
            (_, None) => {}
        }
    }

    fn since(&self, before: &Self) -> Self {
        match (self, before) {
            (Some(now), Some(before)) => Some(now.since(before)),
            (now, _) => now.clone(),
        }
    }

    fn ended(&self) -> Self {
        self.as_ref().map(T::ended)
    }
}

/// Groups by name.
impl<T: Figures> Figures for BTreeMap<String, T> {
    fn add(&mut self, other: &Self) {
        for (name, group) in other {
            match self.get_mut(name) {
                Some(sum) => sum.add(group),
                None => drop(self.insert(name.clone(), group.clone())),
            }
        }
    }

    fn since(&self, before: &Self) -> Self {
        let changed = |(name, now): (&String, &T)| {
            let since = before.get(name).map_or_else(|| now.clone(), |before| now.since(before));
            (name.clone(), since)
        };
        self.iter().map(changed).collect()
    }

    fn ended(&self) -> Self {
        self.iter().map(|(name, group)| (name.clone(), group.ended())).collect()
    }
}

/// The first bucket with which a share `part`, from 0 to 1, of all counts is reached. None if all are 0.
pub(super) fn reached(counts: &[u64], part: f64) -> Option<usize> {
    let all = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)) as f64;
    let mut below = 0;
    counts.iter().position(|count| {
        below += u128::from(*count);
        below > 0 && below as f64 >= part * all
    })
}

/// An amount that exists now, as opposed to a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gauge(pub u64);

impl Gauge {
    /// A number of things.
    #[must_use]
    pub fn of(number: usize) -> Self {
        Self(number as u64)
    }
}

impl Figures for Gauge {
    fn add(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn ended(&self) -> Self {
        Self(0)
    }
}

/// An amount that exists now, once for all workers, each of which reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shared(pub u64);

impl Figures for Shared {
    fn add(&mut self, other: &Self) {
        // One of them can know of a change that the other one does not know yet.
        self.0 = self.0.max(other.0);
    }

    fn ended(&self) -> Self {
        Self(0)
    }
}

/// The cutoffs of a schedule in bytes. Each worker learns its own; those of several workers together are those
/// of the first that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cutoffs(pub Vec<u64>);

impl Figures for Cutoffs {
    fn add(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        }
    }

    fn ended(&self) -> Self {
        Self::default()
    }
}

/// Defines a group of figures: a struct whose fields are figures or groups. A field missing in the JSON of an
/// older server counts as 0. With arguments, `of` makes the group from the counters that the rows name.
/// Counters of the engine that are reported as they are only get the trait.
#[macro_export]
macro_rules! figures {
    ($(#[$about:meta])* $name:ident($($from:ident: $counters:ty),*) {
        $($(#[$meta:meta])* $field:ident: $type:ty = $value:expr,)*
    }) => {
        $crate::stats::figures! { $(#[$about])* $name { $($(#[$meta])* $field: $type,)* } }

        impl $name {
            /// The figures of these counters.
            #[must_use]
            pub fn of($($from: $counters),*) -> Self {
                Self { $($field: $value,)* }
            }
        }
    };
    ($(#[$of:meta])* $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$meta])* pub $field: $type,)*
        }

        $crate::stats::figures! { impl $name { $($field),* } }
    };
    (impl $name:ty { $($field:ident),* }) => {
        impl $crate::stats::Figures for $name {
            fn add(&mut self, other: &Self) {
                $($crate::stats::Figures::add(&mut self.$field, &other.$field);)*
            }

            fn since(&self, before: &Self) -> Self {
                Self { $($field: $crate::stats::Figures::since(&self.$field, &before.$field),)* }
            }

            fn ended(&self) -> Self {
                Self { $($field: $crate::stats::Figures::ended(&self.$field),)* }
            }
        }
    };
}
pub use figures;

/// A histogram of the engine, with a JSON form.
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

/// The JSON form: the counts, and figures computed from them, which are written but not read back.
#[derive(Serialize, Deserialize)]
struct Form {
    sum: u64,
    max: u64,
    /// Start, end and count of each bucket.
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
        // Three digits are enough for a reader, and more would fill the message.
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
