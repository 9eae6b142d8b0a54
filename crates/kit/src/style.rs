//! Colour, dash and mark of each line, so that lines differ for a colour-blind reader and in a grey print too.
//! `style.css` has the colours. Pure.

use maud::{Markup, html};

/// Colours of subjects in `style.css`: `k0` and on.
const COLOURS: usize = 8;
/// Colours of ordered things, such as load levels: `r0` and on, from cold to hot.
const RAMP: usize = 10;
/// Colours of size series, smallest to largest: `s0` and on.
const SIZES: usize = 6;
/// Dashes; with the colours they make 40 different lines.
const DASHES: [&str; 5] = ["", "7 3", "2 2.5", "10 3 2 3", "4 2"];
const SHAPES: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// A class of `style.css` that sets the colour.
    pub class: String,
    /// For `stroke-dasharray`.
    pub dash: &'static str,
    shape: usize,
}

impl Style {
    /// The style of the `index`-th of several things without an order.
    pub fn of(index: usize) -> Self {
        let dash = DASHES[index % DASHES.len()];
        Self { class: format!("k{}", index % COLOURS), dash, shape: index % SHAPES }
    }

    pub fn ordered(index: usize, count: usize) -> Self {
        let colour = (index * (RAMP - 1)).checked_div(count.saturating_sub(1)).unwrap_or(0).min(RAMP - 1);
        Self { class: format!("r{colour}"), ..Self::of(index) }
    }

    /// The first of the points with a mark, where every `apart`-th has one.
    pub fn offset(&self, apart: usize) -> usize {
        apart * (self.shape + 1) / (SHAPES + 1)
    }

    pub fn size_class(index: usize, count: usize) -> String {
        // Four series, as in the papers, spread over the whole ramp.
        let colour = (index * (SIZES - 1)).checked_div(count.saturating_sub(1)).unwrap_or(0);
        format!("s{}", colour.min(SIZES - 1))
    }

    pub fn mark(&self, x: f64, y: f64, title: &str) -> Markup {
        let r = 3.6;
        let polygon = |points: &[(f64, f64)]| {
            let points = points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * r, y + dy * r));
            html! { polygon class="mark" points=(points.collect::<Vec<_>>().join(" ")) { title { (title) } } }
        };
        match self.shape {
            0 => {
                html! { circle class="mark" cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r=(r) { title { (title) } } }
            }
            1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => polygon(&[(0.0, -1.25), (1.15, 0.85), (-1.15, 0.85)]),
            3 => polygon(&[(0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)]),
            4 => polygon(&[(0.0, 1.25), (1.15, -0.85), (-1.15, -0.85)]),
            _ => polygon(&[(-0.6, -1.4), (0.6, -1.4), (0.6, 1.4), (-0.6, 1.4)]),
        }
    }
}
