/* ring.c - implements ring.h. One thread opens and closes windows; every thread may begin and end ranges meanwhile. */
#include "profiles/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/listen.h"
#include "profiles/ticks.h"

/* A slot of a ring, or a range that is open. The fields are atomic because pb_ring_stop() may read a slot that its
 * thread is overwriting; such a slot is recognised by the thread's counter and left out. */
typedef struct slot {
    _Alignas(64) _Atomic(const char *) name; /* one cache line: a record touches no second one */
    _Atomic int64_t begin, end, value;
    _Atomic int64_t number; /* of a collective */
    union {
        _Atomic int64_t number;
        _Atomic(const char *) text;
    } detail[2]; /* of an op: its flops and bytes; of a collective: its group and dtype */
    _Atomic unsigned about;
    _Atomic int ranks; /* of the group of a collective */
} slot;
_Static_assert(sizeof(slot) == 64, "a slot is a cache line");

/* The kind of a range and more, in one word: bits 0 to 7 its kind, 8 to 15 its depth, and what was written of its
 * details. The slots of ranges without details keep those of older ranges: writing zeros would cost time. */
enum { HAS_WORK = 1 << 16, HAS_COLLECTIVE = 1 << 17 };
static inline unsigned about_range(pb_range_kind kind, int depth) { return (unsigned)kind | (unsigned)depth << 8; }
_Static_assert(PB_RANGE_KINDS <= 256 && PB_RING_DEPTH <= 256, "kind and depth fit into a byte each");

/* A ring belongs to one thread until that thread ends, and only this thread writes it. So a thread that saw a window
 * open just before it ended, and writes late, spoils no other thread's records. */
typedef struct ring {
    _Alignas(64) atomic_size_t written; /* ranges that have ended, overwritten ones included */
    atomic_uint generation;             /* the window that the other fields are of */
    atomic_int depth;                   /* ranges that are open, deeper ones than PB_RING_DEPTH included */
    atomic_size_t too_deep;
    atomic_int owner; /* enum below */
    int tid;
    slot open[PB_RING_DEPTH]; /* without `end` */
    slot *slots;              /* [records] */
} ring;
enum { NOBODY, A_THREAD, A_THREAD_THAT_ENDED };

/* The rings of one size. They are used again by windows of that size, and never freed. */
typedef struct ring_set {
    struct ring_set *next;
    int threads;
    size_t records; /* a power of two */
    ring *rings;    /* [threads] */
    slot *slots;    /* [threads][records] */
} ring_set;

static struct {
    ring_set *sets;
    _Atomic(ring_set *) set; /* of the open window */
    _Atomic bool tsc;
    pb_moment begin;
    atomic_size_t no_ring;  /* ranges of threads that got no ring */
    atomic_uint generation; /* counts openings and closings; odd: a window is open */
    pthread_key_t key;      /* its destructor releases the ring of a thread that ends */
} window;

static _Thread_local ring *mine; /* the calling thread's ring; NULL: none */
static _Thread_local const ring_set *mine_of;

#define SET(variable, value) atomic_store_explicit(&(variable), value, memory_order_relaxed)
#define GET(variable)        atomic_load_explicit(&(variable), memory_order_relaxed)

static pb_ring_options with_defaults(const pb_ring_options *o)
{
    pb_ring_options r = *o;
    if (!r.threads) r.threads = 8;
    if (!r.records) r.records = 65536;
    size_t n = 64;
    while (n < r.records) n *= 2;
    r.records = n;
    return r;
}

int64_t pb_ring_read_clock(bool tsc) { return pb_ticks(tsc); }

size_t pb_ring_records(const pb_ring_options *o) { return with_defaults(o).records; }

size_t pb_ring_bytes(const pb_ring_options *o)
{
    const pb_ring_options r = with_defaults(o);
    return (size_t)r.threads * (sizeof(ring) + r.records * sizeof(slot));
}

