//! Tests of one direction in simulated time: no clock, no device.

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The pipe of a test: no bound except a queue of 100 packets.
fn pipe(path: &Path) -> Pipe {
    Pipe::new(path, &Settings::default(), 7)
}

/// A packet of IPv4 with a code point and, in its last byte, a number.
fn packet(length: usize, code_point: u8, number: u8) -> Vec<u8> {
    let mut bytes = vec![0; length];
    (bytes[0], bytes[1], bytes[length - 1]) = (0x45, code_point << 2, number);
    bytes
}

/// Lets time pass to the end, by the pipe's own times: the deliveries, with the time of each.
fn run(pipe: &mut Pipe) -> Vec<(u64, Delivery)> {
    let mut all = Vec::new();
    while let Some(now_ns) = pipe.next_due_ns() {
        while let Some(delivery) = pipe.poll_delivery(now_ns) {
            all.push((now_ns, delivery));
        }
    }
    all
}

fn numbers(deliveries: &[(u64, Delivery)]) -> Vec<u8> {
    deliveries.iter().map(|(_, delivery)| *delivery.bytes.last().unwrap()).collect()
}

/// The sum over the bands, after checking that no packet is counted twice or not at all.
#[track_caller]
fn total(pipe: &Pipe) -> Counts {
    let direction = super::super::counters::Direction { bands: pipe.counts, missed_packets: 0 };
    for band in direction.bands {
        let known = band.dropped() + band.waiting_packets + band.travelling_packets + band.delivered_packets;
        assert_eq!(band.came_packets, known, "{band:?}");
    }
    direction.total()
}

#[test]
fn a_packet_alone_takes_its_sending_time_and_the_delay() {
    // 1500 bytes at 10 Mbit/s: 1.2 ms.
    let mut pipe = pipe(&Path { rate_bits_per_s: Some(10_000_000), delay_ns: 50 * MS, ..Path::default() });
    assert_eq!(pipe.next_due_ns(), None);
    pipe.handle_packet(5 * MS, &packet(1500, 0, 1));
    assert_eq!(pipe.next_due_ns(), Some(56_200_000));
    assert_eq!(pipe.poll_delivery(56_199_999), None);
    let delivery = pipe.poll_delivery(56_200_000).unwrap();
    assert_eq!((delivery.due_ns, delivery.bytes.len()), (56_200_000, 1500));
    assert_eq!(total(&pipe).waited_ns, 0);
}

#[test]
fn without_rate_and_delay_a_packet_arrives_at_once() {
    let mut pipe = pipe(&Path::default());
    for number in 0..200 {
        pipe.handle_packet(3, &packet(100, 0, number));
    }
    let deliveries = run(&mut pipe);
    assert!(deliveries.iter().all(|(now_ns, delivery)| (*now_ns, delivery.due_ns) == (3, 3)));
    assert_eq!(numbers(&deliveries), (0..200).collect::<Vec<u8>>());
    assert_eq!((total(&pipe).dropped(), total(&pipe).waiting_packets_max), (0, 0));
}

#[test]
fn a_busy_link_delivers_exactly_its_rate() {
    for (rate, length, overhead_bytes) in [(10_000_000, 1500, 0), (100_000_000, 576, 38), (56_000, 40, 0)] {
        let path = Path {
            rate_bits_per_s: Some(rate),
            delay_ns: 20 * MS,
            room: Room::Packets(10_000),
            ..Path::default()
        };
        let mut pipe = Pipe::new(&path, &Settings { overhead_bytes, ..Settings::default() }, 7);
        for _ in 0..10_000 {
            pipe.handle_packet(0, &packet(length, 0, 0));
        }
        // One is being sent while 9,999 wait, so none is dropped.
        let deliveries = run(&mut pipe);
        let bits = 10_000 * (length as u64 + u64::from(overhead_bytes)) * 8;
        let wanted_ns = 20 * MS + bits * S / rate;
        let (last_ns, _) = deliveries.last().unwrap();
        // Each sending time is a whole number of nanoseconds.
        assert!(wanted_ns - last_ns <= 10_000 && deliveries.len() == 10_000, "{last_ns} of {wanted_ns}");
    }
}

#[test]
fn a_caller_that_comes_late_costs_no_capacity() {
    let path = Path { rate_bits_per_s: Some(12_000_000), ..Path::default() };
    let mut pipe = pipe(&path);
    for number in 0..10 {
        pipe.handle_packet(0, &packet(1500, 0, number));
    }
    // 1 ms each. The caller sleeps through all of them, then one more comes.
    let mut due_ms = Vec::new();
    while let Some(delivery) = pipe.poll_delivery(20 * MS) {
        due_ms.push(delivery.due_ns / MS);
    }
    assert_eq!(due_ms, (1..=10).collect::<Vec<u64>>());
    pipe.handle_packet(20 * MS, &packet(1500, 0, 0));
    assert_eq!(pipe.next_due_ns(), Some(21 * MS));
}

