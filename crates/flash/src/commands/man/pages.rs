//! The sections of the man pages that no flag describes.
//!
//! Called by `man` alone. Text only: what stands between backquotes is shown bold.

/// A section of a page.
pub(super) struct Section {
    /// In capitals.
    pub(super) heading: &'static str,
    /// First the paragraphs.
    pub(super) paragraphs: &'static [&'static str],
    /// Then terms with what they mean.
    pub(super) terms: &'static [(&'static str, &'static str)],
    /// Then what is shown as it is.
    pub(super) code: &'static [&'static str],
}

const EMPTY: Section = Section { heading: "", paragraphs: &[], terms: &[], code: &[] };

/// The sections of the page of this command that stand before its options.
pub(super) fn before_options(command: &str) -> &'static [Section] {
    match command {
        "flash" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Flash serves files over HTTP. A request whose answer is in memory never waits for the disk, \
                 whatever the other requests do: each worker process serves what is in memory from one \
                 loop, and leaves what would wait to helper processes.",
            ],
            ..EMPTY
        }],
        "serve" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Serves the files below `DIR`. At start it prints a line with the URL, the number of \
                 workers, and how reads are kept from waiting for the disk. It stays in the foreground.",
            ],
            ..EMPTY
        }],
        "check" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Does all that `flash serve` does to its settings, and no more: reads the config file and \
                 the environment, checks every value, and looks whether directories are there. It takes \
                 the same options.",
            ],
            ..EMPTY
        }],
        "stats" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Shows what the workers of a running server have counted: requests and answers, look-ups in \
                 each cache, events of each dispatch, jobs for helpers, and what its processes are doing. The \
                 sums come first, then each worker. Without `PID` and `--control` it asks the only server \
                 that runs. With `--watch` it shows what came since the last look, again and again: as a \
                 table on a terminal, else a line each time.",
            ],
            ..EMPTY
        }],
        "trace" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Records, by the kernel's perf events, each system call and each switch between threads of a process \
                 and of all that it starts, or of a command that it runs. It prints, for each system call, how \
                 often it was made, how long it was on a core and blocked, what it waited for, and which share of \
                 an event loop's time that took; then the longest waits, with the file or the peer and the ready \
                 connections that were held up. Any program can be traced, not only Flash. What is traced is not \
                 stopped, not even when `flash trace` is killed.",
                "Requests are seen on the network, where HTTP/1 passes in the clear. It needs root, or `CAP_PERFMON`, \
                 `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`; to see requests, `CAP_NET_RAW`.",
            ],
            ..EMPTY
        }],
        "doctor" => &[Section {
            heading: "DESCRIPTION",
            paragraphs: &[
                "Does what `flash trace` does, for ten seconds unless `--duration` says otherwise, and then says in \
                 words whether the server waits for the disk in its event loop: in which calls, for how long, for \
                 which files, and which requests paid for that, or which connections, where no request can be seen. \
                 Threads and processes that are no event loop may wait; they are told of, but do not make the \
                 verdict, unless the server has no event loop at all. The server must have something to do meanwhile.",
                "In place of a process it takes a file that `flash trace --json` wrote, maybe on another machine.",
                "A loop that handles less than a hundredth of the events of the busiest is not judged. It counts as a wait \
                 when a call is blocked for more than 1 ms, or all of them for more than 1 % of the time.",
            ],
            ..EMPTY
        }],
        _ => &[],
    }
}

