//! The decoder of inotify's events: it finds what inotify(7) describes, and nothing more in bytes that were cut off.

use flash_waiting::happening::{Happening, How, WatchId};
use flash_waiting::inotify::decode;

use crate::events::events;

/// Checks `input`: the bytes of a read from an inotify queue.
pub fn inotify(input: &[u8]) {
    events(input, decoded, described);
}

fn decoded(bytes: &[u8]) -> Vec<String> {
    let mut happenings = Vec::new();
    decode(bytes, |happening| {
        if let Happening::Name { name, .. } = &happening {
            assert!(!name.is_empty() && !name.contains(&0));
        }
        happenings.push(format!("{happening:?}"));
    });
    happenings
}

/// The same by the text of inotify(7): 16 bytes, of which the last four are the length of the name, and the name.
fn described(bytes: &[u8]) -> Vec<String> {
    let mut happenings = Vec::new();
    let mut at = 0;
    while at + 16 <= bytes.len() {
        let number = |from: usize| {
            let four = &bytes[at + from..at + from + 4];
            u32::from_ne_bytes([four[0], four[1], four[2], four[3]])
        };
        let end = at + 16 + number(12) as usize;
        if end > bytes.len() {
            break;
        }
        let name: Vec<u8> = bytes[at + 16..end].iter().copied().take_while(|byte| *byte != 0).collect();
        happenings.extend(
            meaning(WatchId::Number(number(0) as i32), number(4), &name)
                .map(|happening| format!("{happening:?}")),
        );
        at = end;
    }
    happenings
}

/// The first fitting line counts: a queue that was full tells nothing else, and so on.
fn meaning(watch: WatchId, mask: u32, name: &[u8]) -> Option<Happening<'_>> {
    let bit = |number: u32| mask >> number & 1 == 1;
    let is_directory = bit(30);
    let named = |how| Happening::Name { directory: watch, name, is_directory, how };
    match name.is_empty() {
        _ if bit(14) => Some(Happening::Overflow),
        _ if bit(13) => Some(Happening::Unmounted(watch)),
        _ if bit(15) => Some(Happening::Unwatched(watch)),
        _ if bit(11) => Some(Happening::Moved(watch)),
        true => bit(2).then_some(Happening::Attributes(watch)),
        false if bit(8) || bit(7) => Some(named(How::Appeared)),
        false if bit(6) => Some(named(How::MovedAway)),
        false if bit(9) => Some(named(How::Deleted)),
        false => Some(named(How::Changed)),
    }
}
