/* ranges_nvtx.c - implements ranges.h with NVTX. The NVTX headers load the profiler's library at run time, so the
 * program is linked with no library. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/ranges.h"

enum { NAMES = 512 }; /* a power of two, well above the number of ops and phases */

typedef struct known {
    const char *name;
    nvtxStringHandle_t handle;
} known;

bool pb_ranges_on;
static nvtxDomainHandle_t domain;
/* Hash table with open addressing, from the address of a name to its NVTX handle. Each thread has its own and registers
 * a name again; the profiler returns one handle per string. */
static _Thread_local known names[NAMES];

static void start(void)
{
    const char *tool = getenv("NVTX_INJECTION64_PATH");
    if (!tool || !*tool) return;
    domain = nvtxDomainCreateA("plumb");
    pb_ranges_on = domain != NULL;
}

void pb_ranges_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start);
}

static nvtxStringHandle_t handle_of(const char *name)
{
    size_t at = ((size_t)name >> 3) % NAMES;
    for (size_t i = 0; i < NAMES; i++, at = (at + 1) % NAMES) {
        if (names[at].name == name) return names[at].handle;
        if (names[at].name) continue;
        names[at] = (known){name, nvtxDomainRegisterStringA(domain, name)};
        return names[at].handle;
    }
    return NULL;
}

void pb_range_begin(const char *name)
{
    nvtxEventAttributes_t a;
    memset(&a, 0, sizeof a);
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = handle_of(name);
    (void)nvtxDomainRangePushEx(domain, &a);
}

void pb_range_finish(void) { (void)nvtxDomainRangePop(domain); }
