//! What a worker has counted, in the form that it has outside: in the message to the supervisor and in
//! the answer to a client.

use flash_engine::JobKind;

use super::calls::Calls;
use super::figures::{Figures, Gauge, Histogram, figures};

figures! {
    /// What a worker, or several together, have counted since their start.
    Counters {
        /// Requests begun.
        requests: u64,
        /// Answers.
        responses: Responses,
        /// Connections of clients.
        connections: Connections,
        /// Look-ups in the caches.
        caches: Caches,
        /// Response heads made for an answer; all others were kept.
        heads_made: u64,
        /// Jobs for helpers, by what they do.
        jobs: Jobs,
        /// The queue of jobs.
        queue: Queue,
        /// The processes or threads that do them.
        helpers: Helpers,
        /// Parts of files that were loaded, and were gone again when they were to be sent.
        loads_in_vain: u64,
        /// Panics caught.
        panics: u64,
        /// Events of each dispatch.
        dispatches: Histogram,
        /// Bytes of each send to a client.
        sends: Histogram,
        /// The time of each call of the loop that could wait.
        calls: Calls,
    }
}

figures! {
    /// Answers, by their status.
    Responses {
        /// Status 200 to 299.
        #[serde(rename = "2xx")]
        of_2xx: u64,
        /// Status 300 to 399.
        #[serde(rename = "3xx")]
        of_3xx: u64,
        /// Status 400 to 499.
        #[serde(rename = "4xx")]
        of_4xx: u64,
        /// Status 500 to 599.
        #[serde(rename = "5xx")]
        of_5xx: u64,
        /// Those among them of which only a part was sent.
        cut: u64,
    }
}

figures! {
    /// Connections of clients.
    Connections {
        /// Open now.
        open: Gauge,
        /// The most that were open at once; of several workers, the sum of theirs.
        most: Gauge,
        /// Accepted.
        accepted: u64,
        /// Refused at a limit.
        refused: u64,
        /// Closed, being idle, to make room for another.
        evicted: u64,
    }
}

figures! {
    /// Look-ups in each cache.
    Caches {
        /// Request heads known by their bytes.
        known: Known,
        /// What paths lead to.
        names: Names,
        /// Contents of small files, with their response heads.
        contents: Contents,
        /// Files kept open.
        files: Names,
    }
}

figures! {
    /// Look-ups of request heads.
    Known {
        /// Look-ups.
        lookups: u64,
        /// Those that found it.
        hits: u64,
    }
}

figures! {
    /// Look-ups in a cache of which the entries are counted.
    Names {
        /// Look-ups.
        lookups: u64,
        /// Those that found it.
        hits: u64,
        /// Entries now.
        entries: Gauge,
    }
}

figures! {
    /// Look-ups in a cache of which the bytes are counted.
    Contents {
        /// Look-ups.
        lookups: u64,
        /// Those that found it.
        hits: u64,
        /// Bytes now.
        bytes: Gauge,
    }
}

figures! {
    /// Jobs by what they do.
    Jobs {
        /// Find what a path leads to.
        find: Job,
        /// List a directory.
        list: Job,
        /// Bring a part of a file into memory.
        load: Job,
        /// Hand a part of a file over.
        read: Job,
        /// Close a deleted file.
        close: Job,
    }
}

figures! {
    /// What became of jobs of a kind.
    Job {
        /// Handed to helpers.
        started: u64,
        /// Requests refused because the queue was full.
        refused: u64,
        /// Without a result.
        lost: u64,
    }
}

figures! {
    /// The queue of jobs.
    Queue {
        /// Waiting now.
        now: Gauge,
        /// Waiting whenever one was added, that one included.
        lengths: Histogram,
    }
}

figures! {
    /// The processes or threads that do jobs.
    Helpers {
        /// There now.
        now: Gauge,
        /// At work now.
        busy: Gauge,
        /// Given up and not gone yet.
        given_up: Gauge,
    }
}

impl Counters {
    /// Those of an engine, how many helpers it has and how many of them are at work, and its calls.
    #[must_use]
    pub fn of(engine: &flash_engine::Counters, (helpers, busy): (usize, usize), calls: Calls) -> Self {
        let gauge = |number: usize| Gauge(number as u64);
        let [_, of_2xx, of_3xx, of_4xx, of_5xx] = engine.responses;
        let job = |kind: JobKind| {
            let flash_engine::JobCounters { started, refused, lost } = engine.jobs[kind as usize];
            Job { started, refused, lost }
        };
        Self {
            requests: engine.requests,
            responses: Responses { of_2xx, of_3xx, of_4xx, of_5xx, cut: engine.responses_cut },
            connections: Connections {
                open: gauge(engine.connections),
                most: gauge(engine.connections_most),
                accepted: engine.accepted,
                refused: engine.refused,
                evicted: engine.evicted,
            },
            caches: Caches {
                known: Known { lookups: engine.known_hits + engine.known_misses, hits: engine.known_hits },
                names: Names {
                    lookups: engine.name_hits + engine.name_misses,
                    hits: engine.name_hits,
                    entries: gauge(engine.names),
                },
                contents: Contents {
                    lookups: engine.content_hits + engine.content_misses,
                    hits: engine.content_hits,
                    bytes: Gauge(engine.content_bytes),
                },
                files: Names {
                    lookups: engine.file_hits + engine.file_misses,
                    hits: engine.file_hits,
                    entries: gauge(engine.files),
                },
            },
            heads_made: engine.heads_made,
            jobs: Jobs {
                find: job(JobKind::Find),
                list: job(JobKind::List),
                load: job(JobKind::Load),
                read: job(JobKind::Read),
                close: job(JobKind::Close),
            },
            queue: Queue { now: gauge(engine.jobs_queued), lengths: Histogram(engine.queue_lengths) },
            helpers: Helpers {
                now: gauge(helpers),
                busy: gauge(busy),
                given_up: gauge(engine.jobs_given_up),
            },
            loads_in_vain: engine.loads_in_vain,
            panics: engine.panics,
            dispatches: Histogram(engine.dispatches),
            sends: Histogram(engine.sends),
            calls,
        }
    }

    /// As JSON, for the supervisor.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers in structs always have a form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Adds what another worker has counted.
    pub fn merge(&mut self, other: &Counters) {
        Figures::add(self, other);
    }

    /// What was counted since `before`; of what there is, what there is now.
    #[must_use]
    pub fn after(&self, before: &Counters) -> Self {
        Figures::since(self, before)
    }

    /// Bytes sent to clients.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.sends.0.sum()
    }
}
