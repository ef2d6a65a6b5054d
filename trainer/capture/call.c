/* call.c - implements call.h. */
#include "trainer/capture/call.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEED = 7, CHOICES = 8 };

pb_status pb_call_bind(pb_ctx *ctx, const pb_op *op, const int *dim, pb_dtype dtype, pb_call *out)
{
    pb_call c = {.op = op, .args = calloc(1, op->args_size), .b = {.ctx = ctx, .dtype = dtype, .seed = SEED}};
    if (!c.args) return pb_fail(PB_ENOMEM, "%s: no memory for its arguments", op->name);
    memcpy(c.dim, dim, sizeof c.dim);
    const pb_status s = op->bind(&c.b, dim, c.args);
    if (s != PB_OK) {
        pb_call_unbind(&c);
        return s;
    }
    *out = c;
    return PB_OK;
}

void pb_call_unbind(pb_call *c)
{
    if (c->b.ctx) pb_unbind(&c->b);
    free(c->args);
    *c = (pb_call){0};
}

/* ---- shapes ------------------------------------------------------------------------------------------------- */

/* Extends least and most by the values of an axis in a list of shapes. */
static void extend(const pb_dims *list, int axis, int *least, int *most)
{
    for (; list && (*list)[0]; list++) {
        if ((*list)[axis] < *least) *least = (*list)[axis];
        if ((*list)[axis] > *most) *most = (*list)[axis];
    }
}

pb_status pb_call_check_shape(const pb_op *op, const int *dim, size_t most)
{
    for (int i = 0; op->axes[i]; i++) {
        int low = INT_MAX, high = 0;
        extend(op->edge, i, &low, &high);
        extend(op->grid, i, &low, &high);
        extend(op->device_grid, i, &low, &high);
        const bool choice = high <= CHOICES && islower((unsigned char)op->axes[i]);
        const size_t limit = choice || most < (size_t)high ? (size_t)high : most;
        if (dim[i] < low || (size_t)dim[i] > limit)
            return pb_fail(PB_EINVAL, "%s: axis %c of its shape is %d, need %d to %zu", op->name, op->axes[i], dim[i],
                           low, limit);
    }
    return PB_OK;
}

pb_status pb_call_parse_shape(const pb_op *op, const char *text, int *dim)
{
    const char *at = text;
    for (int i = 0; op->axes[i]; i++) {
        char *end;
        if (i && *at == '.') at++;
        if (*at++ != op->axes[i] || !isdigit((unsigned char)*at))
            return pb_fail(PB_EINVAL, "%s: shape %.80s does not fit its axes %s", op->name, text, op->axes);
        const long value = strtol(at, &end, 10);
        dim[i] = value > INT_MAX ? INT_MAX : (int)value;
        at = end;
    }
    return *at ? pb_fail(PB_EINVAL, "%s: shape %.80s has more fields than its axes %s", op->name, text, op->axes)
               : PB_OK;
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

void pb_call_numbers_text(const pb_call *c, char out[PB_NUMBERS_TEXT])
{
    size_t at = 0;
    *out = 0;
    for (const pb_number *n = c->op->numbers; n && n->name && at < PB_NUMBERS_TEXT; n++) {
        const char *from = (const char *)c->args + n->offset;
        double wide = 0;
        float narrow = 0;
        if (n->bytes == sizeof wide) memcpy(&wide, from, sizeof wide);
        else memcpy(&narrow, from, sizeof narrow), wide = (double)narrow;
        at += (size_t)snprintf(out + at, PB_NUMBERS_TEXT - at, "%s%s=%.*g", at ? " " : "", n->name,
                               n->bytes == sizeof wide ? 17 : 9, wide);
    }
}

static pb_status bad_numbers(const pb_call *c, const char *text)
{
    char want[PB_NUMBERS_TEXT];
    pb_call_numbers_text(c, want);
    return pb_fail(PB_EINVAL, "%s: its numbers are '%.80s', need such as '%s'", c->op->name, text, want);
}

pb_status pb_call_set_numbers(pb_call *c, const char *text)
{
    const char *at = text;
    for (const pb_number *n = c->op->numbers; n && n->name; n++) {
        const size_t length = strlen(n->name);
        char *end;
        if (at != text && *at++ != ' ') return bad_numbers(c, text);
        if (strncmp(at, n->name, length) != 0 || at[length] != '=') return bad_numbers(c, text);
        at += length + 1;
        const double wide = strtod(at, &end);
        const float narrow = (float)wide;
        if (end == at) return bad_numbers(c, text);
        if (n->bytes == sizeof wide) memcpy((char *)c->args + n->offset, &wide, sizeof wide);
        else memcpy((char *)c->args + n->offset, &narrow, sizeof narrow);
        at = end;
    }
    if (*at) return bad_numbers(c, text);
    return c->op->check ? c->op->check(c->args) : PB_OK;
}