#[test]
fn a_full_queue_drops_the_packets_that_come_last() {
    let slow = Path { rate_bits_per_s: Some(12_000_000), room: Room::Packets(3), ..Path::default() };
    let mut few = pipe(&slow);
    for number in 0..10 {
        few.handle_packet(0, &packet(1500, 0, number));
    }
    let counts = total(&few);
    assert_eq!((counts.waiting_packets, counts.waiting_bytes, counts.waiting_packets_max), (3, 4500, 3));
    assert_eq!((counts.dropped_queue_full, counts.travelling_packets), (6, 1));
    assert_eq!(numbers(&run(&mut few)), [0, 1, 2, 3]);
    // The waits: 1, 2 and 3 ms.
    assert_eq!(total(&few).waited_ns, 6 * MS);

    let mut bytes = pipe(&Path { room: Room::Bytes(3000), ..slow });
    for (length, number) in [(1500, 0), (1500, 1), (1400, 2), (101, 3), (100, 4)] {
        bytes.handle_packet(0, &packet(length, 0, number));
    }
    assert_eq!(numbers(&run(&mut bytes)), [0, 1, 2, 4], "101 bytes do not fit, 100 do");
    assert_eq!((total(&bytes).dropped_queue_full, total(&bytes).waiting_bytes), (1, 0));
}

#[test]
fn more_urgent_bands_go_first_and_each_has_a_queue_of_its_own() {
    let path = Path {
        rate_bits_per_s: Some(12_000_000),
        room: Room::Packets(2),
        order: Order::Bands,
        ..Path::default()
    };
    let mut pipe = pipe(&path);
    // The first finds the link free. LE, CS1, AF12, AF11, default, and one that Flash does not set (EF).
    for (number, code_point) in [1, 1, 1, 1, 8, 12, 10, 0, 46].into_iter().enumerate() {
        pipe.handle_packet(0, &packet(1500, code_point, number as u8));
    }
    // While packet 7 is sent, an urgent one comes: it does not interrupt, and is next but one.
    let mut order = Vec::new();
    for now_ms in 0..20 {
        if now_ms == 2 {
            pipe.handle_packet(now_ms * MS - MS / 2, &packet(1500, 0, 9));
        }
        while let Some(delivery) = pipe.poll_delivery(now_ms * MS) {
            order.push(*delivery.bytes.last().unwrap());
        }
    }
    assert_eq!(order, [0, 7, 8, 9, 6, 5, 4, 1, 2]);
    let counts = pipe.counts;
    assert_eq!(counts.map(|band| band.delivered_packets), [3, 1, 1, 1, 3]);
    assert_eq!(counts.map(|band| band.dropped_queue_full), [0, 0, 0, 0, 1]);
    assert_eq!(total(&pipe).delivered_bytes, 9 * 1500);
}

#[test]
fn without_bands_packets_keep_their_order_and_are_still_counted_by_band() {
    let mut pipe = pipe(&Path { rate_bits_per_s: Some(12_000_000), ..Path::default() });
    for (number, code_point) in [1, 8, 12, 10, 0].into_iter().enumerate() {
        pipe.handle_packet(0, &packet(1500, code_point, number as u8));
    }
    assert_eq!(numbers(&run(&mut pipe)), [0, 1, 2, 3, 4]);
    assert_eq!(pipe.counts.map(|band| band.delivered_packets), [1; 5]);
}

#[test]
fn losses_are_as_frequent_as_configured_independent_and_repeatable() {
    const PACKETS: usize = 20_000;
    let lost = |loss: f64, seed: u64| -> Vec<bool> {
        let path = Path { loss, ..Path::default() };
        let mut pipe = Pipe::new(&path, &Settings::default(), seed);
        let mut lost = Vec::new();
        let packet = packet(40, 0, 0);
        for _ in 0..PACKETS {
            let before = pipe.counts[0].dropped_lost;
            pipe.handle_packet(0, &packet);
            while pipe.poll_delivery(0).is_some() {}
            lost.push(pipe.counts[0].dropped_lost > before);
        }
        total(&pipe);
        lost
    };
    let count = |lost: &[bool]| lost.iter().filter(|lost| **lost).count();
    assert_eq!((count(&lost(0.0, 7)), count(&lost(1.0, 7))), (0, PACKETS));
    let at_5 = lost(0.05, 7);
    // Four standard deviations: 4 * sqrt(20,000 * 0.05 * 0.95).
    assert!(count(&at_5).abs_diff(1_000) < 124, "{}", count(&at_5));
    // After a loss the next is as likely as ever: 5 % of about 1,000, within four standard deviations.
    let pairs = at_5.windows(2).filter(|pair| pair[0] && pair[1]).count();
    assert!(pairs.abs_diff(50) < 28, "{pairs}");
    assert_eq!(at_5, lost(0.05, 7));
    assert_ne!(at_5, lost(0.05, 8));
}

