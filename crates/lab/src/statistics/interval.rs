//! A 95 % confidence interval of what a few rounds have in common, by Student's t: where the true value lies, in 95 of 100 cases.
//!
//! Samples and verdicts use it. Pure. The rounds must be independent of one another: a ratio of two servers is
//! taken within each round first, so what disturbs a round disturbs both.

/// Fewer rounds than this give no interval: with four the factor before the standard error is already above 3.
pub(crate) const ROUNDS_MIN: usize = 5;

/// The 97.5 % quantile of Student's t for 1, 2, 3 ... degrees of freedom (NIST/SEMATECH e-Handbook, section 1.3.6.7.2).
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The interval of the mean of differences; none for fewer than [`ROUNDS_MIN`] rounds, or of values that are not finite.
pub(crate) fn of_differences(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < ROUNDS_MIN || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // More degrees of freedom than the table has make the interval narrower still, by 4 % at most.
    let t = T_975[(values.len() - 2).min(T_975.len() - 1)];
    let half = t * (variance / count).sqrt();
    Some([mean - half, mean + half])
}

/// The interval of the geometric mean of ratios: the same on their logarithms. None also for a ratio that is not above 0.
pub(crate) fn of_ratios(values: &[f64]) -> Option<[f64; 2]> {
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    of_differences(&logarithms).map(|ends| ends.map(f64::exp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        // Mean 3, standard deviation 1.5811, standard error 0.7071, times 2.776.
        let [low, high] = of_differences(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((low - 1.0371).abs() < 1e-3 && (high - 4.9629).abs() < 1e-3, "{low} {high}");
        assert_eq!(of_differences(&[7.0; 40]), Some([7.0, 7.0]));
    }

    #[test]
    fn ratios_and_their_inverses_have_inverse_intervals() {
        let ratios = [0.5, 0.6, 0.7, 0.65, 0.55];
        let inverses = ratios.map(|ratio: f64| 1.0 / ratio);
        let (a, b) = (of_ratios(&ratios).unwrap(), of_ratios(&inverses).unwrap());
        assert!((a[0] * b[1] - 1.0).abs() < 1e-9 && (a[1] * b[0] - 1.0).abs() < 1e-9, "{a:?} {b:?}");
    }

    #[test]
    fn few_rounds_and_impossible_values_have_none() {
        assert_eq!(of_ratios(&[2.0; 4]), None);
        assert_eq!(of_ratios(&[2.0, 2.0, 2.0, 2.0, 0.0]), None);
        assert_eq!(of_differences(&[2.0, 2.0, 2.0, 2.0, f64::NAN]), None);
    }
}
