/* ranges.h - named intervals of host time: steps, phases, ops and collectives of training, suites, cases and samples of
 * a benchmark. Tools receive them as NVTX ranges in the domain "plumb" (NVIDIA Nsight, or any library that
 * NVTX_INJECTION64_PATH names); a profiling window receives them in a ring of records (ring.h).
 *
 * Every layer may include this header; it includes no other. Ranges nest per thread: a step contains phases, a phase
 * contains ops. Without a listener, push and pop each cost a load and a branch that is not taken; the ceiling suite
 * measures the pair as range_time. A range that was begun before a listener began is not reported. */
#ifndef PB_RANGES_H
#define PB_RANGES_H
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* X(kind, what such a range covers). The kind is the NVTX category and the category of a trace's event. */
#define PB_RANGE_MAP(X)                                                                                                \
    X(step, "a training step; value: its number, from 1")                                                              \
    X(micro, "the forward and backward pass of one micro-batch")                                                       \
    X(phase, "a phase of a step")                                                                                      \
    X(op, "one op: its kernel launches, or its work on the CPU; value: the layer of the model, from 0")                \
    X(collective, "a collective operation between ranks; value: its bytes on this rank")                               \
    X(replay, "the launch of a recorded graph, or its replay on the CPU")                                              \
    X(suite, "the suite of a case of `bench`; it contains the case")                                                   \
    X(case, "a case of a suite; its name is the key")                                                                  \
    X(sample, "one timed sample of a case; value: the number of calls in it")                                          \
    X(work, "other work, such as an evaluation or a checkpoint")

typedef enum pb_range_kind {
#define X(kind, what) PB_RANGE_##kind,
    PB_RANGE_MAP(X)
#undef X
        PB_RANGE_KINDS
} pb_range_kind;
extern const char *const pb_range_kinds[PB_RANGE_KINDS];

enum { PB_RANGE_NO_VALUE = -1 };

/* Who listens: bits of PB_LISTENS_*; 0: no listener. Written by pb_ranges_start and by ring.h, read by every range. */
enum { PB_LISTENS_NVTX = 1, PB_LISTENS_RING = 2, PB_LISTENS_STACK = 4, PB_LISTENS_COUNT = 8, PB_LISTENS_HOOK = 16 };
extern volatile int pb_ranges_on;
/* Finds out whether an NVTX tool is attached. Every context that is opened calls this function; only the first call has
 * an effect. */
void pb_ranges_start(void);

/* Calls NVTX at every range even if no tool is attached (on), which measures what that costs, or no longer. False: this
 * build has no NVTX, or a tool is attached. */
bool pb_ranges_call_nvtx(bool on);

/* Counts the ranges that begin on any thread, from 0 (on), or no longer. pb_ranges_counted(): how many began. */
void pb_ranges_count(bool on);
uint64_t pb_ranges_counted(void);

/* Functions that are called at the ranges of one thread, in that thread. */
typedef struct pb_range_hook {
    void (*begin)(void *self, pb_range_kind kind, const char *name, int64_t value);
    void (*finish)(void *self);                             /* of the range that was begun last and has not ended */
    void (*work)(void *self, int64_t flops, int64_t bytes); /* pb_range_work() */
    void *self;
} pb_range_hook;
/* Calls the hook at the ranges of the calling thread, from now on. NULL: no longer. One thread at a time has one. */
void pb_ranges_hook(const pb_range_hook *hook);

/* `name` must stay valid and unchanged until the process ends: listeners keep its address. */
void pb_range_begin(pb_range_kind kind, const char *name, int64_t value);
void pb_range_finish(void);
/* The layer of the model on which this thread works, which the ranges of its ops have as their value.
 * PB_RANGE_NO_VALUE: none, as at first. */
void pb_range_layer_set(int64_t layer);
int64_t pb_range_layer(void);
/* Who wants the work of ops: their bits in pb_ranges_on. */
enum { PB_LISTENS_WORK = PB_LISTENS_RING | PB_LISTENS_STACK | PB_LISTENS_HOOK };
/* Notes the least work of the op whose range this thread has begun last: floating-point operations, and bytes of inputs
 * and outputs (pb_cost in kernels/engine/op.h). While this thread records a graph, the ring does not keep it: a
 * recorded op does its work in the replays. */
void pb_range_work(int64_t flops, int64_t bytes);
/* The notes of a range of kind collective about its operation. The strings must stay valid, as names do. */
typedef struct pb_range_collective {
    const char *group; /* the communicator's role and, if not all ranks are in one group, the number of the group: "dp",
                          "cp#1"; NULL: nothing was noted */
    const char *dtype;
    int ranks;      /* of the group */
    int64_t number; /* among the collectives of the communicator, from 1; the same on all ranks of the group */
} pb_range_collective;
/* Notes it for the range that this thread has begun last. */
void pb_range_note_collective(const pb_range_collective *c);
/* Returns a copy of `name` that stays valid until the process ends, the same one for equal names; for names that are
 * not static strings. NULL: out of memory. Takes a lock: call it outside of what is measured. */
const char *pb_range_name(const char *name);

static inline void pb_range_push(pb_range_kind kind, const char *name, int64_t value)
{
    if (__builtin_expect(pb_ranges_on, 0)) pb_range_begin(kind, name, value);
}
static inline void pb_range_pop(void)
{
    if (__builtin_expect(pb_ranges_on, 0)) pb_range_finish();
}

/* ---- the ranges around recorded work ------------------------------------------------------------------
 * While a graph is recorded, each recorded call notes the ranges around it, so that a replay, in which the code that
 * opens ranges does not run, can name the phase of each call. */

enum { PB_RANGE_STACK_DEPTH = 6 }; /* deeper ranges are not noted */
typedef struct pb_range_stack {
    int depth;
    struct {
        pb_range_kind kind;
        const char *name;
        int64_t value;
        int64_t flops, bytes;   /* as for pb_range_work(); 0: not known */
        pb_range_collective of; /* as for pb_range_note_collective() */
    } at[PB_RANGE_STACK_DEPTH]; /* outermost first */
} pb_range_stack;

/* Begins, or ends, to note the ranges of the calling thread. One thread at a time records. */
void pb_range_stack_track(bool on);
/* The ranges that were begun on this thread since pb_range_stack_track(true) and have not ended. */
pb_range_stack pb_range_stack_now(void);
/* The same, for a kernel that is recorded. The work of the innermost range is given to the first kernel that asks, so
 * that it counts once however many kernels the op has. */
pb_range_stack pb_range_stack_take(void);
/* Ends and begins ranges, so that those of *open become those of *want; *open = *want. */
void pb_range_stack_move(pb_range_stack *open, const pb_range_stack *want);
#ifdef __cplusplus
}
#endif
#endif
