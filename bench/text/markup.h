/* markup.h - escapes text for Markdown and XML, and writes test cases as JUnit XML. */
#ifndef PB_MARKUP_H
#define PB_MARKUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum pb_format { PB_FORMAT_TEXT, PB_FORMAT_MARKDOWN, PB_FORMAT_JUNIT } pb_format;
/* The format that an argument of --format names: text (also for NULL), markdown or junit. */
pb_format pb_format_of(const char *word);

/* Prints text so that Markdown shows it unchanged, also in a table cell. code: prints it as a code span, or nothing for
 * "". */
void pb_markdown(FILE *out, const char *text, bool code);
/* Prints text for an XML element or attribute. Bytes that are not UTF-8 and characters that XML 1.0 forbids become
 * '?'. */
void pb_xml(FILE *out, const char *text);
bool pb_is_utf8(const char *text);

typedef enum pb_junit_outcome { PB_JUNIT_SKIPPED, PB_JUNIT_PASSED, PB_JUNIT_FAILURE, PB_JUNIT_ERROR } pb_junit_outcome;
typedef struct pb_junit_case {
    pb_junit_outcome outcome;
    char classname[128], name[640], type[32], message[640]; /* type, message: unused if PB_JUNIT_PASSED */
} pb_junit_case;
/* Fills *c with test case i. False: case i is left out of the document. */
typedef bool (*pb_junit_get)(void *user, size_t i, pb_junit_case *c);
/* Writes an XML document with one test suite, which holds the cases that `get` returns for 0 <= i < n. Calls `get`
 * twice for each i: to count, then to write. The result is valid by the schema of Jenkins' xUnit plugin,
 * junit-10.xsd. */
void pb_junit(FILE *out, const char *name, size_t n, pb_junit_get get, void *user);
#endif
