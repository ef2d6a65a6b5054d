/* row_status.c - the table of the statuses of rows, made from status.def. */
#include "bench/rows/row_status.h"

#include <string.h>

const pb_row_status_line pb_row_statuses[PB_ROW_STATUSES] = {
#define STATUS(id, name, class, what) {name, PB_ROW_##class, what},
#include "bench/rows/status.def"
#undef STATUS
};

bool pb_row_status_find(const char *name, pb_row_status *out)
{
    for (int i = 0; i < PB_ROW_STATUSES; i++)
        if (!strcmp(name, pb_row_statuses[i].name)) {
            *out = (pb_row_status)i;
            return true;
        }
    return false;
}
