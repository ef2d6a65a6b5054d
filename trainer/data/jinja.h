/* jinja.h - renders a chat template. It supports the subset of Jinja that the templates in tokenizer_config.json use,
 * with the settings of transformers (trim_blocks, lstrip_blocks, tojson without ASCII escapes).
 *
 *   statements   for (with loop.index, index0, first, last, length, and a trailing `if`), if/elif/else, set of a name
 *                or of a namespace's attribute; generation tags are ignored, their contents rendered
 *   expressions  strings, integers, lists of scalars, attributes, subscripts, slices, + - ~ * % //, comparisons, in,
 *                and/or/not, `a if b else c`
 *   tests        is defined, undefined, none, string, mapping, iterable, sequence, number, boolean, true, false
 *   filters      trim, tojson, length, count, string, lower, upper, first, last, default
 *   methods      strip, lstrip, rstrip, startswith, endswith, split, get, upper, lower
 *   functions    namespace, raise_exception
 *
 * A template that uses anything else is rejected, and the message names the construct. */
#ifndef PB_JINJA_H
#define PB_JINJA_H
#include <jansson.h>

#include "trainer/tokenizer/tokenizer.h"

/* Renders the template text[n] with the variables in `context` (a JSON object), and appends the result to *out.
 * EFORMAT: the template uses a construct that is not listed above, is malformed, calls raise_exception, or needs more
 * than 200000 steps or 16 MiB of text; the message is one line and says which. On failure nothing is appended.
 * ENOMEM. */
pb_status pb_jinja_render(const char *text, size_t n, json_t *context, pb_bytes *out);
#endif
