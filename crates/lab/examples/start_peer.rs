//! Starts servers one after the other, asks each for a file, and says what it is and uses.
//!
//! For people who write a `peers.toml`, to see whether the lab can start what it describes:
//!
//! ```text
//! cargo run -p flash-lab --example start_peer -- FOLDER PATH [peers.toml | NAME...]
//! ```
//!
//! FOLDER is served, and PATH is asked for under it. Without names it tries every ready-made server.
//! With the environment's MEMORY_MIB, READS_PER_S and CORE it does so in a testbed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;

use flash_lab::testbed::{self, Peer, Wishes};
use flash_lab::{Error, Result};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, path, which @ ..] = &arguments[..] else {
        eprintln!("usage: start_peer FOLDER PATH [peers.toml | NAME...]");
        return ExitCode::from(2);
    };
    let (peers, wishes) = match choose(which) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    let mut failed = 0;
    for peer in &peers {
        if let Err(error) = try_one(peer, folder, path, &wishes) {
            println!("{}: {error}", peer.name);
            failed = 1;
        }
    }
    ExitCode::from(failed)
}

fn choose(which: &[String]) -> Result<(Vec<Peer>, Wishes)> {
    if let [file] = which
        && file.ends_with(".toml")
    {
        let peers = testbed::read_peers(Path::new(file))?;
        return Ok((peers.servers, peers.wishes));
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wishes = Wishes {
        core: number("CORE").map(|core| core as usize),
        memory_bytes: number("MEMORY_MIB").map(|mib| mib << 20),
        reads_per_s: number("READS_PER_S").map(|rate| rate as u32),
        ..Wishes::default()
    };
    let known = testbed::ready_made_names();
    let names: Vec<&str> =
        if which.is_empty() { known.clone() } else { which.iter().map(String::as_str).collect() };
    let find = |name: &str| {
        let unknown = || Error::usage(format!("there is no server '{name}'; there are {}", known.join(", ")));
        testbed::ready_made(name).ok_or_else(unknown)
    };
    Ok((names.into_iter().map(find).collect::<Result<_>>()?, wishes))
}

fn try_one(peer: &Peer, folder: &str, path: &str, wishes: &Wishes) -> Result<()> {
    peer.check()?;
    let running = peer.start(&wishes.place(folder.into()))?;
    running.throttle(true)?;
    let watch = running.watch()?;
    let said = get(running.url(), path).unwrap_or_else(|why| format!("no answer: {why}"));
    println!("{} ({}): {}", peer.name, peer.note, running.version().unwrap_or("no version"));
    println!("  {}", running.command().unwrap_or("runs already"));
    println!("  {said}");
    if let Some(usage) = watch.and_then(|watch| watch.finish(1)) {
        println!("  {:.1} ms CPU, {} KiB of its own", usage.cpu_s * 1e3, usage.memory_max_bytes >> 10);
    }
    running.stop()
}

/// The status line of an answer, and how long it was.
fn get(url: &str, path: &str) -> std::io::Result<String> {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    Ok(format!("{line}, {} bytes", answer.len() - end))
}