static ring_set *new_set(const pb_ring_options *o)
{
    ring_set *set = calloc(1, sizeof *set);
    if (!set) return NULL;
    set->threads = o->threads;
    set->records = o->records;
    set->rings = aligned_alloc(64, (size_t)o->threads * sizeof *set->rings);
    set->slots = aligned_alloc(64, (size_t)o->threads * o->records * sizeof *set->slots);
    if (!set->rings || !set->slots) {
        free(set->rings);
        free(set->slots);
        free(set);
        return NULL;
    }
    memset(set->rings, 0, (size_t)o->threads * sizeof *set->rings);
    memset(set->slots, 0, (size_t)o->threads * o->records * sizeof *set->slots); /* no page faults in the window */
    for (int i = 0; i < o->threads; i++) set->rings[i].slots = set->slots + (size_t)i * o->records;
    set->next = window.sets;
    return window.sets = set;
}

static void release(void *self) { SET(((ring *)self)->owner, A_THREAD_THAT_ENDED); }
static void make_key(void) { (void)pthread_key_create(&window.key, release); }

pb_status pb_ring_start(const pb_ring_options *given)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (GET(window.generation) % 2) return pb_fail(PB_EINVAL, "a profiling window is open already");
    if (given->threads < 0 || given->threads > 4096 || given->records > 1u << 28)
        return pb_fail(PB_EINVAL, "a ring of %zu records for %d threads is not possible", given->records,
                       given->threads);
    (void)pthread_once(&once, make_key);
    const pb_ring_options o = with_defaults(given);
    ring_set *set = window.sets;
    while (set && (set->threads != o.threads || set->records != o.records)) set = set->next;
    if (!set) set = new_set(&o);
    if (!set) return pb_fail(PB_ENOMEM, "no memory for %d rings of %zu ranges", o.threads, o.records);
    for (int i = 0; i < set->threads; i++)
        if (GET(set->rings[i].owner) == A_THREAD_THAT_ENDED) SET(set->rings[i].owner, NOBODY);
    SET(window.set, set);
    SET(window.tsc, !o.no_tsc && pb_tsc_usable());
    SET(window.no_ring, 0);
    window.begin = pb_moment_now(GET(window.tsc));
    atomic_fetch_add_explicit(&window.generation, 1, memory_order_release);
    __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_RING, __ATOMIC_RELEASE);
    return PB_OK;
}

static ring *free_ring(ring_set *set)
{
    for (int i = 0; i < set->threads; i++) {
        int nobody = NOBODY;
        if (atomic_compare_exchange_strong(&set->rings[i].owner, &nobody, A_THREAD)) return &set->rings[i];
    }
    return NULL;
}

/* Gives the calling thread its ring of the window `generation`, empty. NULL: all are taken. Not inlined, because its
 * variables would take registers in every begin of a range. */
static __attribute__((noinline, cold)) ring *claim(unsigned generation)
{
    ring_set *set = GET(window.set);
    if (mine_of != set || !mine) {
        if (mine) SET(mine->owner, NOBODY);
        mine = free_ring(set);
        mine_of = set;
        (void)pthread_setspecific(window.key, mine);
    }
    if (!mine) return NULL;
    mine->tid = gettid();
    SET(mine->written, 0);
    SET(mine->depth, 0);
    SET(mine->too_deep, 0);
    atomic_store_explicit(&mine->generation, generation, memory_order_release);
    return mine;
}

void pb_ring_begin(pb_range_kind kind, const char *name, int64_t value)
{
    const unsigned generation = atomic_load_explicit(&window.generation, memory_order_acquire);
    if (generation % 2 == 0) return;
    ring *r = mine && GET(mine->generation) == generation ? mine : claim(generation);
    if (!r) {
        (void)atomic_fetch_add_explicit(&window.no_ring, 1, memory_order_relaxed);
        return;
    }
    const int depth = GET(r->depth);
    if (depth < PB_RING_DEPTH) {
        slot *o = &r->open[depth];
        SET(o->name, name);
        SET(o->value, value);
        SET(o->about, about_range(kind, depth));
        SET(o->begin, pb_ticks(GET(window.tsc)));
    } else SET(r->too_deep, GET(r->too_deep) + 1);
    atomic_store_explicit(&r->depth, depth + 1, memory_order_release);
}

