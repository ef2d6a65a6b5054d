/* manifest.h - the JSON files of a profiled job, next to its traces (profile.h). Private to trace. */
#ifndef PB_TRACE_MANIFEST_H
#define PB_TRACE_MANIFEST_H
#include <jansson.h>
#include <time.h>

#include "os/disk.h"
#include "ranks/clocks.h"
#include "trace/choose.h"

typedef struct pb_manifest {
    const pb_disk *disk;
    const char *out, *program, *version, *libraries, *topology;
    const char *trigger; /* NULL: none */
    const pb_chosen *chosen;
    const char *const *host; /* [chosen->ranks]; NULL: not known */
    const pb_profile_steps *steps;
    time_t begun;
} pb_manifest;

#define PB_MANIFEST_WAIT 2.0 /* seconds, the longest that the end of a job waits for the files of its ranks */

/* Writes OUT/manifest.json. ended: the job ends; the manifest then also has `recorded`, the sums of each rank's file in
 * OUT/ranks, for which the call waits, and `clocks`, how far the clocks of ranks were from rank 0's (reports: [n]).
 * ENOMEM, EIO, EPATH. */
pb_status pb_manifest_write(const pb_manifest *m, bool ended, const pb_clock_report *reports, size_t n);
/* Makes a folder that may exist already. EPATH, EIO. */
pb_status pb_profile_folder(const pb_disk *d, const char *path);
/* Writes OUT/NAME. Takes `o`, also on failure; NULL: no memory. The same errors. */
pb_status pb_profile_json(const pb_disk *d, const char *out, const char *name, json_t *o);
#endif
