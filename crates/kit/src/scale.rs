//! Axes: the place of a value, and the ticks.
//!
//! The charts call it. With any values, a scale has a range above zero and a bounded number of ticks. Pure.

use crate::number;

/// A linear axis has about this many ticks.
const TICKS: f64 = 5.0;
/// The widest logarithmic axis: no real measurement of the lab is below 10⁻⁶ or above 10¹².
const LOG_LIMITS: (f64, f64) = (1e-6, 1e12);
/// The largest value of a linear axis; larger ones are drawn at its end.
const LINEAR_MAX: f64 = 1e15;
/// The narrowest range: the steps of a narrower one would be lost in rounding.
const LINEAR_MIN: f64 = 1e-12;
/// With more decades than this, only some have a label.
const DECADES_LABELLED: i32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Number,
    /// Milliseconds, written as µs, ms or s.
    Milliseconds,
    Seconds,
    Share,
    Bytes,
    Times,
}

impl Unit {
    /// A value on an axis; shorter than in a table.
    fn tick(self, value: f64) -> String {
        match self {
            Self::Number => short(value),
            Self::Seconds => format!("{} s", short(value)),
            Self::Share => format!("{} %", short(value * 100.0)),
            Self::Times => format!("{}×", short(value)),
            Self::Bytes => trim(&number::size(value)),
            Self::Milliseconds if value >= 1000.0 => format!("{} s", short(value / 1000.0)),
            Self::Milliseconds if value >= 0.1 || value == 0.0 => format!("{} ms", short(value)),
            Self::Milliseconds => format!("{} µs", short(value * 1000.0)),
        }
    }

    pub fn text(self, value: f64) -> String {
        match self {
            Self::Number => number::figure(value),
            Self::Milliseconds => number::time(value),
            Self::Seconds => format!("{} s", number::figure(value)),
            Self::Share => number::percent(value),
            Self::Bytes => number::size(value),
            Self::Times => format!("{}×", number::figure(value)),
        }
    }
}

/// A round value without trailing zeros.
fn short(value: f64) -> String {
    match value.abs() {
        size if (1e6..1e12).contains(&size) => format!("{} M", short(value / 1e6)),
        size if size >= 1e3 => number::figure(value),
        _ => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// "3.00 GB" as "3 GB".
fn trim(text: &str) -> String {
    let (value, unit) = text.split_once(' ').unwrap_or((text, ""));
    let value = if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { value };
    format!("{value} {unit}")
}

/// A tick; without a label it is a line of the grid only.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub value: f64,
    /// The text beside it.
    pub label: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    pub unit: Unit,
    /// From low to high.
    pub ticks: Vec<Tick>,
}

impl Scale {
    /// From `low` to at least the largest value, in round steps.
    pub fn linear(unit: Unit, low: f64, values: impl IntoIterator<Item = f64>) -> Self {
        let most =
            values.into_iter().filter(|v| *v <= LINEAR_MAX && *v - low > LINEAR_MIN).fold(f64::NAN, f64::max);
        let high = if most.is_nan() { low + 1.0 } else { most };
        let rough = (high - low) / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(high - low);
        let count = ((high - low) / step - 1e-6).ceil().clamp(1.0, 20.0);
        let ticks = (0..=count as u32).map(|n| low + step * f64::from(n));
        let ticks = ticks.map(|value| Tick { value, label: Some(unit.tick(value)) }).collect();
        Self { low, high: low + step * count, is_log: false, unit, ticks }
    }

    pub fn share() -> Self {
        let ticks =
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|value| Tick { value, label: Some(Unit::Share.tick(value)) });
        Self { low: 0.0, high: 1.0, is_log: false, unit: Unit::Share, ticks: ticks.to_vec() }
    }

    /// A linear axis with ticks at just these values, such as load levels.
    pub fn at(unit: Unit, values: &[f64]) -> Self {
        let mut values: Vec<f64> = values.iter().copied().filter(|v| v.abs() <= LINEAR_MAX).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        let margin = if high > low { (high - low) * 0.04 } else { low.abs().max(1.0) * 0.5 };
        let ticks = values.into_iter().map(|value| Tick { value, label: Some(unit.tick(value)) }).collect();
        Self { low: low - margin, high: high + margin, is_log: false, unit, ticks }
    }

    /// A logarithmic axis around the values above zero; other values are drawn at its lower end.
    pub fn log(unit: Unit, values: impl IntoIterator<Item = f64>) -> Self {
        let is_real = |v: &f64| *v >= LOG_LIMITS.0 && *v <= LOG_LIMITS.1;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(is_real) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        // Ends at 1, 2 or 5 times a power of ten, with at least a factor of five between.
        let (mut low, high) = (round_down(low * 0.98), round_up(high * 1.02));
        while high / low < 4.9 {
            low = round_down(low * 0.9);
        }
        Self { low, high, is_log: true, unit, ticks: log_ticks(unit, low, high) }
    }

    pub fn decades(unit: Unit, low: f64, high: f64) -> Self {
        Self { low, high, is_log: true, unit, ticks: log_ticks(unit, low, high) }
    }

    /// The place of a value, 0 to 1; a value beyond an end is placed at that end. None for NaN.
    pub fn place(&self, value: f64) -> Option<f64> {
        if value.is_nan() {
            return None;
        }
        let value = value.clamp(self.low, self.high);
        let place = if self.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.is_finite().then_some(place)
    }
}

