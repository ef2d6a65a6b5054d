/* dump.h - writes JSON as Python's json.dumps(value, ensure_ascii=False) does, which is the output of the filter tojson
 * in chat templates. */
#ifndef PB_DUMP_H
#define PB_DUMP_H
#include <jansson.h>

#include "trainer/tokenizer/room.h"

/* Appends the value as text. The keys of an object keep their order. */
pb_status pb_dump(json_t *value, pb_bytes *out);
#endif
