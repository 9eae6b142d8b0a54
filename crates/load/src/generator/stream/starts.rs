//! Connections for the requests of a stream that wait, and the next requests of clients in a closed loop.

use super::Flow;
use crate::generator::loop_io::Io;
use crate::generator::request::Request;
use crate::generator::timers::{Timer, Wake};

impl Flow {
    /// Finds connections for the requests that wait.
    pub(crate) fn advance(&mut self, io: &mut Io<'_>) {
        if io.mux.is_some() {
            return self.advance_shared(io);
        }
        if self.is_open_loop() {
            while !self.waiting.is_empty() {
                let Some(token) = self.pool.take_idle() else { break };
                if let Some(request) = self.waiting.pop_front() {
                    self.send(token, request, io);
                }
            }
            while self.pool.connecting < self.waiting.len() && self.pool.open < self.setup.connections_max {
                if let Err(why) = self.pool.open(&io.epoll) {
                    self.fail_first_waiting(&why, io);
                }
            }
            return;
        }
        loop {
            while let Some((client, since_ns)) = self.ready.pop_front() {
                self.queue_next(client, since_ns, io);
            }
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            self.send_for_client(request, io);
        }
    }

    /// The same over connections of HTTP/2, which all flows share.
    fn advance_shared(&mut self, io: &mut Io<'_>) {
        loop {
            while let Some((client, since_ns)) = self.ready.pop_front() {
                self.queue_next(client, since_ns, io);
            }
            let (Some(mux), Some(request)) = (&mut io.mux, self.waiting.pop_front()) else { break };
            match mux.submit(self.number, request, io.now_ns) {
                Ok(key) => {
                    if let Some(due_ns) = self.deadline_ns(&request) {
                        let wake = Wake::Stream(key.stream);
                        io.timers.set(Timer { due_ns, token: key.token, wake });
                    }
                }
                Err(request) => {
                    self.waiting.push_front(request);
                    break;
                }
            }
        }
        while let Some(mux) = &mut io.mux
            && self.waiting.len() > mux.room_to_come()
        {
            match mux.open(&io.epoll) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => self.fail_first_waiting(&why, io),
            }
        }
        if let Some(mux) = &mut io.mux {
            mux.flush();
        }
    }

    fn queue_next(&mut self, client: u32, since_ns: u64, io: &Io<'_>) {
        match if self.closed { None } else { self.demand.next_path() } {
            Some(path_id) => {
                self.outstanding += 1;
                self.waiting.push_back(Request::new(path_id, client, since_ns, io.now_ns, io.thread));
            }
            None => self.clients_left -= 1,
        }
    }

    fn send_for_client(&mut self, request: Request, io: &mut Io<'_>) {
        let token = self.pool.token(request.client);
        if self.pool.is_free(token) {
            return self.send(token, request, io);
        }
        self.discard(token);
        match self.pool.open_at(request.client, &io.epoll) {
            Ok(token) => {
                if let Some(connection) = self.pool.connection(token) {
                    connection.request = Some(request);
                }
                self.set_abort_timer(token, io);
            }
            Err(why) => self.fail_to_connect(request, &why, io),
        }
    }
}
