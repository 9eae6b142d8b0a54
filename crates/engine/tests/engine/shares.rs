//! A site whose disk hangs takes its share of the helpers and of the queue, and no more.
//!
//! Hosts are `a.1`, `a.2`, `b.1` and so on; the letter is the root. All hosts see the same files, so each
//! path is requested only once unless a test says otherwise.

use crate::machine::world::JOB_MS;
use crate::machine::{Client, Content, MIB, World, rules};
use flash_engine::limits::JOBS_QUEUED_MAX;
use flash_engine::{JobId, Rules, SiteRules, Task};

const HELPERS: usize = 16;
/// With 16 helpers and two roots: the most that one root gets. The rest is reserved for the other.
const MOST: usize = 12;
const RESERVE: usize = HELPERS - MOST;

struct Sites {
    world: World,
    hosts: Vec<&'static str>,
    paths: usize,
}

impl Sites {
    /// Makes sites with the given number of helpers, jobs that finish by hand, and plenty of cold files.
    fn new(hosts: &[&'static str], helpers_max: usize) -> Self {
        let site = |host: &&str| SiteRules {
            root: format!("/{}", &host[..1]).into(),
            hosts: vec![(*host).to_owned()],
            ..rules().sites.remove(0)
        };
        let sites = hosts.iter().map(site).collect();
        let mut world = World::with(Rules { sites, helpers_max, ..rules() });
        world.auto = false;
        world.machine.helpers.idle = helpers_max;
        (0..4 * JOBS_QUEUED_MAX).for_each(|n| world.machine.files.add_cold(&format!("{n}"), "cold"));
        Self { world, hosts: hosts.to_vec(), paths: 0 }
    }

    fn get(&mut self, host: &str, path: &str) -> Client {
        let client = self.world.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client
    }

    /// Sends this many requests for cold files that were not requested before.
    fn ask(&mut self, host: &str, count: usize) -> Vec<Client> {
        let clients = (0..count)
            .map(|_| {
                self.paths += 1;
                self.get(host, &format!("/{}", self.paths - 1))
            })
            .collect();
        self.world.run();
        clients
    }

    fn running(&self, host: &str) -> Vec<JobId> {
        let at = self.hosts.iter().position(|h| *h == host).expect("a host");
        let running = self.world.machine.helpers.running.iter();
        running
            .filter(|(_, task)| matches!(task, Task::Find { site, .. } if usize::from(site.0) == at))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Finishes the look-ups of this host, including those that start meanwhile.
    fn finish(&mut self, host: &str) {
        while let Some(id) = self.running(host).first().copied() {
            self.world.finish(id);
            self.world.run();
        }
    }

    /// Measures how many helpers each host gets if it alone sends more requests than there are helpers.
    /// Finishes all jobs afterwards.
    fn measure(&mut self) -> Vec<usize> {
        let hosts = self.hosts.clone();
        let mut counts = Vec::new();
        let mut clients = Vec::new();
        for host in &hosts {
            clients.extend(self.ask(host, HELPERS + 1));
            counts.push(self.running(host).len());
        }
        hosts.iter().for_each(|host| self.finish(host));
        clients.iter().for_each(|client| assert_eq!(client.take_one().status, 200));
        counts
    }
}

fn statuses(clients: &[Client]) -> Vec<u16> {
    clients
        .iter()
        .map(|client| if client.received_len() == 0 { 0 } else { client.take_one().status })
        .collect()
}

#[test]
fn a_single_site_gets_all_helpers_and_sites_with_one_root_share() {
    assert_eq!(Sites::new(&["a.1"], HELPERS).measure(), [HELPERS]);
    assert_eq!(Sites::new(&["a.1", "a.2"], HELPERS).measure(), [HELPERS, 0]);
    assert_eq!(Sites::new(&["a.1", "a.2", "b.1"], HELPERS).measure(), [MOST, 0, RESERVE]);
}

#[test]
fn a_site_whose_disk_hangs_delays_no_other() {
    let mut sites = Sites::new(&["a.1", "b.1", "c.1"], HELPERS);
    let stuck = sites.ask("a.1", 100);
    for round in 1..=20 {
        let clients = [sites.ask("b.1", 1), sites.ask("c.1", 3)].concat();
        ["b.1", "c.1"].iter().for_each(|host| sites.finish(host));
        assert_eq!(statuses(&clients), [200; 4], "round {round}");
    }
    assert_eq!((sites.running("a.1").len(), sites.world.elapsed_ms()), (MOST, 0));
    assert!(stuck.iter().all(|client| client.received_len() == 0));
    sites.finish("a.1");
    assert_eq!(statuses(&stuck), [200; 100]);
    sites.world.end();
}

#[test]
fn a_site_has_its_own_share_of_the_queue_too() {
    let mut sites = Sites::new(&["a.1", "b.1"], HELPERS);
    let stuck = [sites.ask("a.1", MOST), sites.ask("a.1", JOBS_QUEUED_MAX * 3 / 4)].concat();
    assert_eq!(sites.world.engine.counters().jobs_refused(), 0);
    let refused = sites.ask("a.1", 1).remove(0).take_one();
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("2")));
    let others = [sites.ask("b.1", RESERVE), sites.ask("b.1", JOBS_QUEUED_MAX / 4)].concat();
    assert_eq!(sites.world.engine.counters().jobs_refused(), 1);
    assert_eq!(statuses(&sites.ask("b.1", 1)), [503]);
    sites.finish("b.1");
    assert!(statuses(&others).iter().all(|status| *status == 200));
    sites.finish("a.1");
    assert!(statuses(&stuck).iter().all(|status| *status == 200));
    sites.world.end();
}

