//! The connections of a backend, and the groups that share a quota. Called by
//! [`backend`](crate::backend).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::counters::{BackendCounters, ClientCounters};
use super::protocol::Status;
use super::{CONNECTIONS_MAX, ClientFile, REQUESTS_PER_CONNECTION_MAX, Refusal, UNGREETED_MAX};
use crate::machine::FileId;
use crate::slab::{Key, Slab};

/// Maximum number of names of clients that are counted apart.
const NAMES_COUNTED_MAX: usize = 16;

/// A connection.
#[derive(Debug)]
struct Client<F> {
    user: u32,
    is_allowed: bool,
    /// None until its HELLO.
    welcomed: Option<Welcomed<F>>,
}

/// A connection that can send requests.
#[derive(Debug)]
pub(super) struct Welcomed<F> {
    pub(super) user: u32,
    pub(super) root: Arc<F>,
    pub(super) root_id: FileId,
    group: Key,
    /// The unanswered requests by the numbers that the client gave them. Sorted, so that the same events always have
    /// the same effects.
    pub(super) requests: BTreeMap<u32, Key>,
}

/// The processes of one server, as far as the backend can know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupName {
    user: u32,
    number: u64,
    name: Box<[u8]>,
}

/// Connections that share a quota.
#[derive(Debug)]
struct Group {
    name: GroupName,
    connections: usize,
    /// Unanswered requests.
    waiters: usize,
    /// 0 for no limit.
    waiters_max: usize,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Clients<F> {
    clients: Slab<Client<F>>,
    welcomed_len: usize,
    groups: Slab<Group>,
    group_of: HashMap<GroupName, Key>,
    /// The times by which connections must have sent their HELLO, in order.
    ungreeted: VecDeque<(u64, Key)>,
}

impl<F> Clients<F> {
    pub(super) fn new() -> Self {
        Self {
            clients: Slab::new(),
            welcomed_len: 0,
            groups: Slab::new(),
            group_of: HashMap::new(),
            ungreeted: VecDeque::new(),
        }
    }

    /// Adds a connection that must send its HELLO by `hello_by_ms`. None if there are too many.
    pub(super) fn add(&mut self, user: u32, is_allowed: bool, hello_by_ms: u64) -> Option<Key> {
        if self.clients.len() >= self.welcomed_len + UNGREETED_MAX {
            return None;
        }
        let key = self.clients.insert(Client { user, is_allowed, welcomed: None });
        self.ungreeted.push_back((hello_by_ms, key));
        Some(key)
    }

    /// Handles a HELLO. Anything but `Welcome` ends the connection.
    pub(super) fn welcome(
        &mut self,
        key: Key,
        (number, name): (u64, &[u8]),
        waiters_max: u32,
        root: ClientFile<F>,
    ) -> Status {
        let Some(client) = self.clients.get_mut(key) else { return Status::NoRoom };
        if !client.is_allowed {
            return Status::WrongUser;
        }
        if self.welcomed_len >= CONNECTIONS_MAX {
            return Status::NoRoom;
        }
        let name = GroupName { user: client.user, number, name: name.into() };
        let groups = &mut self.groups;
        let group = *self
            .group_of
            .entry(name.clone())
            .or_insert_with(|| groups.insert(Group { name, connections: 0, waiters: 0, waiters_max: 0 }));
        if let Some(group) = self.groups.get_mut(group) {
            group.connections += 1;
            group.waiters_max = waiters_max as usize;
        }
        let (user, root, root_id) = (client.user, Arc::new(root.file), root.id);
        client.welcomed = Some(Welcomed { user, root, root_id, group, requests: BTreeMap::new() });
        self.welcomed_len += 1;
        self.ungreeted.retain(|(_, client)| *client != key);
        Status::Welcome
    }

    pub(super) fn welcomed(&self, key: Key) -> Option<&Welcomed<F>> {
        self.clients.get(key)?.welcomed.as_ref()
    }

    fn welcomed_mut(&mut self, key: Key) -> Option<&mut Welcomed<F>> {
        self.clients.get_mut(key)?.welcomed.as_mut()
    }

    /// Whether the client has an unanswered request of this number.
    pub(super) fn knows(&self, key: Key, id: u32) -> bool {
        self.welcomed(key).is_some_and(|welcomed| welcomed.requests.contains_key(&id))
    }

    /// The group of a connection that may wait for one more request.
    pub(super) fn room_of(&self, key: Key) -> Result<Key, Refusal> {
        let Some(welcomed) = self.welcomed(key) else { return Err(Refusal::Bounds) };
        if welcomed.requests.len() >= REQUESTS_PER_CONNECTION_MAX {
            return Err(Refusal::Bounds);
        }
        match self.groups.get(welcomed.group) {
            Some(group) if group.waiters_max > 0 && group.waiters >= group.waiters_max => Err(Refusal::Quota),
            _ => Ok(welcomed.group),
        }
    }

    /// Adds an unanswered request.
    pub(super) fn remember(&mut self, key: Key, id: u32, request: Key) {
        let Some(welcomed) = self.welcomed_mut(key) else { return };
        welcomed.requests.insert(id, request);
        let group = welcomed.group;
        if let Some(group) = self.groups.get_mut(group) {
            group.waiters += 1;
        }
    }

    /// Removes an unanswered request.
    pub(super) fn forget(&mut self, key: Key, id: u32) -> Option<Key> {
        let welcomed = self.welcomed_mut(key)?;
        let request = welcomed.requests.remove(&id)?;
        let group = welcomed.group;
        if let Some(group) = self.groups.get_mut(group) {
            group.waiters -= 1;
        }
        Some(request)
    }

    /// Removes a connection. Returns its unanswered requests.
    pub(super) fn remove(&mut self, key: Key) -> Vec<Key> {
        let Some(client) = self.clients.remove(key) else { return Vec::new() };
        let Some(Welcomed { group, requests, .. }) = client.welcomed else {
            self.ungreeted.retain(|(_, client)| *client != key);
            return Vec::new();
        };
        self.welcomed_len -= 1;
        if let Some(of_group) = self.groups.get_mut(group) {
            of_group.connections -= 1;
            of_group.waiters -= requests.len();
            if of_group.connections == 0
                && let Some(of_group) = self.groups.remove(group)
            {
                self.group_of.remove(&of_group.name);
            }
        }
        requests.into_values().collect()
    }

    /// A connection whose HELLO is late.
    pub(super) fn poll_late(&mut self, now_ms: u64) -> Option<Key> {
        let (by_ms, _) = self.ungreeted.front()?;
        if *by_ms > now_ms {
            return None;
        }
        self.ungreeted.pop_front().map(|(_, key)| key)
    }

    /// When the next HELLO is due.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.ungreeted.front().map(|(by_ms, _)| *by_ms)
    }

    /// Fills in the present connections.
    pub(super) fn count(&self, counters: &mut BackendCounters) {
        counters.connections = self.clients.len();
        for group in self.groups.keys().filter_map(|key| self.groups.get(key)) {
            let name = String::from_utf8_lossy(&group.name.name).into_owned();
            let known = counters.clients.iter().position(|client| client.name == name);
            let at = match known {
                Some(at) => at,
                None if counters.clients.len() < NAMES_COUNTED_MAX => {
                    counters.clients.push(ClientCounters { name, ..ClientCounters::default() });
                    counters.clients.len() - 1
                }
                None => continue,
            };
            counters.clients[at].connections += group.connections;
            counters.clients[at].pending += group.waiters;
        }
    }
}
