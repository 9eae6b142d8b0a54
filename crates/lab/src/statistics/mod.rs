//! Figures over several rounds, and their 95 % intervals.
//!
//! | module | gives |
//! |---|---|
//! | `sample` | a figure of each round; ratios, differences and means of them |
//! | `interval` | the interval of a mean or a ratio over rounds, by Student's t |
//!
//! The figures of one round are computed in [`flash_load::measure`]. Pure.

pub(crate) mod interval;
mod sample;

pub(crate) use interval::ROUNDS_MIN;
pub(crate) use sample::{Limit, Sample, Scale};
