/* dump.h - JSON as Python's json.dumps(value, ensure_ascii=False) writes it: what the chat templates' tojson gives. */
#ifndef PB_DUMP_H
#define PB_DUMP_H
#include <jansson.h>

#include "trainer/tokenizer/room.h"

/* Appends the value; keys keep the file's order. */
pb_status pb_dump(json_t *value, pb_bytes *out);
#endif