#[test]
fn loads_count_for_the_site_of_their_file() {
    let mut sites = Sites::new(&["a.1", "b.1"], HELPERS);
    sites.world.machine.files.add("film", Content::Pattern(1, MIB + MIB / 2));
    for host in ["a.1", "b.1"] {
        let client = sites.get(host, "/film");
        sites.world.run();
        assert_eq!(client.take_one().status, 200);
    }
    sites.world.auto = true;
    sites.world.run();
    sites.world.auto = false;
    sites.world.machine.files.inode("film").evict();
    sites.world.machine.helpers.history.clear();
    sites.ask("a.1", MOST);
    let clients = ["a.1", "b.1"].map(|host| sites.get(host, "/film"));
    sites.world.run();
    let loads =
        |sites: &Sites| sites.world.machine.helpers.history.iter().filter(|h| h.starts_with("fill")).count();
    // The first block is already in the store. Two more blocks of b are loading; the loads of a wait for a
    // helper.
    assert_eq!((sites.world.machine.helpers.running.len(), loads(&sites)), (MOST + 2, 2));
    sites.finish("a.1");
    assert_eq!(loads(&sites), 4);
    sites.world.auto = true;
    sites.world.run();
    assert_eq!(statuses(&clients), [200, 200]);
    sites.world.end();
}

#[test]
fn a_helper_that_was_given_up_counts_until_it_has_ended() {
    let mut sites = Sites::new(&["a.1", "b.1"], HELPERS);
    sites.world.machine.helpers.uninterruptible = true;
    let stuck = sites.ask("a.1", MOST + 5);
    sites.world.advance(2 * JOB_MS);
    assert!(statuses(&stuck).iter().all(|status| *status == 503));
    for _ in 0..3 {
        // Helpers are available, but not for this site.
        sites.world.machine.helpers.idle = HELPERS;
        let more = sites.ask("a.1", 3);
        assert_eq!((sites.running("a.1").len(), sites.world.engine.counters().jobs_given_up), (0, MOST));
        let others = sites.ask("b.1", 2 * RESERVE);
        assert_eq!(sites.running("b.1").len(), RESERVE);
        sites.finish("b.1");
        assert!(statuses(&others).iter().all(|status| *status == 200));
        sites.world.advance(JOB_MS - 1);
        assert_eq!(statuses(&more), [0; 3]);
        sites.world.advance(1);
        assert_eq!(statuses(&more), [503; 3]);
    }
    let waiting = sites.ask("a.1", 3);
    sites.world.machine.helpers.uninterruptible = false;
    sites.world.run();
    assert_eq!((sites.running("a.1").len(), sites.world.engine.counters().jobs_given_up), (3, 0));
    sites.finish("a.1");
    assert_eq!(statuses(&waiting), [200; 3]);
    sites.world.machine.helpers.idle = HELPERS;
    assert_eq!(sites.measure(), [MOST, RESERVE]);
    sites.world.end();
}

