//! The settings of a link, their bounds, and their text on the command line. Pure.

use std::net::Ipv4Addr;

/// The address of the server's side. The network is reserved for measurements (RFC 2544, appendix C.2.2), so no
/// network that people use is hidden by it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The address of the client's side.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The lowest rate.
const RATE_MIN_BITS_PER_S: u64 = 1_000;
/// The highest rate; the link's own limit is lower (`docs/link.md`).
const RATE_MAX_BITS_PER_S: u64 = 10_000_000_000;
/// The longest delay of one direction.
const DELAY_MAX_NS: u64 = 10_000_000_000;
/// The longest queue of a band.
const QUEUE_MAX_PACKETS: u64 = 100_000;
/// The longest queue of a band that is bounded by bytes.
const QUEUE_MAX_BYTES: u64 = 150_000_000;
/// The bounds of the packet length: TCP needs room beside its headers, and this is the longest frame in use.
const MTU_MIN_BYTES: u32 = 256;
const MTU_MAX_BYTES: u32 = 9_000;
/// The longest overhead of a packet.
const OVERHEAD_MAX_BYTES: u32 = 1_000;

/// How long a queue may become, besides the packet that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Packets(u64),
    /// Packets of this many bytes in total, with their IP headers.
    Bytes(u64),
}

/// Which waiting packet is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that came first: one queue.
    Arrival,
    /// The first one of the most urgent band that has one: a queue of its own for each band, by the code points
    /// (DSCP) that Flash sets.
    Bands,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Bits per second of IP packets and their overhead; without one, packets take no time to send.
    pub rate_bits_per_s: Option<u64>,
    /// From the end of sending to arrival, in nanoseconds.
    pub delay_ns: u64,
    /// The probability, 0 to 1, that a packet is lost, independent of the others. It is lost before the queue, as in
    /// the paper (section 3.4), and takes no time on the link.
    pub loss: f64,
    /// The length of each queue.
    pub room: Room,
    /// Which packet goes next.
    pub order: Order,
}

impl Default for Path {
    /// No bound except a queue of 100 packets, the paper's device queue.
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            delay_ns: 0,
            loss: 0.0,
            room: Room::Packets(100),
            order: Order::Arrival,
        }
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub to_client: Path,
    pub to_server: Path,
    /// The longest packet in both directions, bytes with the IP header (MTU).
    pub mtu_bytes: u32,
    /// Bytes that the link counts for each packet in addition: 38 for Ethernet.
    pub overhead_bytes: u32,
    /// Decides which packets are lost.
    pub seed: u64,
    /// The only core of the link's thread, once it has started; without one, any. It runs before all other programs there.
    pub core: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        let [to_client, to_server] = [Path::default(), Path::default()];
        Self { to_client, to_server, mtu_bytes: 1500, overhead_bytes: 0, seed: 1, core: None }
    }
}

impl Settings {
    /// Says which value is out of its bounds first, and what these are.
    pub fn check(&self) -> Result<(), String> {
        if !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&self.mtu_bytes) {
            return Err(format!(
                "a packet length of {} bytes: choose {MTU_MIN_BYTES} to {MTU_MAX_BYTES}",
                self.mtu_bytes
            ));
        }
        if self.overhead_bytes > OVERHEAD_MAX_BYTES {
            return Err(format!(
                "an overhead of {} bytes: choose at most {OVERHEAD_MAX_BYTES}",
                self.overhead_bytes
            ));
        }
        self.to_client.check(self.mtu_bytes)?;
        self.to_server.check(self.mtu_bytes)
    }
}

impl Path {
    fn check(&self, mtu_bytes: u32) -> Result<(), String> {
        if let Some(rate) = self.rate_bits_per_s
            && !(RATE_MIN_BITS_PER_S..=RATE_MAX_BITS_PER_S).contains(&rate)
        {
            return Err(format!("a rate of {rate} bit/s: choose 1kbit to 10gbit"));
        }
        if self.delay_ns > DELAY_MAX_NS {
            return Err(format!("a delay of {} s: choose at most 10s", self.delay_ns as f64 / 1e9));
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(format!("a loss of {} %: choose 0% to 100%", self.loss * 100.0));
        }
        match self.room {
            Room::Packets(packets) if !(1..=QUEUE_MAX_PACKETS).contains(&packets) => {
                Err(format!("a queue of {packets} packets: choose 1 to {QUEUE_MAX_PACKETS}"))
            }
            Room::Bytes(bytes) if !(u64::from(mtu_bytes)..=QUEUE_MAX_BYTES).contains(&bytes) => Err(format!(
                "a queue of {bytes} bytes: choose at least one packet ({mtu_bytes}) and at most {QUEUE_MAX_BYTES}"
            )),
            Room::Packets(_) | Room::Bytes(_) => Ok(()),
        }
    }
}

