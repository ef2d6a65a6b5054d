/* world_test.c - tests how a process finds out which rank it is, and worlds whose ranks fail. The ranks are children of
 * this process that get the variables of torchrun; each writes the status and the message of what it did to a pipe. */
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks/socket.h"
#include "ranks/start.h"
#include "ranks/world.h"
#include "tests/test.h"

/* ---- variables ------------------------------------------------------------------------------------------------ */

static const char *const *variables; /* name, value, name, value, ..., NULL */

static const char *get(const char *name)
{
    for (const char *const *v = variables; *v; v += 2)
        if (strcmp(v[0], name) == 0) return v[1];
    return NULL;
}

#define WITH(...)                                                                                                      \
    variables = (const char *const[]) { __VA_ARGS__, NULL }

static void the_launcher_is_found_from_variables(void **state)
{
    pb_start s;
    (void)state;
    WITH("HOME", "/");
    CHECK_OK(pb_start_read(get, true, &s));
    assert_true(s.kind == PB_START_ALONE && s.size == 1);
    WITH("OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "3", "WORLD_SIZE", "2");
    CHECK_OK(pb_start_read(get, true, &s));
    assert_true(s.kind == PB_START_MPI && s.size == 4 && pb_start_rank(get) == 3);
    WITH("OMPI_COMM_WORLD_SIZE", "1");
    CHECK_OK(pb_start_read(get, true, &s));
    assert_true(s.kind == PB_START_ALONE);
    WITH("SLURM_STEP_NUM_TASKS", "16", "SLURM_PROCID", "5");
    CHECK_OK(pb_start_read(get, false, &s));
    assert_true(s.kind == PB_START_MPI && s.size == 16 && pb_start_rank(get) == 5);
    WITH("SLURM_NTASKS", "16"); /* of an allocation, not of this step */
    CHECK_OK(pb_start_read(get, false, &s));
    assert_true(s.kind == PB_START_ALONE);
    WITH("RANK", "1", "LOCAL_RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "localhost", "MASTER_PORT", "29500",
         "TORCHELASTIC_USE_AGENT_STORE", "True");
    CHECK_OK(pb_start_read(get, false, &s));
    assert_true(s.kind == PB_START_STORE && s.rank == 1 && s.size == 2 && s.port == 29500 && s.port_is_occupied);
    assert_string_equal(s.address, "localhost");
    WITH("RANK", "0", "WORLD_SIZE", "1");
    CHECK_OK(pb_start_read(get, true, &s));
    assert_true(s.kind == PB_START_ALONE);
}

static void variables_that_cannot_work_are_named(void **state)
{
    pb_start s;
    (void)state;
    WITH("WORLD_SIZE", "2", "RANK", "0");
    CHECK_FAILS(pb_start_read(get, true, &s), PB_EINVAL, "start them with mpirun -np 2");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "LOCAL_RANK is not");
    WITH("WORLD_SIZE", "2");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "RANK is not");
    WITH("WORLD_SIZE", "2", "RANK", "2");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "RANK='2' is not a number from 0 to 1");
    WITH("WORLD_SIZE", "two", "RANK", "0");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "WORLD_SIZE='two'");
    WITH("WORLD_SIZE", "2", "RANK", "0", "LOCAL_RANK", "0", "MASTER_PORT", "70000");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "MASTER_PORT='70000'");
    WITH("WORLD_SIZE", "2", "RANK", "0", "LOCAL_RANK", "0", "MASTER_PORT", "29500");
    CHECK_FAILS(pb_start_read(get, false, &s), PB_EINVAL, "MASTER_ADDR is not");
}

/* ---- ranks as children ---------------------------------------------------------------------------------------- */

enum { MOST = 4 };

typedef struct result {
    int status;
    bool speaks;
    char message[400];
} result;

typedef struct job {
    pid_t pid[MOST];
    int pipe[MOST];
} job;

/* The work of a rank; its status and message are reported. */
typedef pb_status (*role)(int rank, pb_world **w);

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

