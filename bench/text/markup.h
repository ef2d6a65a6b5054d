/* markup.h - text inside Markdown and XML, and JUnit's XML of test cases. */
#ifndef PB_MARKUP_H
#define PB_MARKUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum pb_format { PB_FORMAT_TEXT, PB_FORMAT_MARKDOWN, PB_FORMAT_JUNIT } pb_format;
/* Of --format: text (also NULL), markdown or junit. */
pb_format pb_format_of(const char *word);

/* Text that Markdown shows as it is, also in a cell of a table; `code`: as a code span, "" as nothing. */
void pb_markdown(FILE *out, const char *text, bool code);
/* Text inside an XML element or attribute; what XML 1.0 cannot hold becomes ?. */
void pb_xml(FILE *out, const char *text);
bool pb_is_utf8(const char *text);

typedef enum pb_junit_outcome { PB_JUNIT_SKIPPED, PB_JUNIT_PASSED, PB_JUNIT_FAILURE, PB_JUNIT_ERROR } pb_junit_outcome;
typedef struct pb_junit_case {
    pb_junit_outcome outcome;
    char classname[128], name[640], type[32], message[640]; /* type and message: not of what passed */
} pb_junit_case;
/* Writes case i; false: there is none to write for i. */
typedef bool (*pb_junit_get)(void *user, size_t i, pb_junit_case *c);
/* A document with one testsuite of the cases that `get` gives for 0 <= i < n. It is asked twice for each. Valid by
 * the schema of Jenkins' xUnit plugin, junit-10.xsd. */
void pb_junit(FILE *out, const char *name, size_t n, pb_junit_get get, void *user);
#endif
