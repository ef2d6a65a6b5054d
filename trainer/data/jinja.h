/* jinja.h - renders a chat template: the part of the Jinja language that the templates of tokenizer_config.json use, as
 * transformers sets Jinja up (trim_blocks, lstrip_blocks, tojson without ASCII escapes).
 *
 * Statements: for (with loop.index, index0, first, last, length, and a trailing `if`), if/elif/else, set of a name or
 * of an attribute of a namespace; generation blocks are passed through. Expressions: strings, integers, lists of
 * scalars, attributes, subscripts, slices, + - ~ * % // comparisons, in, and/or/not, `a if b else c`; is defined,
 * undefined, none, string, mapping, iterable, sequence, number, boolean, true, false; filters trim, tojson, length,
 * count, string, lower, upper, first, last, default; methods strip, lstrip, rstrip, startswith, endswith, split, get,
 * upper, lower; functions namespace and raise_exception. Everything else is refused by name: nothing is rendered
 * approximately. */
#ifndef PB_JINJA_H
#define PB_JINJA_H
#include <jansson.h>

#include "trainer/tokenizer/tokenizer.h"

/* Appends what the template of n bytes gives with the variables of `context` (an object). EFORMAT: the template asks
 * for what is not listed above, is malformed, raises, or takes more than 200000 steps or 16 MiB of text; one line
 * says which. Then nothing is appended. */
pb_status pb_jinja_render(const char *text, size_t n, json_t *context, pb_bytes *out);
#endif