static void start_rank(job *j, int rank, int claims, int size, int port, role run)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    j->pipe[rank] = ends[0];
    j->pid[rank] = fork();
    assert_true(j->pid[rank] >= 0);
    if (j->pid[rank] > 0) {
        (void)close(ends[1]);
        return;
    }
    pb_world *w = NULL;
    result r = {0};
    set_number("RANK", claims), set_number("LOCAL_RANK", claims), set_number("WORLD_SIZE", size);
    set_number("MASTER_PORT", port);
    (void)setenv("MASTER_ADDR", "127.0.0.1", 1);
    r.status = run(claims, &w);
    r.speaks = pb_world_speaks(w);
    if (r.status != PB_OK) snprintf(r.message, sizeof r.message, "%s", pb_error());
    const bool written = write(ends[1], &r, sizeof r) == (ssize_t)sizeof r;
    pb_world_close(w);
    _exit(!written);
}

/* A rank that wrote nothing has the status -1. */
static result end_rank(job *j, int rank)
{
    result r = {.status = -1};
    (void)!read(j->pipe[rank], &r, sizeof r);
    (void)close(j->pipe[rank]);
    assert_int_equal(waitpid(j->pid[rank], NULL, 0), j->pid[rank]);
    return r;
}

static void run_ranks(int size, role run, result *r)
{
    const int port = free_port();
    job j;
    for (int i = 0; i < size; i++) start_rank(&j, i, i, size, port, run);
    for (int i = 0; i < size; i++) r[i] = end_rank(&j, i);
}

static void check_result(const result *r, pb_status status, const char *says)
{
    if (r->status != (int)status) fail_msg("status %d, want %d: %s", r->status, (int)status, r->message);
    if (!strstr(r->message, says)) fail_msg("'%s' does not say '%s'", r->message, says);
}

static pb_status open_world(double timeout, pb_world **w)
{
    return pb_world_open(&(pb_world_options){.version = "one", .timeout = timeout}, w);
}

/* ---- worlds --------------------------------------------------------------------------------------------------- */

static pb_status work(int rank, pb_world **w)
{
    int mine = 10 * rank, all[MOST] = {0};
    PB_TRY(open_world(60, w));
    PB_TRY(pb_world_gather(*w, "gathering", &mine, sizeof mine, all));
    for (int i = 0; i < MOST; i++)
        if (all[i] != 10 * i) return pb_fail(PB_EWRONG, "rank %d is wrong", i);
    if (pb_world_has_mpi(*w) || pb_world_local_rank(*w) != rank) return pb_fail(PB_EWRONG, "another member");
    const pb_status s = rank == 2 ? pb_fail(PB_ENOMEM, "no memory") : PB_OK;
    return pb_world_agree(*w, "allocating", s);
}

static void ranks_of_torchrun_agree(void **state)
{
    result r[MOST];
    (void)state;
    run_ranks(MOST, work, r);
    for (int i = 0; i < MOST; i++) {
        check_result(&r[i], PB_ENOMEM, "rank 2 on ");
        check_result(&r[i], PB_ENOMEM, ": no memory");
        assert_true(r[i].speaks == (i == 0));
    }
}

static pb_status open_soon(int rank, pb_world **w)
{
    (void)rank;
    return open_world(2, w);
}

/* Rank 2 of 3 never starts. */
static void a_missing_rank_is_named(void **state)
{
    const int port = free_port();
    job j;
    (void)state;
    for (int i = 0; i < 2; i++) start_rank(&j, i, i, 3, port, open_soon);
    for (int i = 0; i < 2; i++) {
        const result r = end_rank(&j, i);
        check_result(&r, PB_EIO, "1 of 3 ranks did not connect to rank 0 on ");
        check_result(&r, PB_EIO, "within 2 s: rank 2");
        assert_true(r.speaks == (i == 0));
    }
}

static void a_missing_rank_0_is_named(void **state)
{
    job j;
    (void)state;
    start_rank(&j, 1, 1, 2, free_port(), open_soon);
    const result r = end_rank(&j, 1);
    check_result(&r, PB_EIO, "found no rank 0 at 127.0.0.1");
    assert_true(r.speaks);
}

