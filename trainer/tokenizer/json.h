/* json.h - reading checked values from JSON objects; every refusal names the object and the key. */
#ifndef PB_TOK_JSON_H
#define PB_TOK_JSON_H
#include <jansson.h>
#include <stdbool.h>

#include "os/status.h"

typedef struct pb_json_text { /* UTF-8, may hold NUL; lives as long as the document */
    const char *p;
    size_t n;
} pb_json_text;

/* `where` names the object in messages. `keys` ends with NULL. */
pb_status pb_json_object(json_t *o, const char *where, const char *const *keys); /* an object of these keys */
pb_status pb_json_text_of(json_t *v, const char *where, pb_json_text *out);
pb_status pb_json_get_text(json_t *o, const char *where, const char *key, pb_json_text *out);
/* Absent or null: *out stays. */
pb_status pb_json_get_bool(json_t *o, const char *where, const char *key, bool *out);
/* The string "type", or "" when there is none. */
const char *pb_json_type(json_t *o);
/* EFORMAT: where: type "X" is not supported. */
pb_status pb_json_refuse_type(json_t *o, const char *where);
static inline bool pb_json_absent(json_t *v) { return !v || json_is_null(v); }
#endif
