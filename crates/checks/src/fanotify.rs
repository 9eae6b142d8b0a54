//! The decoder of fanotify's events: it finds what fanotify(7) describes, and nothing more in bytes that were cut off.

use flash_waiting::fanotify::decode;
use flash_waiting::happening::{Handle, Happening, How, WatchId};

use crate::events::events;

/// Checks `input`: the bytes of a read from a queue of fanotify.
pub fn fanotify(input: &[u8]) {
    events(input, decoded, described);
}

fn decoded(bytes: &[u8]) -> Vec<String> {
    let mut happenings = Vec::new();
    decode(bytes, |happening| {
        if let Happening::Name { name, .. } = &happening {
            assert!(!name.is_empty() && !name.contains(&0) && *name != b".");
        }
        happenings.push(format!("{happening:?}"));
    });
    happenings
}

/// `N` bytes at a place, as a number. None at the end of the bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    let place = if cfg!(target_endian = "little") { 0 } else { 8 - N };
    wide[place..place + N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_ne_bytes(wide))
}

/// The same by the text of fanotify(7): the length of the event, that of its head at 6, the mask at 8, and after the head
/// records, of which the one of type 2 has the file system at 4, the length and the type of a handle at 12 and 16, the handle, and
/// the name.
fn described(bytes: &[u8]) -> Vec<String> {
    let mut happenings = Vec::new();
    let mut at = 0;
    while let Some(length) = number::<4>(bytes, at) {
        let Some(event) = bytes.get(at..at + length as usize) else { break };
        let (Some(head), Some(mask)) = (number::<2>(event, 6), number::<8>(event, 8)) else { break };
        if mask >> 14 & 1 == 1 {
            happenings.push(format!("{:?}", Happening::Overflow));
        } else {
            meanings(event, head as usize, mask, &mut happenings);
        }
        at += length as usize;
    }
    happenings
}

fn meanings(event: &[u8], head: usize, mask: u64, happenings: &mut Vec<String>) {
    let Some((directory, name)) = record(event, head) else { return };
    let bit = |number: u32| mask >> number & 1 == 1;
    let is_directory = bit(30);
    let mut found = Vec::new();
    match name.as_slice() {
        b"" => {}
        b"." => {
            found.extend(bit(2).then_some(Happening::Attributes(directory)));
            found.extend(bit(10).then_some(Happening::Unwatched(directory)));
        }
        name => {
            let named = |how| Happening::Name { directory, name, is_directory, how };
            found.extend(bit(6).then(|| named(How::MovedAway)));
            found.extend(bit(9).then(|| named(How::Deleted)));
            found.extend((bit(8) || bit(7)).then(|| named(How::Appeared)));
            if found.is_empty() {
                found.push(named(How::Changed));
            }
        }
    }
    happenings.extend(found.iter().map(|happening| format!("{happening:?}")));
}

/// The first record of a name.
fn record(event: &[u8], mut at: usize) -> Option<(WatchId, Vec<u8>)> {
    loop {
        let length = number::<2>(event, at + 2)?.max(1) as usize;
        let record = event.get(at..at + length)?;
        if record[0] == 2 {
            let (handle_length, kind) = (number::<4>(record, 12)? as usize, number::<4>(record, 16)?);
            let handle = record.get(20..)?.get(..handle_length)?;
            let name = record[20 + handle_length..].iter().copied().take_while(|byte| *byte != 0).collect();
            let mut bytes = [0; 16];
            bytes.get_mut(..handle_length)?.copy_from_slice(handle);
            let file_system = record[4..12].try_into().ok()?;
            let handle = Handle { file_system, kind: kind as u32 as i32, length: handle_length as u8, bytes };
            return Some((WatchId::Handle(handle), name));
        }
        at += length;
    }
}
