/* json.c - reads JSON values and checks their types. */
#include "trainer/tokenizer/json.h"

#include <string.h>

pb_status pb_json_object(json_t *o, const char *where, const char *const *keys)
{
    if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s is not an object", where);
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        size_t k = 0;
        while (keys[k] && strcmp(keys[k], key) != 0) k++;
        if (!keys[k]) return pb_fail(PB_EFORMAT, "%s: \"%.60s\" is not supported", where, key);
    }
    return PB_OK;
}

pb_status pb_json_text_of(json_t *v, const char *where, pb_json_text *out)
{
    if (!json_is_string(v)) return pb_fail(PB_EINVAL, "%s is not a string", where);
    *out = (pb_json_text){json_string_value(v), json_string_length(v)};
    return PB_OK;
}

pb_status pb_json_get_text(json_t *o, const char *where, const char *key, pb_json_text *out)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_string(v)) return pb_fail(PB_EINVAL, "%s: \"%s\" is not a string", where, key);
    return pb_json_text_of(v, where, out);
}

pb_status pb_json_get_bool(json_t *o, const char *where, const char *key, bool *out)
{
    json_t *v = json_object_get(o, key);
    if (pb_json_absent(v)) return PB_OK;
    if (!json_is_boolean(v)) return pb_fail(PB_EINVAL, "%s: \"%s\" is not true or false", where, key);
    *out = json_is_true(v);
    return PB_OK;
}

const char *pb_json_type(json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    return type ? type : "";
}

pb_status pb_json_refuse_type(json_t *o, const char *where)
{
    if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s is not an object", where);
    return pb_fail(PB_EFORMAT, "%s: type \"%.60s\" is not supported", where, pb_json_type(o));
}