static pb_status open_with_few_files(int rank, pb_world **w)
{
    const struct rlimit few = {80, 80};
    (void)rank;
    return setrlimit(RLIMIT_NOFILE, &few) == 0 ? open_world(2, w) : pb_fail(PB_EWRONG, "setrlimit");
}

static void more_ranks_than_open_files_are_refused(void **state)
{
    job j;
    (void)state;
    start_rank(&j, 0, 0, 100, free_port(), open_with_few_files);
    const result r = end_rank(&j, 0);
    check_result(&r, PB_EIO, "to connect 100 ranks, 164 files must be open at once, and 80 are allowed (ulimit -Hn)");
}

/* A process that sends back what it gets is not taken for rank 0. */
static void a_peer_that_echoes_is_not_rank_0(void **state)
{
    int port = 0;
    const int listener = pb_socket_listen(0, &port);
    const double deadline = pb_seconds() + 20;
    char bytes[32]; /* a reply has fewer */
    job j;
    (void)state;
    assert_true(listener >= 0);
    start_rank(&j, 1, 1, 2, port, open_soon);
    const int fd = pb_socket_accept(listener, deadline);
    assert_true(fd >= 0);
    assert_int_equal(pb_socket_receive(fd, bytes, sizeof bytes, deadline), PB_IO_OK);
    assert_int_equal(pb_socket_send(fd, bytes, sizeof bytes, deadline), PB_IO_OK);
    const result r = end_rank(&j, 1);
    check_result(&r, PB_EIO, "sent something other than a reply");
    (void)close(fd), (void)close(listener);
}

/* A socket that is bound to a port and connects to this port is connected to itself. The kernel may choose such a port. */
static void a_socket_connected_to_itself_is_closed(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int bound = 0;
    (void)state;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(pb_socket_use(fd), -1);
    const int listener = pb_socket_listen(ntohs(at.sin_port), &bound); /* rank 0 can have the port at once */
    assert_true(listener >= 0);
    const int other = pb_socket_connect("127.0.0.1", bound, pb_seconds() + 20);
    assert_true(other >= 0);
    (void)close(other), (void)close(listener);
}

static pb_status open_late(int rank, pb_world **w)
{
    (void)rank;
    return open_world(20, w);
}

static void two_processes_with_one_rank_are_refused(void **state)
{
    const int port = free_port();
    job j;
    (void)state;
    for (int i = 0; i < 3; i++) start_rank(&j, i, i ? 1 : 0, 3, port, open_late);
    for (int i = 0; i < 3; i++) {
        const result r = end_rank(&j, i);
        check_result(&r, PB_EINVAL, "two processes say that they are rank 1");
    }
}

static void jobs_of_different_size_are_refused(void **state)
{
    const int port = free_port();
    job j;
    (void)state;
    for (int i = 0; i < 2; i++) start_rank(&j, i, i, 2 + i, port, open_late);
    for (int i = 0; i < 2; i++) {
        const result r = end_rank(&j, i);
        check_result(&r, PB_EINVAL, "was started as one of 3 ranks, rank 0 on ");
    }
}

static pb_status leave(int rank, pb_world **w)
{
    PB_TRY(open_world(60, w));
    if (rank == 1) _exit(0);
    return pb_world_barrier(*w, "step 7");
}

static void a_rank_that_ended_is_named_at_once(void **state)
{
    result r[3];
    (void)state;
    run_ranks(3, leave, r);
    assert_int_equal(r[1].status, -1);
    for (int i = 0; i < 3; i += 2) {
        check_result(&r[i], PB_EIO, "step 7: rank 1 on ");
        check_result(&r[i], PB_EIO, " has ended");
    }
}

static pb_status lose_rank_0(int rank, pb_world **w)
{
    PB_TRY(open_world(60, w));
    if (rank == 0) _exit(0);
    const pb_status s = pb_world_barrier(*w, "step 8");
    return s == PB_OK ? s : pb_world_barrier(*w, "step 9"); /* a broken world stays broken */
}

static void a_lost_rank_0_is_named_by_the_others(void **state)
{
    result r[2];
    (void)state;
    run_ranks(2, lose_rank_0, r);
    check_result(&r[1], PB_EIO, "step 8: rank 0 on ");
    assert_true(r[1].speaks);
}