/* The innermost range of this thread. NULL: none is recorded. */
static slot *innermost(void)
{
    ring *r = mine;
    if (!r || GET(r->generation) != atomic_load_explicit(&window.generation, memory_order_acquire)) return NULL;
    const int depth = GET(r->depth) - 1;
    return depth < 0 || depth >= PB_RING_DEPTH ? NULL : &r->open[depth];
}

void pb_ring_work(int64_t flops, int64_t bytes)
{
    slot *o = innermost();
    if (!o) return;
    SET(o->detail[0].number, flops);
    SET(o->detail[1].number, bytes);
    SET(o->about, GET(o->about) | HAS_WORK);
}

void pb_ring_collective(const pb_range_collective *c)
{
    slot *o = innermost();
    if (!o) return;
    SET(o->detail[0].text, c->group);
    SET(o->detail[1].text, c->dtype);
    SET(o->ranks, c->ranks);
    SET(o->number, c->number);
    SET(o->about, GET(o->about) | HAS_COLLECTIVE);
}

void pb_ring_finish(void)
{
    /* The clock is read first: the range excludes what follows, and no register is live across clock_gettime(). */
    const int64_t now = pb_ticks(GET(window.tsc));
    ring *r = mine;
    if (!r || GET(r->generation) != atomic_load_explicit(&window.generation, memory_order_acquire)) return;
    const int depth = GET(r->depth) - 1;
    if (depth < 0) return; /* the range began before the window */
    if (depth < PB_RING_DEPTH) {
        const size_t n = GET(r->written);
        const slot *o = &r->open[depth];
        const unsigned about = GET(o->about);
        slot *s = &r->slots[n & (mine_of->records - 1)];
        atomic_thread_fence(memory_order_release); /* a reader that sees this slot change sees `written` before it */
        SET(s->end, now);
        SET(s->name, GET(o->name));
        SET(s->begin, GET(o->begin));
        SET(s->value, GET(o->value));
        SET(s->about, about);
        if (about & (HAS_WORK | HAS_COLLECTIVE)) {
            for (int i = 0; i < 2; i++) SET(s->detail[i].number, GET(o->detail[i].number));
            SET(s->ranks, GET(o->ranks));
            SET(s->number, GET(o->number));
        }
        atomic_store_explicit(&r->written, n + 1, memory_order_release);
    }
    atomic_store_explicit(&r->depth, depth, memory_order_release);
}

static pb_ring_record record_of(const slot *s, const pb_moment *end)
{
    const unsigned about = GET(s->about);
    pb_ring_record r = {.name = GET(s->name),
                        .begin_ns = pb_ticks_to_real(GET(s->begin), &window.begin, end),
                        .value = GET(s->value),
                        .kind = (pb_range_kind)(about & 255),
                        .depth = (int)(about >> 8 & 255)};
    if (about & HAS_WORK) {
        r.flops = GET(s->detail[0].number);
        r.bytes = GET(s->detail[1].number);
    }
    if (about & HAS_COLLECTIVE)
        r.of = (pb_range_collective){GET(s->detail[0].text), GET(s->detail[1].text), GET(s->ranks), GET(s->number)};
    return r;
}

/* Copies the ranges of which the ring, of `room` slots, still holds the record, of `written` that had ended. Leaves out
 * slots that their thread has begun to overwrite meanwhile: the thread may be writing the slot after the last one that
 * it has counted. */
static size_t copy_ended(const ring *r, size_t room, size_t written, const pb_moment *end, pb_ring_record *out,
                         size_t *dropped)
{
    const size_t from = written > room ? written - room : 0;
    for (size_t i = from; i < written; i++) {
        const slot *s = &r->slots[i & (room - 1)];
        out[i - from] = record_of(s, end);
        out[i - from].end_ns = pb_ticks_to_real(GET(s->end), &window.begin, end);
        out[i - from].complete = true;
    }
    atomic_thread_fence(memory_order_acquire);
    const size_t now = GET(r->written) + (r->tid != gettid());
    size_t lost = now > from + room ? now - room - from : 0;
    if (lost > written - from) lost = written - from;
    memmove(out, out + lost, (written - from - lost) * sizeof *out);
    *dropped += from + lost + GET(r->too_deep);
    return written - from - lost;
}