#[test]
fn with_more_sites_than_helpers_none_waits_longer_than_a_deadline() {
    for helpers_max in [1, 2, 3] {
        let mut sites = Sites::new(&["a.1", "b.1", "c.1", "d.1", "e.1"], helpers_max);
        sites.world.machine.helpers.uninterruptible = true;
        let stuck = sites.ask("a.1", 20);
        sites.world.advance(JOB_MS / 2);
        let others = [sites.ask("b.1", 2), sites.ask("e.1", 2)].concat();
        // With one helper, this lasts until the helper is given up.
        sites.world.advance(if helpers_max == 1 { JOB_MS / 2 } else { 0 });
        for _ in 0..2 {
            sites.world.machine.helpers.idle = 1;
            sites.world.engine.handle_helper_ready(&mut sites.world.machine);
            ["b.1", "e.1"].iter().for_each(|host| sites.finish(host));
        }
        assert_eq!(statuses(&others), [200; 4], "{helpers_max} helpers");
        sites.world.advance(2 * JOB_MS);
        assert!(statuses(&stuck).iter().all(|status| *status == 503));
    }
}

#[test]
fn sites_take_turns_and_each_keeps_its_order() {
    let mut sites = Sites::new(&["a.1", "b.1", "c.1"], HELPERS);
    sites.world.machine.helpers.idle = 1;
    for (host, count) in [("a.1", 5), ("b.1", 2), ("c.1", 1)] {
        sites.ask(host, count);
    }
    sites.world.auto = true;
    sites.world.run();
    let order = ["0", "1", "5", "7", "2", "6", "3", "4"].map(|path| format!("find /{path}"));
    assert_eq!(sites.world.machine.helpers.history, order);
    sites.world.end();
}

#[test]
fn no_share_is_lost_however_jobs_end() {
    let mut sites = Sites::new(&["a.1", "b.1"], HELPERS);
    for round in 0..3 {
        let clients = [sites.ask("a.1", 100), sites.ask("b.1", 30)].concat();
        // Requests whose jobs are joined, running and queued.
        let last = sites.paths - 1;
        let joined: Vec<Client> =
            [last, last - 29].iter().map(|n| sites.get("b.1", &format!("/{n}"))).collect();
        sites.world.run();
        // Requests whose clients leave.
        clients.iter().step_by(3).for_each(Client::reset);
        joined.iter().for_each(Client::reset);
        sites.world.run();
        // Requests whose jobs are lost, done, and refused.
        for host in ["a.1", "b.1"] {
            let [first, second] = [0, 1].map(|at| sites.running(host)[at]);
            sites.world.lose(first);
            sites.world.finish(second);
        }
        sites.world.run();
        sites.ask("a.1", 1000);
        assert!(sites.world.engine.counters().jobs_refused() > 0);
        // Jobs given up at helpers and in the queue.
        sites.world.advance(2 * JOB_MS);
        let counters = sites.world.engine.counters();
        assert_eq!((counters.jobs_queued, counters.jobs_running, counters.jobs_given_up), (0, 0, 0));
        sites.world.machine.helpers.idle = HELPERS;
        assert_eq!(sites.measure(), [MOST, RESERVE], "round {round}");
    }
    sites.world.end();
}
