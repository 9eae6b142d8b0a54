//! The order in which connections' bytes go to the network: the settings of the schedule (docs/overload.md).
//!
//! `config::resolve` fills them, `config::combinations` checks them, and `convert` passes them to the engine and the worker.

use flash_engine::CUTOFFS_MAX;

use super::error::{NotUtf8, Refusal};
use super::kind::Kind;
use super::values::Value;

/// The sizes that separate the bands, in bytes, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cutoffs(pub Vec<u64>);

impl Value for Cutoffs {
    fn from_items(items: &[&std::ffi::OsStr], kind: Kind) -> Result<Self, Vec<Refusal>> {
        let mut sizes: Vec<u64> = Vec::with_capacity(CUTOFFS_MAX);
        let mut refusals = Vec::new();
        let mut refuse = |item, why: String| refusals.push(Refusal { item, why, help: None });
        for (item, text) in items.iter().enumerate() {
            if item >= CUTOFFS_MAX {
                refuse(item, format!("too many cutoffs: at most {CUTOFFS_MAX}"));
                break;
            }
            match u64::from_items(&[text], kind) {
                Ok(size) if sizes.last().is_some_and(|last| *last >= size) => {
                    refuse(item, "must be larger than the cutoff before it".to_owned());
                }
                Ok(size) => sizes.push(size),
                Err(wrong) => wrong.into_iter().for_each(|wrong| refuse(item, wrong.why)),
            }
        }
        if items.is_empty() {
            refuse(0, "name at least one size, or remove the key to learn the cutoffs".to_owned());
        }
        if refusals.is_empty() { Ok(Cutoffs(sizes)) } else { Err(refusals) }
    }

    fn to_items(&self, kind: Kind) -> Result<Vec<String>, NotUtf8> {
        self.0.to_items(kind)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::options;
    use super::*;

    fn cutoffs(texts: &[&str]) -> Result<Vec<u64>, Vec<(usize, String)>> {
        let items: Vec<&OsStr> = texts.iter().map(OsStr::new).collect();
        let kind = options::find("srpt_cutoffs").expect("an option").kind;
        let read = Cutoffs::from_items(&items, kind);
        read.map(|cutoffs| cutoffs.0)
            .map_err(|refusals| refusals.into_iter().map(|refusal| (refusal.item, refusal.why)).collect())
    }

    #[test]
    fn cutoffs_are_sizes_in_order() {
        assert_eq!(cutoffs(&["1kB", "2000", "5kB", "50kB"]), Ok(vec![1_000, 2_000, 5_000, 50_000]));
        assert_eq!(cutoffs(&["8KiB"]), Ok(vec![8_192]));
        let larger = "must be larger than the cutoff before it";
        assert_eq!(cutoffs(&["2", "1", "3", "3"]), Err(vec![(1, larger.into()), (3, larger.into())]));
        assert_eq!(cutoffs(&["0"]), Err(vec![(0, "must be from 1B to 1TiB".into())]));
        assert_eq!(cutoffs(&["1", "2", "3", "4", "5"]), Err(vec![(4, "too many cutoffs: at most 4".into())]));
        assert!(cutoffs(&[]).is_err() && cutoffs(&["x"]).is_err());
    }
}
