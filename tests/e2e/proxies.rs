//! Clients behind trusted proxies.

use std::fs;

use crate::harness::{Folder, Launch, wait_until};

#[test]
fn a_trusted_proxy_names_the_client() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let start = |trusted: &str| {
        let config = format!(
            "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nlog_file = \"{}\"\n{trusted}\
             [[rule]]\ndeny = [\"192.0.2.0/24\"]\n",
            log.display()
        );
        Launch::configured(&folder, &config).start()
    };
    let trusting = start("trusted_proxies = [\"loopback\"]\n");
    let mut client = trusting.client();
    for _ in 0..3 {
        for (named_client, status) in [("192.0.2.1", 403), ("198.51.100.7", 200)] {
            let field = format!("X-Forwarded-For: 203.0.113.5, {named_client}");
            assert_eq!(client.request("GET", "/hello.txt", &[&field]).status, status, "{field}");
        }
    }
    let lines_of = |client: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(&format!("{client} "))).count()
    };
    wait_until("all lines", || lines_of("192.0.2.1") == 3 && lines_of("198.51.100.7") == 3);
    drop(trusting);
    let trusting_none = start("");
    let page = trusting_none.get_with("/hello.txt", &["X-Forwarded-For: 192.0.2.1"]);
    assert_eq!(page.status, 200);
    wait_until("a line", || lines_of("127.0.0.1") == 1);
}
