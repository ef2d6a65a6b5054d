/* cmd_tokenize.c - `train tokenize`: converts lines of text to lines of ids, or back with --decode. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "train/options.h"
#include "trainer/hf/hf_gguf.h"

typedef struct lines {
    const pb_train_options *o;
    pb_tokenizer *t;
    const char *path;
    size_t number;
    pb_ids ids;
    pb_bytes text;
} lines;

static pb_status encode(lines *l, const char *line, size_t n)
{
    const unsigned flags = (l->o->plain ? PB_TOK_PLAIN : 0) | (l->o->with_template ? PB_TOK_TEMPLATE : 0);
    l->ids.n = 0;
    PB_TRY(pb_tokenizer_encode(l->t, line, n, flags, &l->ids));
    for (size_t i = 0; i < l->ids.n; i++) printf("%s%d", i ? " " : "", l->ids.id[i]);
    printf("\n");
    return PB_OK;
}

static pb_status decode(lines *l, const char *line, size_t n)
{
    const char *const end = line + n, *const blanks = " \t\r";
    l->ids.n = l->text.n = 0;
    for (const char *p = line + strspn(line, blanks); p < end; p += strspn(p, blanks)) {
        char *after;
        errno = 0;
        const long v = strtol(p, &after, 10);
        if (after == p || errno || v < 0 || v > INT_MAX || (after < end && !strchr(blanks, *after)))
            return pb_fail(PB_EINVAL, "'%.*s' is not a token id", (int)strcspn(p, blanks), p);
        PB_TRY(pb_ids_append(&l->ids, (int32_t)v));
        p = after;
    }
    PB_TRY(pb_tokenizer_decode(l->t, l->ids.id, l->ids.n, 0, &l->text));
    fwrite(l->text.p, 1, l->text.n, stdout);
    printf("\n");
    return PB_OK;
}

static pb_status each_line(lines *l, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    pb_status s = PB_OK;
    for (ssize_t n; s == PB_OK && !ferror(stdout) && (n = getline(&line, &room, in)) >= 0;) {
        l->number++;
        if (n && line[n - 1] == '\n') line[--n] = 0;
        s = l->o->decode ? decode(l, line, (size_t)n) : encode(l, line, (size_t)n);
        if (s != PB_OK) {
            char why[512];
            snprintf(why, sizeof why, "%s", pb_error());
            pb_fail(s, "%s:%zu: %s", l->path, l->number, why);
        }
    }
    free(line);
    if (s == PB_OK && ferror(in)) s = pb_fail_errno(errno, "%s", l->path);
    return s;
}

pb_status pb_train_tokenize(const pb_train_options *o)
{
    const char *name = o->tokenizer && strcmp(o->tokenizer, "bytes") != 0 ? o->tokenizer : NULL;
    lines l = {.o = o, .path = o->args.n ? o->args.v[0] : "standard input"};
    if (o->args.n > 1) return pb_fail(PB_EINVAL, "tokenize takes one file, or none to read standard input");
    PB_TRY(pb_hf_tokenizer_open(name, &l.t));
    FILE *in = stdin;
    pb_status s = o->args.n ? pb_file_read(l.path, &in) : PB_OK;
    if (s == PB_OK) s = each_line(&l, in);
    if (s == PB_OK && in != stdin) fclose(in);
    pb_tokenizer_close(l.t);
    pb_ids_free(&l.ids);
    pb_bytes_free(&l.text);
    return s;
}