/* The ranges that are open, innermost first, as in a list by end time. */
static size_t copy_open(const ring *r, const pb_moment *end, pb_ring_record *out)
{
    const size_t written = atomic_load_explicit(&r->written, memory_order_acquire);
    int depth = atomic_load_explicit(&r->depth, memory_order_acquire);
    size_t n = 0;
    if (depth > PB_RING_DEPTH) depth = PB_RING_DEPTH;
    for (int i = depth - 1; i >= 0; i--) {
        out[n] = record_of(&r->open[i], end);
        out[n++].end_ns = pb_ticks_to_real(end->ticks, &window.begin, end);
    }
    atomic_thread_fence(memory_order_acquire);
    /* If the thread has ended a range meanwhile, a slot may hold another one: do not read its work counts as
     * strings. */
    for (size_t i = 0; GET(r->written) != written && i < n; i++) out[i].of = (pb_range_collective){0};
    return n;
}

/* A thread that saw the window open may begin or end a range after the moment at which the window ended: it was
 * interrupted, or that moment was read on another core. Leaves out ranges that began later, and makes those that ended
 * later open ones. Returns how many remain. */
static size_t cut_at(int64_t end_ns, pb_ring_record *records, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (records[i].begin_ns > end_ns) continue;
        if (kept < i) records[kept] = records[i];
        if (records[kept].end_ns > end_ns) {
            records[kept].end_ns = end_ns;
            records[kept].complete = false;
        }
        kept++;
    }
    return kept;
}

static pb_status collect(const pb_moment *end, pb_ring_window *w)
{
    const ring_set *set = GET(window.set);
    const unsigned generation = GET(window.generation);
    w->threads = calloc((size_t)set->threads, sizeof *w->threads);
    if (!w->threads) return pb_fail(PB_ENOMEM, "no memory for the ranges of a window");
    for (int i = 0; i < set->threads; i++) {
        const ring *r = &set->rings[i];
        if (atomic_load_explicit(&r->generation, memory_order_acquire) != generation) continue;
        pb_ring_thread *t = &w->threads[w->n++];
        const size_t written = atomic_load_explicit(&r->written, memory_order_acquire);
        const size_t held = written < set->records ? written : set->records;
        pb_ring_record *records = malloc((held + PB_RING_DEPTH) * sizeof *records);
        if (!records) return pb_fail(PB_ENOMEM, "no memory for %zu ranges of a window", held);
        t->records = records;
        t->tid = r->tid;
        t->n = copy_ended(r, set->records, written, end, records, &t->dropped);
        t->n += copy_open(r, end, records + t->n);
        t->n = cut_at(w->end_ns, records, t->n);
        w->dropped += t->dropped;
    }
    w->dropped += GET(window.no_ring);
    return PB_OK;
}

pb_status pb_ring_stop(pb_ring_window *out)
{
    *out = (pb_ring_window){0};
    if (GET(window.generation) % 2 == 0) return pb_fail(PB_EINVAL, "no profiling window is open");
    __atomic_and_fetch(&pb_ranges_on, ~PB_LISTENS_RING, __ATOMIC_RELAXED);
    const pb_moment end = pb_moment_now(GET(window.tsc));
    out->begin_ns = window.begin.real_ns;
    out->end_ns = pb_ticks_to_real(end.ticks, &window.begin, &end);
    out->tsc = GET(window.tsc);
    out->stepped_ns = (double)(end.real_ns - window.begin.real_ns) - (double)(end.raw_ns - window.begin.raw_ns);
    const pb_status s = collect(&end, out);
    atomic_fetch_add_explicit(&window.generation, 1, memory_order_release);
    if (s != PB_OK) pb_ring_free(out);
    return s;
}

void pb_ring_free(pb_ring_window *w)
{
    for (int i = 0; i < w->n; i++) free(w->threads[i].records);
    free(w->threads);
    *w = (pb_ring_window){0};
}
