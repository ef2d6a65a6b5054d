/* cupti_library.c - loads libcupti at run time. */
#include "trace/cupti_library.h"

#include <dlfcn.h>
#include <stddef.h>

pb_status pb_cupti_library(const char *what, void **out)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so", "/usr/local/cuda/lib64/libcupti.so",
                                        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    *out = NULL;
    for (size_t i = 0; !*out && i < sizeof names / sizeof *names; i++) *out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return *out ? PB_OK : pb_fail(PB_EUNSUPPORTED, "%s: libcupti was not found (%s)", what, dlerror());
}

pb_status pb_cupti_symbol(const char *what, void *library, const char *name, void **out)
{
    *out = dlsym(library, name);
    return *out ? PB_OK : pb_fail(PB_EUNSUPPORTED, "%s: libcupti has no %s", what, name);
}
