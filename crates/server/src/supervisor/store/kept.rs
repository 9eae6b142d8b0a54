//! The files of the store beyond the end of the server: systemd keeps them for a restart (`FileDescriptorStoreMax=`). Called by
//! [`store`](super).

use std::io;

use flash_prompt::names::NamesReader;
use flash_prompt::table::TableReader;
use flash_waiting::store_file;
use flash_waiting::systemd::{self, KeptFile};

use super::{Sizes, StoreFile};
use crate::supervisor::estate::VERSION;

/// The names of the files, which another version does not know.
fn names() -> [String; 3] {
    ["memory", "table", "names"].map(|what| format!("{what}-{VERSION}"))
}

/// Gives the files of a store to systemd.
pub(super) fn leave(files: [&StoreFile; 3]) {
    names().iter().zip(files).for_each(|(name, file)| systemd::keep(name, &*file.to_write));
}

/// The files of a store of these sizes. None, and nothing is kept any longer, if they are not those of such a store.
pub(super) fn take(kept: Vec<KeptFile>, sizes: &Sizes) -> Option<[StoreFile; 3]> {
    let kept_names: Vec<String> = kept.iter().map(|kept| kept.name.clone()).collect();
    let taken = files(kept, sizes);
    if taken.is_none() {
        kept_names.iter().for_each(|name| systemd::forget(name));
    }
    taken
}

fn files(kept: Vec<KeptFile>, sizes: &Sizes) -> Option<[StoreFile; 3]> {
    let mut kept = kept;
    let mut taken = Vec::new();
    for (name, length_bytes) in names().iter().zip(sizes.files()) {
        let at = kept.iter().position(|kept| kept.name == *name)?;
        let file = kept.swap_remove(at).file;
        if store_file::length_bytes(&file).ok()? != length_bytes {
            return None;
        }
        taken.push(StoreFile::of(file).ok()?);
    }
    let files: [StoreFile; 3] = taken.try_into().ok()?;
    let readable = || {
        TableReader::map(files[1].to_read.try_clone()?)?;
        NamesReader::map(files[2].to_read.try_clone()?).map(drop)
    };
    readable().map_err(|_: io::Error| ()).ok()?;
    Some(files)
}

#[cfg(test)]
mod tests {
    use flash_prompt::OwnedFd;

    use super::super::create;
    use super::*;

    fn sizes(bytes_max: u64) -> Sizes {
        Sizes { bytes_max, length_bytes: 2 * bytes_max, slots_max: 64, names_max: 64 }
    }

    fn kept(files: &[StoreFile; 3]) -> Vec<KeptFile> {
        let copy = |file: &StoreFile| -> OwnedFd { file.to_write.try_clone().expect("a copy") };
        let named = names().into_iter().zip(files);
        named.map(|(name, file)| KeptFile { name, file: copy(file) }).collect()
    }

    #[test]
    fn files_are_taken_if_they_are_those_of_such_a_store() {
        let files = create(&sizes(1 << 20)).expect("files");
        assert!(take(kept(&files), &sizes(1 << 20)).is_some());
        assert!(take(kept(&files), &sizes(1 << 21)).is_none(), "of another size");
        assert!(
            take(kept(&files).into_iter().skip(1).collect(), &sizes(1 << 20)).is_none(),
            "one is missing"
        );
        let mut other = kept(&files);
        other[1].name = "table-0".to_owned();
        assert!(take(other, &sizes(1 << 20)).is_none(), "of another version");
        let [memory, _, names] = create(&sizes(1 << 20)).expect("files");
        let zeros = store_file::create(c"zeros", sizes(1 << 20).files()[1]).expect("a file");
        let broken = [memory, StoreFile::of(zeros).expect("a file"), names];
        assert!(take(kept(&broken), &sizes(1 << 20)).is_none(), "no table");
        assert!(take(Vec::new(), &sizes(1 << 20)).is_none());
    }
}
