/*
 * The client against tests/fake_backend.py: every status of HELLO, every
 * reply, and a backend that is slow, silent, wrong or gone.
 */

#define _GNU_SOURCE

#include "check.h"
#include "flash_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>


/* Longer than any reply takes; no test waits for it to pass. */
#define LONG_MS  60000


typedef struct {
    pid_t  process;
    char   socket[PATH_ROOM];
    char   log[PATH_ROOM];
} fake_t;


static void test_welcome(void);
static void test_refusals(void);
static void test_silent_hello(void);
static void test_replies(void);
static void test_failures(void);
static void fake_start(fake_t *fake, const char *option, const char *value);
static void fake_stop(fake_t *fake);
static int connect_welcome(const fake_t *fake);
static int next_reply(int connection, flash_reply_t *reply);
static int log_has(const fake_t *fake, const char *line);
static flash_request_t name_request(uint32_t id);


static const char           *python, *script;
static const flash_hello_t   hello = { "test", 77, 5 };


void
test_backend(const char *interpreter, const char *path)
{
    python = interpreter;
    script = path;

    test_welcome();
    test_refusals();
    test_silent_hello();
    test_replies();
    test_failures();
    printf("backend: ok\n");
}


static void
test_welcome(void)
{
    int              connection, file;
    fake_t           fake;
    flash_reply_t    reply;
    flash_request_t  request;

    fake_start(&fake, "--hello", "ok");
    connection = connect_welcome(&fake);
    request = name_request(11);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);
    CHECK(reply.kind == FLASH_READY && reply.id == 11);

    file = open(script, O_RDONLY|O_CLOEXEC);
    CHECK(file != -1);
    request.id = 12;
    request.path = NULL;
    request.fd = file;
    request.offset = 4096;
    request.length = 1000;
    request.remaining = 2000;
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);
    CHECK(reply.kind == FLASH_READY && reply.id == 12);

    CHECK_EQ(flash_send_close(connection, file), 0);
    CHECK_EQ(flash_send_cancel(connection, 12), 0);

    /* The backend has seen all before it answers once more. */

    request = name_request(13);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);

    CHECK(log_has(&fake, "HELLO 1 5 77 test\n"));
    CHECK(log_has(&fake, "WARM_NAME 11 5000 /srv/a b\n"));
    CHECK(log_has(&fake, "WARM_RANGE 12 5000 4096 1000 2000\n"));
    CHECK(log_has(&fake, "CLOSE 0\n"));
    CHECK(log_has(&fake, "CANCEL 12\n"));

    CHECK(close(file) == 0 && close(connection) == 0);
    fake_stop(&fake);
}


static void
test_refusals(void)
{
    int            connection;
    size_t         i;
    fake_t         fake;
    flash_reply_t  reply;

    static const struct {
        const char  *option;
        uint32_t     status;
        uint32_t     version;
    } cases[] = {
        { "2", FLASH_BAD_VERSION, 2 },
        { "user", FLASH_BAD_USER, 1 },
        { "room", FLASH_NO_ROOM, 1 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake_start(&fake, "--hello", cases[i].option);
        connection = flash_connect(fake.socket, &hello);
        CHECK(connection != -1);

        CHECK_EQ(next_reply(connection, &reply), 1);
        CHECK_EQ(reply.kind, FLASH_HELLO_REPLY);
        CHECK_EQ(reply.status, cases[i].status);
        CHECK_EQ(reply.value, cases[i].version);
        CHECK_EQ(next_reply(connection, &reply), -1);
        CHECK_EQ(errno, 0);

        CHECK(close(connection) == 0);
        fake_stop(&fake);
    }
}


static void
test_silent_hello(void)
{
    int            connection;
    fake_t         fake;
    flash_reply_t  reply;

    fake_start(&fake, "--hello", "silent");
    connection = flash_connect(fake.socket, &hello);
    CHECK(connection != -1);
    CHECK_EQ(flash_receive(connection, &reply), 0);
    CHECK(close(connection) == 0);
    fake_stop(&fake);
}


static void
test_replies(void)
{
    int              connection;
    fake_t           fake;
    flash_reply_t    reply;
    flash_request_t  request;

    request = name_request(21);

    fake_start(&fake, "--answer", "busy");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);
    CHECK(reply.kind == FLASH_BUSY && reply.id == 21 && reply.value == 1500);
    CHECK(close(connection) == 0);
    fake_stop(&fake);

    fake_start(&fake, "--answer", "errno=110");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);
    CHECK(reply.kind == FLASH_ERRNO && reply.value == ETIMEDOUT);
    CHECK(close(connection) == 0);
    fake_stop(&fake);

    /* Slow: one wait is too short, its reply is dropped by the next one. */

    fake_start(&fake, "--delay-ms", "300");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, 1, &reply), 0);
    request.id = 22;
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), 1);
    CHECK(reply.kind == FLASH_READY && reply.id == 22);
    CHECK(close(connection) == 0);
    fake_stop(&fake);

    fake_start(&fake, "--answer", "silent");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, 100, &reply), 0);
    CHECK(close(connection) == 0);
    fake_stop(&fake);
}


