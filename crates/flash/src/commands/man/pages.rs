//! The sections of the man pages that are not made from the options.
//!
//! Called by `man` alone. Holds text only; text in backquotes is shown bold.

/// A section of a page.
pub(super) struct Section {
    /// Written in capitals.
    pub(super) heading: &'static str,
    /// Paragraphs, which come first.
    pub(super) paragraphs: &'static [&'static str],
    /// Terms with their meanings, which come second.
    pub(super) terms: &'static [(&'static str, &'static str)],
    /// Text that is shown verbatim, at the end.
    pub(super) code: &'static [&'static str],
}

const EMPTY: Section = Section { heading: "", paragraphs: &[], terms: &[], code: &[] };

/// The sections that come before the options on the page of `command`.
pub(super) fn before_options(command: &str) -> &'static [Section] {
    match command {
        "flash" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Flash serves files over HTTP. A request whose answer is in memory never waits for the disk, \
                 whatever the other requests do: each worker process serves data in memory from one event \
                 loop, and passes work that may block to helper processes.",
            ],
            ..EMPTY
        }],
        "serve" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Serves the files below `DIR`, and passes the requests of routes to applications (`flash.toml`(5)). At startup it prints one line with the URL, the number of \
                 workers, and how reads avoid waiting for the disk. It stays in the foreground.",
            ],
            ..EMPTY
        }],
        "check" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Checks the settings as `flash serve` does, and starts nothing: reads the config file and \
                 the environment, checks every value, and checks that directories exist. It takes the options \
                 of `flash serve`.",
            ],
            ..EMPTY
        }],
        "stats" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Shows the counters of a running server: requests and answers, look-ups in each cache, events \
                 per dispatch, jobs for helpers, and the state of its processes. The sums come first, then each \
                 worker. Without `PID` and `--control` it asks the only running server. With `--watch` it \
                 repeats and shows the changes: as a table on a terminal, else as one line each time.",
            ],
            ..EMPTY
        }],
        "trace" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Records every system call and context switch of a process and its descendants, or of a command that it \
                 starts, with perf events of the kernel. For each system call it prints the number of calls, the \
                 time on a core and blocked, the cause of the wait, and its share of an event loop's time; then the \
                 longest waits, with the file or peer and the ready connections that each delayed. It can trace any \
                 program, not only Flash. It never stops the traced process, even if `flash trace` is killed.",
                "Requests are seen on the network, if they are unencrypted HTTP/1. Tracing needs root, or `CAP_PERFMON`, \
                 `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`, and `CAP_NET_RAW` to see requests.",
            ],
            ..EMPTY
        }],
        "doctor" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Traces a server as `flash trace` does, and then reports whether its requests wait for each other. It \
                 blames a call that blocks an event loop only if requests of other connections waited behind it, and \
                 names the call, its duration, its file and these requests (connections, if no request could be \
                 seen). It blames a thread pool, or a pool of processes, if all its threads waited for the disk while \
                 more requests waited for an answer, and says how to enlarge it. A thread or process that serves one \
                 connection at a time may wait. The server must be under load while it is watched.",
                "Instead of a process it takes a file that `flash trace --json` wrote, also on another machine.",
                "A request counts as delayed if calls for other connections blocked its event loop for more than 1 ms and \
                 for at least a tenth of its wait; 1 % of the requests must be delayed. A loop that handles less than a \
                 hundredth of the events of the busiest loop is not judged unless the disk blocks it.",
            ],
            ..EMPTY
        }],
        _ => &[],
    }
}

/// The sections that come after the options on the page of `command`.
pub(super) fn after_options(command: &str) -> &'static [Section] {
    match command {
        "flash" => PROGRAM,
        "serve" => SERVE,
        "check" => CHECK,
        "stats" => STATS,
        "trace" => TRACE,
        "doctor" => DOCTOR,
        _ => OTHERS,
    }
}

const SEE_SERVE: Section =
    Section { heading: "SEE ALSO", paragraphs: &["`flash-serve`(1), `flash-check`(1)"], ..EMPTY };

static PROGRAM: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "Success."),
            ("1", "The command failed; standard error says why."),
            ("2", "The command line is wrong."),
        ],
        ..EMPTY
    },
    SEE_SERVE,
];

