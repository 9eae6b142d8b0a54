//! Sockets that are bound, kept and taken from systemd.

use super::super::local_socket;
use super::*;
use crate::config::SocketMode;

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn bind(addresses: &[SocketAddr], sockets: usize, old: &Sockets) -> io::Result<Sockets> {
    let listen = addresses.iter().copied().map(Listen::Tcp).collect();
    Sockets::of(&Settings { listen, workers: sockets, ..Settings::default() }, old, Vec::new())
}

/// Sockets of systemd with these names.
fn passed(names: &[&str]) -> Sockets {
    let listener = |name: &&str| {
        let socket = net::listen(any_port(), 1).expect("listens");
        let address = BoundAddress::Tcp(net::local_address(&socket).expect("an address"));
        Listener { socket, name: (*name).to_owned(), is_packets: false, address }
    };
    Sockets { passed: Arc::new(names.iter().map(listener).collect()), ..Sockets::default() }
}

/// The places of `listen` and `listen_tls`; without any of the first, the default.
fn settings(listen: &[&str], tls_listen: &[&str]) -> Settings {
    let places = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a place")).collect();
    let listens_by_default = listen.is_empty();
    let listen = places(if listens_by_default { &["127.0.0.1:0"] } else { listen });
    let listen_mode = SocketMode(0o660);
    let settings = Settings { listen, listens_by_default, listen_mode, ..Settings::default() };
    Settings { tls_listen: places(tls_listen), workers: 2, ..settings }
}

#[test]
fn sockets_of_systemd_take_the_place_of_the_default_or_are_named() {
    let urls = |names: &[&str], listen: &[&str], tls: &[&str]| {
        let sockets = Sockets::of(&settings(listen, tls), &passed(names), Vec::new())?;
        let marks: Vec<String> = sockets
            .urls()
            .map(|url| {
                let (scheme, rest) = url.split_once("://").expect("an address");
                let mark = rest.split_once(' ').map_or("", |(_, mark)| mark);
                format!("{scheme} {mark}")
            })
            .collect();
        for worker in 0..2 {
            let of_all = [sockets.of_worker(false, worker, 2), sockets.of_worker(true, worker, 2)];
            let count: usize = of_all.map(|copies| copies.expect("copies").len()).iter().sum();
            assert_eq!(count, sockets.groups.len(), "each worker has every place");
        }
        io::Result::Ok(marks.join(", "))
    };
    let ok = |names: &[&str], listen: &[&str], tls: &[&str]| urls(names, listen, tls).expect("sockets");
    assert_eq!(ok(&[], &[], &[]), "http ");
    assert_eq!(ok(&["", "b"], &[], &[]), "http (systemd), http (systemd:b)");
    assert_eq!(
        ok(&["a", "b", "a"], &[], &["systemd:a"]),
        "http (systemd:b), https (systemd:a), https (systemd:a)"
    );
    assert_eq!(ok(&["a"], &[], &["systemd:a"]), "https (systemd:a)");
    assert_eq!(ok(&["a"], &["127.0.0.1:0", "systemd:a"], &[]), "http , http (systemd:a)");
    let why = |names: &[&str], listen: &[&str], tls: &[&str]| {
        urls(names, listen, tls).expect_err("wrong").to_string()
    };
    assert!(why(&["a"], &["127.0.0.1:0"], &[]).contains("add `systemd:a` to listen or listen_tls"));
    assert!(why(&[""], &["127.0.0.1:0"], &[]).contains("give its unit FileDescriptorName="));
    assert!(
        why(&[], &["systemd:a"], &[]).contains("systemd has passed no socket; start Flash by a socket unit")
    );
    assert!(why(&["b"], &["systemd:a"], &[]).contains("of `b`; set FileDescriptorName=a"));
    assert!(why(&["a"], &["systemd:a"], &["systemd:a"]).contains("no socket of this name left"));
}

#[test]
fn a_path_is_created_once_and_removed_with_its_last_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let settings = settings(&[&format!("unix:{}", path.display()), "127.0.0.1:0"], &[]);
    let new = local_socket::bind_new(&settings, &[]).expect("bound");
    let one = Sockets::of(&settings, &Sockets::default(), new).expect("sockets");
    assert_eq!(one.created_paths(), [path.clone().into()]);
    assert!(local_socket::bind_new(&settings, &one.created_paths()).expect("nothing to bind").is_empty());
    let why = local_socket::bind_new(&settings, &[]).expect_err("in use").to_string();
    assert!(why.contains("a process listens there; stop it"), "{why}");
    let two = Sockets::of(&settings, &one, Vec::new()).expect("sockets");
    one.give_way();
    assert!(path.exists(), "the next configuration has it");
    assert_eq!(two.urls().next(), Some(format!("unix:{}", path.display())));
    drop(two);
    assert!(!path.exists());
    let why = Sockets::of(&settings, &Sockets::default(), Vec::new()).expect_err("gone").to_string();
    assert!(why.contains("reload again"), "{why}");
}

#[test]
fn what_is_wrong_with_a_path_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "precious").expect("a file");
    std::os::unix::fs::symlink("file", folder.path().join("link")).expect("a link");
    for (path, part) in [
        ("file", "it exists and is not a socket"),
        ("link", "it exists and is not a socket"),
        ("file/socket", "choose another path"),
        ("none/socket", "create it first"),
    ] {
        let settings = settings(&[&format!("unix:{}", folder.path().join(path).display())], &[]);
        let why = local_socket::bind_new(&settings, &[]).expect_err(path).to_string();
        assert!(why.contains(part) && why.contains(path), "{why}");
    }
    assert_eq!(std::fs::read(folder.path().join("file")).expect("the file"), b"precious");
}

#[test]
fn every_socket_has_a_worker_whatever_their_number() {
    let three = bind(&[any_port()], 3, &Sockets::default()).expect("bound");
    for workers in 1..=3 {
        let dealt: usize =
            (0..workers).map(|p| three.of_worker(false, p, workers).expect("copies").len()).sum();
        assert_eq!(dealt, 3);
    }
}

#[test]
fn one_socket_is_for_all_workers_and_so_are_those_that_were_there_before() {
    let three = bind(&[any_port()], 3, &Sockets::default()).expect("bound");
    for place in 0..5 {
        assert_eq!(three.of_worker(false, place, 1).expect("copies").len(), 3);
    }
}

#[test]
fn a_new_configuration_keeps_port_and_sockets() {
    let one = bind(&[any_port()], 1, &Sockets::default()).expect("bound");
    let two = bind(&[any_port()], 2, &one).expect("bound");
    assert_eq!(one.addresses().collect::<Vec<_>>(), two.addresses().collect::<Vec<_>>());
    let fewer = bind(&[any_port()], 1, &two).expect("bound");
    assert_eq!(fewer.groups[0].sockets.len(), 2);
}

#[test]
fn an_address_in_use_is_refused_with_advice() {
    let other = std::net::TcpListener::bind(any_port()).expect("bound");
    let taken = other.local_addr().expect("an address");
    let error = bind(&[taken], 1, &Sockets::default()).expect_err("taken");
    assert!(error.to_string().contains("another program uses it"), "{error}");
    let ours = bind(&[any_port()], 1, &Sockets::default()).expect("bound");
    let taken = ours.addresses().next().expect("one");
    assert!(bind(&[taken], 1, &Sockets::default()).is_err(), "also by another flash");
}