static void
test_failures(void)
{
    int              connection;
    fake_t           fake;
    flash_reply_t    reply;
    flash_request_t  request;

    request = name_request(31);

    fake_start(&fake, "--answer", "garbage");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), -1);
    CHECK_EQ(errno, EPROTO);
    CHECK(close(connection) == 0);
    fake_stop(&fake);

    fake_start(&fake, "--answer", "close");
    connection = connect_welcome(&fake);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), -1);
    CHECK(errno == 0 || errno == ECONNRESET);
    CHECK(close(connection) == 0);
    fake_stop(&fake);

    /* Killed: an idle client learns it from its next call. */

    fake_start(&fake, "--answer", "ready");
    connection = connect_welcome(&fake);
    fake_stop(&fake);
    CHECK_EQ(flash_ask(connection, &request, LONG_MS, &reply), -1);
    CHECK(errno == EPIPE || errno == ECONNRESET);
    CHECK(close(connection) == 0);
}


static flash_request_t
name_request(uint32_t id)
{
    flash_request_t  request;

    memset(&request, 0, sizeof(request));
    request.id = id;
    request.deadline_ms = 5000;
    request.path = "/srv/a b";
    request.path_len = 8;
    request.fd = -1;

    return request;
}


static void
fake_start(fake_t *fake, const char *option, const char *value)
{
    int     out[2];
    char    line[16];
    size_t  length;

    (void) scratch(fake->socket, "fake.sock");
    (void) scratch(fake->log, "fake.log");
    (void) unlink(fake->log);

    CHECK(pipe2(out, O_CLOEXEC) == 0);
    fake->process = fork();
    CHECK(fake->process != -1);

    if (fake->process == 0) {
        /* A failed check ends this process, and the backend with it. */

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) dup2(out[1], STDOUT_FILENO);
        execlp(python, python, script, fake->socket, "--log", fake->log,
               option, value, (char *) NULL);
        _exit(127);
    }

    /* "ready" when it listens, the end of the pipe when it has failed. */

    CHECK(close(out[1]) == 0);

    for (length = 0; length < sizeof(line); length++) {
        CHECK(read(out[0], &line[length], 1) == 1);

        if (line[length] == '\n') {
            break;
        }
    }

    CHECK(length == 5 && memcmp(line, "ready", 5) == 0);
    CHECK(close(out[0]) == 0);
}


static void
fake_stop(fake_t *fake)
{
    int  status;

    CHECK(kill(fake->process, SIGKILL) == 0);
    CHECK(waitpid(fake->process, &status, 0) == fake->process);
    CHECK(unlink(fake->socket) == 0);
}


static int
connect_welcome(const fake_t *fake)
{
    int            connection;
    flash_reply_t  reply;

    connection = flash_connect(fake->socket, &hello);
    CHECK(connection != -1);
    CHECK_EQ(next_reply(connection, &reply), 1);
    CHECK_EQ(reply.kind, FLASH_HELLO_REPLY);
    CHECK_EQ(reply.status, FLASH_WELCOME);
    CHECK_EQ(reply.value, FLASH_VERSION);

    return connection;
}


static int
next_reply(int connection, flash_reply_t *reply)
{
    struct pollfd  event;

    event.fd = connection;
    event.events = POLLIN;
    CHECK_EQ(poll(&event, 1, LONG_MS), 1);

    return flash_receive(connection, reply);
}


static int
log_has(const fake_t *fake, const char *line)
{
    int     found;
    char    read_line[256];
    FILE   *log;

    log = fopen(fake->log, "re");
    CHECK(log != NULL);

    for (found = 0; !found && fgets(read_line, sizeof(read_line), log); ) {
        found = strcmp(read_line, line) == 0;
    }

    fclose(log);

    return found;
}
