/* start.c - the environment variables of mpirun, srun and torchrun. */
#include "ranks/start.h"

#include <stdlib.h>

static pb_status number(const char *(*get)(const char *), const char *name, long least, long most, int *out)
{
    const char *text = get(name);
    char *end = NULL;
    if (!text || !*text)
        return pb_fail(PB_EINVAL,
                       "WORLD_SIZE is set, but %s is not: set RANK, WORLD_SIZE, LOCAL_RANK, "
                       "MASTER_ADDR and MASTER_PORT, as torchrun does",
                       name);
    const long value = strtol(text, &end, 10);
    if (*end || value < least || value > most)
        return pb_fail(PB_EINVAL, "%s='%s' is not a number from %ld to %ld", name, text, least, most);
    *out = (int)value;
    return PB_OK;
}

enum { RANKS_MOST = 1 << 20 };

/* The number of ranks in a variable of a launcher; 0 if the variable is not set or no number. */
static int ranks_in(const char *(*get)(const char *), const char *name)
{
    const char *text = get(name);
    const long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n <= RANKS_MOST ? (int)n : 0;
}

static pb_status read_store(const char *(*get)(const char *), bool mpi, pb_start *out)
{
    int local;
    pb_start s = {.kind = PB_START_STORE, .by = "WORLD_SIZE"};
    PB_TRY(number(get, "WORLD_SIZE", 1, RANKS_MOST, &s.size));
    if (s.size == 1) return PB_OK;
    if (mpi)
        return pb_fail(PB_EINVAL,
                       "WORLD_SIZE=%d alone cannot start ranks on the CPU: they communicate over MPI; start "
                       "them with mpirun -np %d, or with --ranks %d",
                       s.size, s.size, s.size);
    PB_TRY(number(get, "RANK", 0, s.size - 1, &s.rank));
    PB_TRY(number(get, "LOCAL_RANK", 0, s.size - 1, &local));
    PB_TRY(number(get, "MASTER_PORT", 1, 65535, &s.port));
    s.address = get("MASTER_ADDR");
    if (!s.address || !*s.address) return pb_fail(PB_EINVAL, "WORLD_SIZE is set, but MASTER_ADDR is not");
    const char *agent = get("TORCHELASTIC_USE_AGENT_STORE");
    s.port_is_occupied = agent && (agent[0] == 'T' || agent[0] == 't' || agent[0] == '1');
    *out = s;
    return PB_OK;
}

pb_status pb_start_read(const char *(*get)(const char *), bool mpi, pb_start *out)
{
    static const struct {
        const char *variable, *by;
    } launchers[] = {{"OMPI_COMM_WORLD_SIZE", "mpirun"}, {"PMI_SIZE", "mpirun"}, {"SLURM_STEP_NUM_TASKS", "srun"}};
    *out = (pb_start){.kind = PB_START_ALONE, .size = 1, .by = "nothing"};
    for (int i = 0; i < (int)(sizeof launchers / sizeof *launchers); i++) {
        const int size = ranks_in(get, launchers[i].variable);
        if (size <= 1) continue;
        *out = (pb_start){.kind = PB_START_MPI, .size = size, .by = launchers[i].by};
        return PB_OK;
    }
    return get("WORLD_SIZE") ? read_store(get, mpi, out) : PB_OK;
}

int pb_start_rank(const char *(*get)(const char *))
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"};
    for (int i = 0; i < (int)(sizeof variables / sizeof *variables); i++) {
        const char *text = get(variables[i]);
        if (text && *text) return (int)strtol(text, NULL, 10);
    }
    return 0;
}
