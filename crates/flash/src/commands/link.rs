//! `flash link`: two commands with a slow, long or lossy link between them.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::link::{
    self, Both, LinkOptions, Order, Path, Room, Settings, parse_both, parse_loss, parse_rate, parse_room,
};
use flash_units::parse_duration_ns;

const MORE: &str = "\
Makes two network namespaces, for a server (198.18.0.1) and its clients (198.18.0.2), and carries each IP packet between \
them. A packet meets the loss first, then the queue, the rate and the delay. RATE, TIME, LOSS and LENGTH are for both \
directions, or two with a slash between: to the client, then to the server, as in --rate 10mbit/1mbit.

COMMAND runs on the client's side, --server on the server's side, and COMMAND starts when a program there listens on a TCP \
port. Without COMMAND the link stays until Ctrl-C, and flash prints how other programs enter it. Both sides have a loopback \
device and the link, and no other network. The variables LINK_SERVER and LINK_CLIENT hold the addresses. \
At the end flash ends what is left of both commands and prints the counts of packets.

Needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun. Nothing outside the two namespaces changes, and nothing \
remains, even if flash is killed. See docs/link.md.

RATE is a number with bit, kbit, mbit or gbit, or unlimited. TIME is a number with us, ms or s. LOSS is a percentage. \
LENGTH is a number of packets, or of bytes with a unit: 64KiB.

Exit codes: that of COMMAND (128 and the signal if a signal ended it), 1 failed, 2 usage error, 3 a check did not hold, 130 \
interrupted.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE, override_usage = "flash link [OPTIONS] [--server COMMAND] [-- COMMAND...]\n       flash link --check")]
pub(crate) struct Link {
    /// Bits per second
    #[arg(long, value_name = "RATE", default_value = "unlimited", value_parser = |text: &str| parse_both(text, parse_rate))]
    rate: Both<Option<u64>>,

    /// Delay of each packet in one direction; a round trip takes both
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = |text: &str| parse_both(text, parse_duration_ns))]
    delay: Both<u64>,

    /// Share of packets that are lost, each independently
    #[arg(long, value_name = "LOSS", default_value = "0%", value_parser = |text: &str| parse_both(text, parse_loss))]
    loss: Both<f64>,

    /// Longest queue; later packets are dropped
    #[arg(long, value_name = "LENGTH", default_value = "100", value_parser = |text: &str| parse_both(text, parse_room))]
    queue: Both<Room>,

    /// Send the most urgent packets first, by the code points (DSCP) that Flash sets; each band has a queue
    #[arg(long)]
    bands: bool,

    /// Longest packet (MTU), from 256
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,

    /// Bytes that each packet takes in addition; 38 for Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    overhead: u32,

    /// Which packets are lost: the same seed loses the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Command of the shell to run on the server's side
    #[arg(long, value_name = "COMMAND", value_hint = clap::ValueHint::CommandString)]
    server: Option<String>,

    /// Write the counts to this file as JSON
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Compare throughput, round trips and losses with theory on this machine, which takes a minute
    #[arg(long, conflicts_with_all = ["rate", "delay", "loss", "queue", "bands", "mtu", "overhead", "seed", "server", "command"])]
    check: bool,

    /// Command to run on the client's side
    #[arg(last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

impl Link {
    pub(crate) fn run(self) -> ExitCode {
        if self.check {
            return crate::lab::finish_run(link::check(self.json.as_deref()));
        }
        let order = if self.bands { Order::Bands } else { Order::Arrival };
        let Self { rate, delay, loss, queue, .. } = self;
        let path =
            |rate_bits_per_s, delay_ns, loss, room| Path { rate_bits_per_s, delay_ns, loss, room, order };
        let settings = Settings {
            to_client: path(rate.to_client, delay.to_client, loss.to_client, queue.to_client),
            to_server: path(rate.to_server, delay.to_server, loss.to_server, queue.to_server),
            mtu_bytes: self.mtu,
            overhead_bytes: self.overhead,
            seed: self.seed,
            core: None,
        };
        let options = LinkOptions { settings, server: self.server, client: self.command, json: self.json };
        crate::lab::finish_code(link::run(&options), |code| code)
    }
}
