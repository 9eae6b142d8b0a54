/*
 * The frame of the client's tests: checks, skips, child processes.  A failed
 * check prints the place and ends the process; a skip prints its reason.
 */

#ifndef FLASH_CHECK_H
#define FLASH_CHECK_H

#include <stddef.h>
#include <stdint.h>

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            check_failed(__FILE__, __LINE__, #condition);                     \
        }                                                                     \
    } while (0)

/* Compares two numbers and prints both if they differ. */
#define CHECK_EQ(got, expected)                                               \
    check_equal(__FILE__, __LINE__, #got, (int64_t) (got), (int64_t) (expected))

void check_failed(const char *file, int line, const char *condition);
void check_equal(const char *file, int line, const char *text, int64_t got,
    int64_t expected);

/* Prints "skip: reason"; the test returns at once after it. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Runs `body` in a child process, for tests that change their user, mounts or
 * system calls.  A failed check there fails the parent too.
 */
void in_child(void (*body)(void));

/* Files are made in this directory; the command line names it. */
extern const char *scratch_dir;

/* `name` in the scratch directory; a buffer of the caller's. */
#define PATH_ROOM  512
const char *scratch(char room[PATH_ROOM], const char *name);

/* Writes a file of this many bytes, on the disk when it returns. */
void write_file(const char *path, size_t bytes);

/* A descriptor, open for reading and prepared with flash_prepare(). */
int open_prepared(const char *path);

/* Open descriptors of this process. */
size_t count_descriptors(void);

/* The tests, by file. */
void test_vectors(const char *path);
void test_wire(void);
void test_backend(const char *python, const char *script);
void test_residency(void);
void test_machine(void);


#endif /* FLASH_CHECK_H */
