/* feed_records.c - feed_records FILE OUT: reads the records of a profiling window (trace/records.h), joins them, and
 * writes them as a profiled job of one rank into the folder OUT, which `bench analyze` and other tools read. Prints one
 * line with what the trace holds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/draft.h"
#include "trace/records.h"

static pb_status make_folders(const char *out, const pb_trace_about *a, char trace[600])
{
    char path[512], text[512];
    const pb_disk *d = &pb_disk_posix;
    (void)d->mkdir(d->self, out);
    snprintf(path, sizeof path, "%s/traces", out);
    (void)d->mkdir(d->self, path);
    snprintf(path, sizeof path, "%s/traces/step%" PRId64 "-%" PRId64, out, a->first_step, a->last_step);
    (void)d->mkdir(d->self, path);
    snprintf(trace, 600, "%s/rank0.json.gz", path);
    snprintf(path, sizeof path, "%s/manifest.json", out);
    snprintf(text, sizeof text,
             "{\"format\": 1, \"program\": \"feed_records\", \"ranks\": 1, \"topology\": \"dp=1\", \"profiled\": [0], "
             "\"why\": \"rank %d of %d, recorded once\", \"hosts\": [\"recorded\"]}\n",
             a->rank, a->ranks);
    return pb_file_replace(path, text, strlen(text));
}

static pb_status feed(const char *file, const char *out)
{
    pb_records r;
    pb_trace_size size;
    char trace[600];
    PB_TRY(pb_records_read(file, &r));
    pb_status s = make_folders(out, &r.about, trace);
    r.about.rank = 0;
    r.about.ranks = 1;
    pb_gpu_place(&r.gpu);
    if (s == PB_OK) s = pb_trace_write(&pb_disk_posix, trace, &r.about, &r.ranges, &r.gpu, &size);
    if (s == PB_OK)
        printf("steps %" PRId64 " kernels %zu unjoined %zu replayed %zu unplaced %zu dropped %zu\n",
               r.about.last_step - r.about.first_step + 1, size.kernels, size.unjoined, r.gpu.replayed, r.gpu.unplaced,
               r.gpu.dropped + r.ranges.dropped);
    pb_records_free(&r);
    return s;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: feed_records FILE.records.gz OUT\n");
        return 2;
    }
    if (strlen(argv[2]) > 400) {
        fprintf(stderr, "feed_records: the name of OUT is too long\n");
        return 2;
    }
    if (feed(argv[1], argv[2]) == PB_OK) return 0;
    fprintf(stderr, "feed_records: %s\n", pb_error());
    return 2;
}