static SERVE: &[Section] = &[
    Section {
        heading: "VALUES",
        paragraphs: &[
            "`TIME` is a number and a unit: 250ms, 1.5s, 2m, 1h or 1d. `SIZE` is a number of bytes, or has a \
             unit: 64KiB, 512M (512MiB), 1.5GiB, or in powers of ten 10kB, 3GB. Write an IPv6 address in \
             brackets: [::1]:8080.",
            "A flag overrides the environment, the environment overrides the config file, and the file \
             overrides the default. A list replaces the whole list of a weaker source.",
        ],
        ..EMPTY
    },
    Section {
        heading: "SIGNALS",
        paragraphs: &["Send signals to the supervisor, which is the process that was started."],
        terms: &[
            (
                "TERM, INT, QUIT",
                "Accept no more connections, finish open requests, and exit. After `--shutdown-timeout`, \
                 close the connections that are still open. A second INT exits at once.",
            ),
            (
                "HUP",
                "Reload the settings, with the flags and the environment of the start. Addresses stay open, \
                 new workers start, and old ones finish their requests within `--reload-timeout`. At most 4 old \
                 configurations drain at once; one more ends the oldest. If the settings are wrong, standard \
                 error says why and the old settings stay in force.",
            ),
            ("USR1", "Reopen the log file, after it or its folder was renamed."),
        ],
        ..EMPTY
    },
    Section {
        heading: "FILES",
        paragraphs: &[
            "Flash reads a config file only if `--config` or FLASH_CONFIG names one. It is TOML; its keys \
             are the names of the flags with _ instead of -, and `root` for `DIR`. Relative paths in it \
             start at its folder. Only the file can set content types, named sites, and routes to \
             applications. `flash.toml`(5) describes every key:",
        ],
        code: &["root = \"/srv/www\"\n\
                 freshness = \"2s\"\n\
                 \n\
                 [types]\n\
                 webmanifest = \"application/manifest+json\"\n\
                 \n\
                 [[site]]\n\
                 hosts = [\"files.example.org\", \"*.files.example.org\"]\n\
                 root = \"/srv/files\"\n\
                 browse = true"],
        ..EMPTY
    },
    Section {
        heading: "ENVIRONMENT",
        terms: &[
            (
                "FLASH_*",
                "Each option can be set by the variable FLASH_ and its name in capitals with _ instead of -: \
                 `--cache-memory` by FLASH_CACHE_MEMORY, `DIR` by FLASH_ROOT. Separate the values of a list by \
                 commas; a switch is true or false; an empty variable counts as not set.",
            ),
            ("NO_COLOR", "If set and not empty, errors are printed without colours."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "Stopped by a signal, after open requests finished or were cut."),
            ("1", "The settings are wrong, an address can't be used, or the system refused something."),
            ("2", "The command line is wrong."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash serve", "Serve the current directory on http://127.0.0.1:8080/."),
            (
                "flash serve /srv/www --listen 0.0.0.0:80 --listen [::]:80 --log-file /var/log/flash.log",
                "Serve a directory on all addresses, with an access log.",
            ),
            ("flash serve --browse --listen 127.0.0.1:0", "Serve with directory listings, on any free port."),
            (
                "flash serve --config /etc/flash.toml --workers 2",
                "Use a config file, but override the number of workers.",
            ),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-check`(1), `flash.toml`(5)"], ..EMPTY },
];

static CHECK: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "The settings are valid."),
            ("1", "They are not; standard error shows each error, its place and a fix."),
            ("2", "The command line is wrong."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash check --config /etc/flash.toml", "Check a config file before a reload."),
            ("flash check --print", "Print the default settings."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-serve`(1)"], ..EMPTY },
];

static STATS: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "The server answered."),
            ("1", "The server could not be reached; standard error says why."),
            ("2", "The command line is wrong, or several servers run and none was named."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash stats", "Show the counters of the only running server."),
            ("flash stats --watch=5s", "Show the changes every five seconds."),
            ("flash stats 4711 --json", "Print the counters of the server with process ID 4711 as JSON."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-serve`(1)"], ..EMPTY },
];

static TRACE: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "The trace is complete."),
            ("1", "The process could not be traced; standard error says why."),
            ("2", "The command line is wrong."),
            ("130", "Interrupted; the events so far are shown."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            (
                "flash trace 4711 --html loop.html",
                "Trace process 4711 and its descendants, and write a timeline.",
            ),
            (
                "flash trace --json trace.json -- nginx -g 'daemon off;'",
                "Trace nginx from its start, and keep the trace.",
            ),
        ],
        ..EMPTY
    },
    Section {
        heading: "SEE ALSO",
        paragraphs: &["`flash`(1), `flash-doctor`(1), perf-trace(1), strace(1)"],
        ..EMPTY
    },
];

static DOCTOR: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "No request waited behind another one, or too few to count."),
            ("1", "A blocked event loop or an exhausted thread pool makes requests wait."),
            (
                "2",
                "No verdict: the command line is wrong, the process cannot be traced, it was idle, or events were \
                   lost.",
            ),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash doctor $(cat /run/nginx.pid)", "Check whether requests to nginx wait for each other."),
            (
                "flash doctor 4711 --duration 30s --html loop.html",
                "Watch for 30 s, and write a timeline of each event loop.",
            ),
            ("flash doctor trace.json --json", "Print the diagnosis of a kept trace as JSON."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-trace`(1), `flash-stats`(1)"], ..EMPTY },
];

static OTHERS: &[Section] = &[Section { heading: "SEE ALSO", paragraphs: &["`flash`(1)"], ..EMPTY }];
