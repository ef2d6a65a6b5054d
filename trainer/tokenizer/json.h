/* json.h - reads values from JSON objects and checks their types. Every error message names the object and the key. */
#ifndef PB_TOK_JSON_H
#define PB_TOK_JSON_H
#include <jansson.h>
#include <stdbool.h>

#include "os/status.h"

typedef struct pb_json_text { /* UTF-8, may contain NUL; borrowed from the JSON document */
    const char *p;
    size_t n;
} pb_json_text;

/* In the functions below `where` names the object in messages. EINVAL: a value has the wrong type. EFORMAT of
 * pb_json_object: the object has a key that is not in `keys`, which ends with NULL. */
pb_status pb_json_object(json_t *o, const char *where, const char *const *keys);
pb_status pb_json_text_of(json_t *v, const char *where, pb_json_text *out);
pb_status pb_json_get_text(json_t *o, const char *where, const char *key, pb_json_text *out);
/* Leaves *out unchanged if the key is absent or null. */
pb_status pb_json_get_bool(json_t *o, const char *where, const char *key, bool *out);
/* Returns the value of the key "type"; "" if it is absent. */
const char *pb_json_type(json_t *o);
/* Returns EFORMAT with the message: WHERE: type "X" is not supported. */
pb_status pb_json_refuse_type(json_t *o, const char *where);
static inline bool pb_json_absent(json_t *v) { return !v || json_is_null(v); }
#endif