/// 1, 2 and 5 times the powers of ten between, or powers alone when there are many.
fn log_ticks(unit: Unit, low: f64, high: f64) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = last - first;
    let is_narrow = high / low < 150.0;
    let every = (decades / DECADES_LABELLED).max(1);
    let mut ticks = Vec::new();
    for power in first..=last {
        for factor in [1.0, 2.0, 5.0] {
            let value = power_of_ten(power) * factor;
            if value < low * 0.999 || value > high * 1.001 || (factor > 1.0 && decades > 4) {
                continue;
            }
            let is_labelled = is_narrow || (factor == 1.0 && (power - first) % every == 0);
            ticks.push(Tick { value, label: is_labelled.then(|| unit.tick(value)) });
        }
    }
    ticks
}

/// Exact also for negative powers, so that 0.1 is written as 0.1.
fn power_of_ten(power: i32) -> f64 {
    if power < 0 { 1.0 / 10_f64.powi(-power) } else { 10_f64.powi(power) }
}

fn round_down(value: f64) -> f64 {
    let power = power_of_ten(value.log10().floor() as i32);
    let round = [5.0, 2.0, 1.0].into_iter().map(|factor| factor * power);
    round.into_iter().find(|round| *round <= value * 1.0001).unwrap_or(power)
}

/// 1, 2 or 5 times a power of ten, not below a value above zero.
pub fn round_up(value: f64) -> f64 {
    let power = power_of_ten(value.log10().floor() as i32);
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
    round.into_iter().find(|round| *round >= value * 0.9999).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().filter_map(|tick| tick.label.as_deref()).collect()
    }

    #[test]
    fn a_logarithmic_axis_has_labels_with_units() {
        let scale = Scale::log(Unit::Milliseconds, [0.13, 900.0]);
        assert_eq!(labels(&scale), ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(scale.place(0.1), Some(0.0));
        assert!((scale.place(10.0).unwrap() - 0.5).abs() < 1e-9);
        let narrow = Scale::log(Unit::Milliseconds, [1.3, 8.0]);
        assert_eq!(labels(&narrow), ["1 ms", "2 ms", "5 ms", "10 ms"]);
    }

    #[test]
    fn a_linear_axis_has_round_steps() {
        assert_eq!(
            labels(&Scale::linear(Unit::Number, 0.0, [1.0, 43_000.0])),
            ["0", "10,000", "20,000", "30,000", "40,000", "50,000"]
        );
        assert_eq!(labels(&Scale::at(Unit::Number, &[0.2, 0.95, 0.2])), ["0.2", "0.95"]);
    }

    #[test]
    fn no_figures_break_an_axis() {
        let odd = [
            f64::NAN,
            0.0,
            -1.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            1e12,
            1e-6,
        ];
        let mut cases: Vec<Vec<f64>> = odd.iter().map(|&value| vec![value]).collect();
        cases.extend([vec![], odd.to_vec(), vec![5.0; 3]]);
        for values in cases {
            let scales = [
                Scale::log(Unit::Milliseconds, values.clone()),
                Scale::linear(Unit::Number, 0.0, values.clone()),
                Scale::at(Unit::Number, &values),
            ];
            for scale in scales {
                assert!(scale.ticks.len() <= 60, "{values:?}: {scale:?}");
                for value in odd.iter().chain(&values) {
                    let place = scale.place(*value);
                    assert!(place.is_none_or(|place| (0.0..=1.0).contains(&place)), "{value} {scale:?}");
                    assert_eq!(place.is_none(), value.is_nan(), "{value} {scale:?}");
                }
            }
        }
    }
}
