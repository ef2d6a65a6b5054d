/* window.c - implements window.h. */
#include "trace/window.h"

#include "trace/records.h"

pb_status pb_window_write(const pb_disk *d, const pb_window_files *files, const pb_trace_about *about,
                          const pb_ring_window *w, pb_window_gpu *gpu, pb_trace_size *size)
{
    pb_gpu_window all = {0};
    pb_status s = files->gpu ? pb_gpu_read(&all) : PB_OK;
    const bool wanted = s == PB_OK && files->records;
    const pb_status kept = wanted ? pb_records_write(d, files->records, about, w, &all) : PB_OK;
    pb_gpu_place(&all);
    if (s == PB_OK) s = pb_trace_write(d, files->trace, about, w, &all, size);
    if (s == PB_OK) s = kept;
    *gpu = (pb_window_gpu){all.dropped, all.replayed, all.unplaced, all.buffer_bytes};
    pb_gpu_free(&all);
    return s;
}
