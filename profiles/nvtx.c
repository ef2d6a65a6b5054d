/* nvtx.c - passes ranges to NVTX tools. The NVTX headers load the tool's library at run time, so the program is linked
 * with no library. */
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/listen.h"

enum { NAMES = 512 }; /* a power of two, well above the number of ops and phases */

typedef struct known {
    const char *name;
    nvtxStringHandle_t handle;
} known;

const bool pb_nvtx_built = true;

static nvtxDomainHandle_t domain; /* NULL: no tool is attached, and the calls do nothing */
/* Hash table with open addressing, from the address of a name to its NVTX handle. Each thread has its own and registers
 * a name again; the profiler returns one handle per string. */
static _Thread_local known names[NAMES];

bool pb_nvtx_start(void)
{
    const char *tool = getenv("NVTX_INJECTION64_PATH");
    if (!tool || !*tool) return false;
    domain = nvtxDomainCreateA("plumb");
    if (!domain) return false;
    for (int i = 0; i < PB_RANGE_KINDS; i++) nvtxDomainNameCategoryA(domain, (uint32_t)i + 1, pb_range_kinds[i]);
    return true;
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

void pb_nvtx_begin(pb_range_kind kind, const char *name, int64_t value)
{
    nvtxEventAttributes_t a;
    memset(&a, 0, sizeof a);
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.category = (uint32_t)kind + 1; /* 0 is no category */
    if (value != PB_RANGE_NO_VALUE) {
        a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
        a.payload.llValue = value;
    }
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = handle_of(name);
    (void)nvtxDomainRangePushEx(domain, &a);
}

void pb_nvtx_finish(void) { (void)nvtxDomainRangePop(domain); }
