/*
 * Runs the client's tests: check VECTORS PYTHON FAKE_BACKEND SCRATCH_DIR.
 * The tests leave no descriptor open.
 */

#define _GNU_SOURCE

#include "check.h"

#include <stdio.h>
#include <sys/stat.h>


int
main(int argc, char **argv)
{
    size_t  before;

    if (argc != 5) {
        fprintf(stderr, "usage: %s VECTORS PYTHON FAKE_BACKEND SCRATCH_DIR\n",
                argv[0]);
        return 2;
    }

    scratch_dir = argv[4];
    before = count_descriptors();

    test_vectors(argv[1]);
    test_wire();
    test_backend(argv[2], argv[3]);
    test_residency();
    test_machine();

    CHECK_EQ(count_descriptors(), before);
    printf("descriptors: %zu, as before\n", before);

    return 0;
}
