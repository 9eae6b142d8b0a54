//! Each policy on logs made by hand, and LRU against a plain model.

use super::*;

/// Whether a cache of this memory has the file of each request, for files of these lengths.
fn hits(name: Name, memory_bytes: u64, lengths: &[u64], asked: &[u32]) -> Vec<bool> {
    let requests = Requests::new(lengths.iter().copied(), asked.to_vec()).unwrap();
    let mut cache = name.cache(memory_bytes, &requests);
    let blocks = asked.iter().flat_map(|file| requests.blocks_of(*file));
    blocks.map(|block| cache.access(block)).collect()
}

/// The places of the hits.
fn hit_at(name: Name, memory_bytes: u64, lengths: &[u64], asked: &[u32]) -> Vec<usize> {
    let hits = hits(name, memory_bytes, lengths, asked);
    (0..hits.len()).filter(|index| hits[*index]).collect()
}

#[test]
fn lru_by_hand() {
    // 0 1 2, 0 again, 3 evicts 1, so 1 evicts 2.
    assert_eq!(hit_at(Name::Lru, 3, &[1; 4], &[0, 1, 2, 0, 3, 1, 0, 2]), [3, 6]);
    // A file of 3 evicts all.
    assert_eq!(hit_at(Name::Lru, 3, &[1, 1, 3], &[0, 1, 0, 2, 2, 0]), [2, 4]);
}

#[test]
fn lru_is_the_plain_model() {
    let lengths: Vec<u64> = (0..60).map(|file| 1 + file * 7 % 23).collect();
    let mut random = 5_u64;
    let asked: Vec<u32> = (0..20_000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 40) % 60).min((random >> 20) % 60) as u32
        })
        .collect();
    let (mut plain, mut expected) = (Vec::<u32>::new(), Vec::new());
    for file in &asked {
        let place = plain.iter().position(|other| other == file);
        expected.push(place.is_some());
        place.map(|place| plain.remove(place));
        plain.push(*file);
        while plain.iter().map(|file| lengths[*file as usize]).sum::<u64>() > 200 {
            plain.remove(0);
        }
    }
    assert_eq!(hits(Name::Lru, 200, &lengths, &asked), expected);
    assert!(expected.iter().filter(|hit| **hit).count() > 1_000);
}

#[test]
fn s3_fifo_by_hand() {
    // The small queue has 1 byte of 10. 0 and 1 are used twice more; 2 to 9 fill the memory; 10 moves 0 and 1 to the main
    // queue and evicts 2, 11 evicts 3. 2 comes back as a ghost: into the main queue, evicting 4.
    let asked = [0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3];
    assert_eq!(hit_at(Name::S3Fifo, 10, &[1; 12], &asked), [2, 3, 4, 5, 16, 17]);
    // LRU would have evicted 0 and 1.
    assert_eq!(hit_at(Name::Lru, 10, &[1; 12], &asked), [2, 3, 4, 5]);
}

#[test]
fn gdsf_by_hand() {
    // Uses for a byte: 0 has 3 / 4, 1 and 2 have 1; so 3 evicts 0, the inflation is 3 / 4, and 3 has it and 1 more.
    // 0 comes back: 1 and 2 go, and the inflation is 1.
    let asked = [0, 0, 0, 1, 2, 3, 1, 2];
    assert_eq!(hit_at(Name::Gdsf, 6, &[4, 1, 1, 1], &asked), [1, 2, 6, 7]);
    // Blocks that are used no longer are overtaken, however popular they were.
    let mut asked = vec![0; 5];
    asked.extend((0..8).flat_map(|_| [1, 2, 3]));
    asked.push(0);
    assert!(!hits(Name::Gdsf, 3, &[1; 4], &asked).last().unwrap());
}

#[test]
fn tiny_lfu_keeps_what_is_used_more_often_than_all_that_would_leave() {
    // The window has 1 byte of 100. Three files of 30 are used 4 times each. A file of 90 would have to drive out all of
    // them, and is not let in until it was used as often as they were together.
    let lengths = [30, 30, 30, 90];
    let mut asked: Vec<u32> = [0, 1, 2].repeat(3);
    asked.extend([3, 3, 0, 1, 2]);
    let places: Vec<usize> = (3..9).chain(11..14).collect();
    assert_eq!(hit_at(Name::TinyLfu, 100, &lengths, &asked), places);
    asked.extend([3; 11]);
    let hits = hits(Name::TinyLfu, 100, &lengths, &asked);
    assert_eq!(hits[14..], [[false; 10].as_slice(), &[true]].concat());
    // A small one comes in as soon as it was used as often as the one that leaves.
    let asked = [0, 1, 2, 3, 4, 4];
    assert_eq!(hit_at(Name::TinyLfu, 100, &[24, 24, 24, 24, 24], &asked), [5]);
}

#[test]
fn the_best_static_placement_by_hand() {
    // Requests for a byte: 2 / 4, 2 / 2, 1 / 1: in 4 bytes there is room for the second and the third.
    let asked = [0, 1, 2, 0, 1];
    assert_eq!(hit_at(Name::Static, 4, &[4, 2, 1], &asked), [4]);
    assert_eq!(hit_at(Name::Static, 7, &[4, 2, 1], &asked), [3, 4]);
}

#[test]
fn flash_by_hand() {
    // As with GDSF, 3 evicts 0. 0 is remembered: with 4 uses for 4 bytes it evicts 3, which has 1 for 1. In the end it has
    // 9 for 4, less than 1 and 2 have with 3 for 1, and goes when 3 comes back.
    let asked = [0, 0, 0, 1, 2, 3, 1, 2, 0, 0, 0, 0, 0, 1, 2, 3, 0];
    assert_eq!(hit_at(Name::Flash, 6, &[4, 1, 1, 1], &asked), [1, 2, 6, 7, 9, 10, 11, 12, 13, 14]);
}

#[test]
fn what_is_larger_than_the_memory_is_never_kept() {
    for name in Name::ALL {
        let asked = [0, 1, 0, 1, 0, 1, 0, 1];
        assert_eq!(hit_at(name, 10, &[11, 9], &asked).first(), Some(&3), "{name:?}");
        assert!(hit_at(name, 10, &[11, 11], &asked).is_empty(), "{name:?}");
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for name in Name::ALL {
        assert_eq!(name.word().parse::<Name>().unwrap(), name);
    }
    assert!("fifo".parse::<Name>().unwrap_err().to_string().contains("lru, s3-fifo"));
}