/// Reads a rate as `tc` writes it: `10mbit`, `1.5Mbit`, `500kbit`, `1gbit`, `9600bit`; or `unlimited`. In bits per
/// second.
pub fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(None);
    }
    let rate = flash_units::parse_rate_bits(text);
    rate.map(Some).map_err(|why| format!("{why}; or unlimited"))
}

/// Reads a loss in percent: `3%`, `0.5%`, `3`. As a probability.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    let value = plain_number(text.strip_suffix('%').unwrap_or(text).trim_end());
    Ok(value.ok_or("not a loss; write a percentage: 3% or 0.5%")? / 100.0)
}

/// Reads the length of a queue: `100` packets, or with a unit, `64KiB`, bytes.
pub fn parse_room(text: &str) -> Result<Room, String> {
    if let Ok(packets) = text.parse() {
        return Ok(Room::Packets(packets));
    }
    let bytes = flash_units::parse_size_bytes(text);
    bytes
        .map(Room::Bytes)
        .map_err(|_| "not a queue; write a number of packets, 100, or bytes with a unit: 64KiB".to_owned())
}

/// Digits, with or without a point; nothing else that Rust reads as a number.
fn plain_number(text: &str) -> Option<f64> {
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| is_plain)
}

/// Reads `VALUE`, for both directions, or `VALUE/VALUE`, to the client and to the server.
pub fn parse_both<T: Clone>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Both<T>, String> {
    match text.split_once('/') {
        Some((to_client, to_server)) => Ok(Both { to_client: one(to_client)?, to_server: one(to_server)? }),
        None => {
            let value = one(text)?;
            Ok(Both { to_client: value.clone(), to_server: value })
        }
    }
}

/// A value for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Both<T> {
    pub to_client: T,
    pub to_server: T,
}

#[cfg(test)]
mod tests {
    use flash_units::parse_duration_ns;

    use super::*;

    #[test]
    fn values_are_read_with_their_units() {
        let rates =
            [("10mbit", 10_000_000), ("1.5Mbit", 1_500_000), ("500kbit", 500_000), ("1gbit", 1_000_000_000)];
        for (text, rate) in rates {
            assert_eq!(parse_rate(text), Ok(Some(rate)), "{text}");
        }
        assert_eq!(parse_rate("unlimited"), Ok(None));
        assert_eq!(
            (parse_loss("3%"), parse_loss("0.5"), parse_loss("100 %")),
            (Ok(0.03), Ok(0.005), Ok(1.0))
        );
        assert_eq!(
            (parse_room("100"), parse_room("64KiB")),
            (Ok(Room::Packets(100)), Ok(Room::Bytes(65_536)))
        );
    }

    #[test]
    fn a_value_is_for_both_directions_or_one_for_each() {
        let both = |to_client, to_server| Ok(Both { to_client, to_server });
        assert_eq!(parse_both("10mbit", parse_rate), both(Some(10_000_000), Some(10_000_000)));
        assert_eq!(parse_both("10mbit/1mbit", parse_rate), both(Some(10_000_000), Some(1_000_000)));
        assert_eq!(parse_both("10mbit/unlimited", parse_rate), both(Some(10_000_000), None));
        for wrong in ["10mbit/", "/", "10mbit/1mbit/1mbit"] {
            assert!(parse_both(wrong, parse_rate).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_that_is_no_value_is_refused() {
        for text in ["", "10", "mbit", "-1mbit", "1e3mbit", "infmbit", "10mb", ".5mbit", "1.2.3mbit"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        for text in ["", "%", "-1%", "nan", "inf%", "3%%"] {
            assert!(parse_loss(text).is_err(), "{text}");
        }
        for text in ["", "-1", "1.5", "KiB", "64X", "-1KiB"] {
            assert!(parse_room(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_out_of_their_bounds_are_refused() {
        let with = |path: Path| Settings { to_server: path, ..Settings::default() }.check();
        assert_eq!(Settings::default().check(), Ok(()));
        let huge = "9".repeat(400);
        let wrong = [
            Path { rate_bits_per_s: Some(0), ..Path::default() },
            Path { rate_bits_per_s: parse_rate(&format!("{huge}gbit")).unwrap(), ..Path::default() },
            Path { delay_ns: DELAY_MAX_NS + 1, ..Path::default() },
            Path { delay_ns: parse_duration_ns(&format!("{huge}s")).unwrap(), ..Path::default() },
            Path { loss: 1.01, ..Path::default() },
            Path { loss: f64::NAN, ..Path::default() },
            Path { room: Room::Packets(0), ..Path::default() },
            Path { room: Room::Packets(u64::MAX), ..Path::default() },
            Path { room: Room::Bytes(1499), ..Path::default() },
            Path { room: Room::Bytes(u64::MAX), ..Path::default() },
        ];
        for path in wrong {
            assert!(with(path.clone()).is_err(), "{path:?}");
        }
        for mtu_bytes in [0, 255, 9001] {
            assert!(Settings { mtu_bytes, ..Settings::default() }.check().is_err());
        }
        assert!(Settings { overhead_bytes: 1001, ..Settings::default() }.check().is_err());
    }
}