#[test]
fn a_lost_packet_takes_no_time_on_the_link() {
    let path = Path { rate_bits_per_s: Some(12_000_000), loss: 0.5, ..Path::default() };
    let mut pipe = pipe(&path);
    for number in 0..100 {
        pipe.handle_packet(0, &packet(1500, 0, number));
    }
    let deliveries = run(&mut pipe);
    let (last_ns, _) = deliveries.last().unwrap();
    assert_eq!(*last_ns, deliveries.len() as u64 * MS);
    assert_eq!(total(&pipe).dropped_lost + deliveries.len() as u64, 100);
}

#[test]
fn packets_longer_than_the_link_allows_are_dropped() {
    let mut pipe = Pipe::new(&Path::default(), &Settings { mtu_bytes: 576, ..Settings::default() }, 7);
    pipe.handle_packet(0, &packet(577, 0, 1));
    pipe.handle_packet(0, &packet(576, 0, 2));
    assert_eq!(numbers(&run(&mut pipe)), [2]);
    assert_eq!(total(&pipe).dropped_too_long, 1);
}

#[test]
fn bytes_on_their_way_are_bounded() {
    let path = Path { delay_ns: 10 * S, ..Path::default() };
    let mut pipe = pipe(&path);
    let sent = TRAVELLING_BYTES_MAX / 1000;
    for _ in 0..sent {
        pipe.handle_packet(0, &packet(1500, 0, 0));
    }
    let counts = total(&pipe);
    assert!(pipe.line_cost_bytes <= TRAVELLING_BYTES_MAX && counts.dropped_no_memory > 0, "{counts:?}");
    assert_eq!(counts.dropped_no_memory + counts.travelling_packets, sent);
    run(&mut pipe);
    assert_eq!((pipe.line_cost_bytes, total(&pipe).travelling_packets), (0, 0));
}

#[test]
fn a_refused_delivery_is_a_drop() {
    let mut pipe = pipe(&Path::default());
    pipe.handle_packet(0, &packet(100, 10, 1));
    let delivery = pipe.poll_delivery(0).unwrap();
    assert_eq!(delivery.band, 1);
    pipe.handle_refusal(&delivery);
    let counts = pipe.counts[1];
    assert_eq!((counts.dropped_refused, counts.delivered_packets, counts.delivered_bytes), (1, 0, 0));
    assert_eq!(total(&pipe).dropped(), 1);
}

#[test]
fn any_sequence_keeps_the_bounds_and_loses_no_count() {
    for seed in 0..50 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut path = || Path {
            rate_bits_per_s: random.random::<bool>().then(|| random.random_range(100_000..100_000_000)),
            delay_ns: random.random_range(0..30 * MS),
            loss: random.random_range(0.0..0.3),
            room: if random.random() { Room::Packets(20) } else { Room::Bytes(30_000) },
            order: if random.random() { Order::Bands } else { Order::Arrival },
        };
        let mut pipe = pipe(&path());
        let (mut now_ns, mut last_due_ns) = (0, 0);
        for _ in 0..2_000 {
            now_ns += random.random_range(0..2 * MS);
            let code_point = [0, 10, 12, 8, 1, 46][random.random_range(0..6)];
            pipe.handle_packet(now_ns, &packet(random.random_range(20..=1600), code_point, 0));
            while let Some(delivery) = pipe.poll_delivery(now_ns) {
                assert!(last_due_ns <= delivery.due_ns && delivery.due_ns <= now_ns, "seed {seed}");
                last_due_ns = delivery.due_ns;
            }
            assert!(pipe.next_due_ns().is_none_or(|due_ns| due_ns > now_ns), "seed {seed}");
            let counts = total(&pipe);
            assert!(counts.waiting_packets <= 100 * BANDS as u64 && counts.waiting_bytes <= 160_000);
        }
        run(&mut pipe);
        let counts = total(&pipe);
        assert_eq!((counts.waiting_packets, counts.waiting_bytes, counts.travelling_packets), (0, 0, 0));
    }
}