static pb_status be_late(int rank, pb_world **w)
{
    PB_TRY(open_world(2, w));
    if (rank == 1) (void)sleep(5);
    return pb_world_barrier(*w, "saving");
}

static void a_late_rank_is_named(void **state)
{
    result r[3];
    (void)state;
    run_ranks(3, be_late, r);
    check_result(&r[0], PB_EIO, "saving: rank 1 on ");
    check_result(&r[2], PB_EIO, "did not arrive within 2 s");
    check_result(&r[1], PB_EIO, "saving: rank ");
}

static pb_status differ(int rank, pb_world **w)
{
    char byte[2] = {0};
    PB_TRY(open_world(20, w));
    return rank ? pb_world_broadcast(*w, "sending", 0, byte, 2) : pb_world_barrier(*w, "waiting");
}

static void ranks_at_different_places_are_refused(void **state)
{
    result r[2];
    (void)state;
    run_ranks(2, differ, r);
    for (int i = 0; i < 2; i++)
        check_result(&r[i], PB_EINVAL, "is at 'sending' with 2 bytes, rank 0 at 'waiting' with 0");
}

/* Something else than a rank connects and is dismissed. */
static void strangers_are_dismissed(void **state)
{
    const int port = free_port();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char hello[400];
    job j;
    (void)state;
    at.sin_port = htons((uint16_t)port);
    memset(hello, 'x', sizeof hello);
    start_rank(&j, 0, 0, 2, port, open_late);
    int fd = -1;
    for (int i = 0; i < 1000 && fd < 0; i++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) break;
        (void)close(fd), fd = -1;
        (void)usleep(10000);
    }
    assert_true(fd >= 0 && send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
    start_rank(&j, 1, 1, 2, port, open_late);
    for (int i = 0; i < 2; i++) {
        const result r = end_rank(&j, i);
        check_result(&r, PB_OK, "");
    }
    (void)close(fd);
}

static void one_rank_needs_no_world(void **state)
{
    const int mine = 5;
    int all = 0;
    pb_world *w = (pb_world *)&all;
    (void)state;
    CHECK_OK(pb_world_open(&(pb_world_options){.version = "one", .mpi = true}, &w));
    assert_null(w);
    assert_true(pb_world_rank(w) == 0 && pb_world_size(w) == 1 && pb_world_speaks(w) && pb_world_local_rank(w) == 0);
    assert_true(pb_world_member_of(w, 0)->host[0] && pb_world_member_of(w, 0)->local_size == 1);
    CHECK_OK(pb_world_gather(w, "gathering", &mine, sizeof mine, &all));
    assert_int_equal(all, 5);
    CHECK_OK(pb_world_broadcast(w, "sending", 0, &all, sizeof all));
    CHECK_FAILS(pb_world_broadcast(w, "sending", 1, &all, sizeof all), PB_EINVAL, "rank 1 does not exist");
    CHECK_OK(pb_world_barrier(w, "waiting"));
    CHECK_OK(pb_world_same(w, "x", "y"));
    CHECK_OK(pb_world_check_devices(w, "bus"));
    CHECK_FAILS(pb_world_agree(w, "working", pb_fail(PB_EIO, "as it was")), PB_EIO, "as it was");
    pb_world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launcher_is_found_from_variables),
        cmocka_unit_test(variables_that_cannot_work_are_named),
        cmocka_unit_test(one_rank_needs_no_world),
        cmocka_unit_test(ranks_of_torchrun_agree),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(more_ranks_than_open_files_are_refused),
        cmocka_unit_test(a_peer_that_echoes_is_not_rank_0),
        cmocka_unit_test(a_socket_connected_to_itself_is_closed),
        cmocka_unit_test(two_processes_with_one_rank_are_refused),
        cmocka_unit_test(jobs_of_different_size_are_refused),
        cmocka_unit_test(a_rank_that_ended_is_named_at_once),
        cmocka_unit_test(a_lost_rank_0_is_named_by_the_others),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(ranks_at_different_places_are_refused),
        cmocka_unit_test(strangers_are_dismissed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