/// The sections of the page of this command that stand after its options.
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
            "`TIME` is a whole number and a unit: 250ms, 5s, 2m or 1h. `SIZE` is a whole number of bytes, \
             or has a unit: 64KiB, 1MiB, 2GiB, or in powers of ten 10kB, 5MB, 3GB. An IPv6 address stands \
             in brackets: [::1]:8080.",
            "A flag overrides the environment, the environment overrides the config file, and that \
             overrides the default. A list from one source replaces the list from another whole.",
        ],
        ..EMPTY
    },
    Section {
        heading: "SIGNALS",
        paragraphs: &["They are for the process that was started, the supervisor."],
        terms: &[
            (
                "TERM, INT, QUIT",
                "Accept no more connections, finish open requests, end. After `--shutdown-timeout` what \
                 is still open is cut. A second INT ends at once.",
            ),
            (
                "HUP",
                "Load the settings again, with the flags and the environment of the start. Addresses \
                 stay open, new workers start and old ones finish their requests; `--reload-timeout` limits \
                 that. Of more than 4 configurations that do, the oldest is ended. If the settings are \
                 wrong, standard error says why and the old ones hold.",
            ),
            ("USR1", "Open the log file again, after it or its folder was renamed."),
        ],
        ..EMPTY
    },
    Section {
        heading: "FILES",
        paragraphs: &[
            "There is no config file unless `--config` or FLASH_CONFIG names one. It is TOML; its keys \
             are the names of the flags with _ in place of -, and `root` for `DIR`. Relative paths in it \
             start at its own folder. Two things can be set only there: content types, and sites by \
             name, which take `root`, `index`, `browse`, `precompressed` and `encoded_slash` for themselves:",
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
                "Each option has the variable named with it above. Lists are separated by commas, \
                 switches are true or false, an empty variable counts as not set.",
            ),
            ("NO_COLOR", "If set and not empty, errors have no colours."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "Stopped by a signal, after open requests were done or cut."),
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
                "Serve a directory to everybody, with an access log.",
            ),
            ("flash serve --browse --listen 127.0.0.1:0", "List directories, on any free port."),
            ("flash serve --config /etc/flash.toml --workers 2", "Use a config file, but two workers."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-check`(1)"], ..EMPTY },
];

static CHECK: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "The settings can be used."),
            ("1", "They can't; standard error says what is wrong, where, and what to write."),
            ("2", "The command line is wrong."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash check --config /etc/flash.toml", "Check a config file before a reload."),
            ("flash check --print", "Show what holds if nothing is set."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-serve`(1)"], ..EMPTY },
];

static STATS: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "The server has told."),
            ("1", "It could not be asked; standard error says why."),
            ("2", "The command line is wrong, or several servers run and none was named."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash stats", "Show the figures of the only server that runs."),
            ("flash stats --watch=5s", "Show every five seconds what has come."),
            ("flash stats 4711 --json", "All of it for programs, of the server with this process."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-serve`(1)"], ..EMPTY },
];

static TRACE: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        terms: &[
            ("0", "It was traced."),
            ("1", "It could not be; standard error says why."),
            ("2", "The command line is wrong."),
            ("130", "It was interrupted; what was recorded is shown."),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash trace 4711 --html loop.html", "What process 4711 and its children do, with a timeline."),
            ("flash trace --json trace.json -- nginx -g 'daemon off;'", "From the start on, kept for later."),
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
            ("0", "No event loop waited, or there is none and no thread waited for the disk."),
            ("1", "It waits."),
            (
                "2",
                "It could not be told: the command line is wrong, the process cannot be traced, it had nothing to do, or \
                   events were lost.",
            ),
        ],
        ..EMPTY
    },
    Section {
        heading: "EXAMPLES",
        terms: &[
            ("flash doctor $(cat /run/nginx.pid)", "Does this nginx wait for the disk in its event loop?"),
            (
                "flash doctor 4711 --duration 30s --html loop.html",
                "Half a minute, with a timeline of each loop.",
            ),
            ("flash doctor trace.json --json", "The diagnosis of a kept trace, for programs."),
        ],
        ..EMPTY
    },
    Section { heading: "SEE ALSO", paragraphs: &["`flash`(1), `flash-trace`(1), `flash-stats`(1)"], ..EMPTY },
];

static OTHERS: &[Section] = &[Section { heading: "SEE ALSO", paragraphs: &["`flash`(1)"], ..EMPTY }];
