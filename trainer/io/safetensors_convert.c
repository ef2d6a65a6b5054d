/* safetensors_convert.c - converts tensor elements from the file's type to the model's type, with several threads. */
#include <stdio.h>

#include "os/file.h"
#include "trainer/io/half.h"
#include "trainer/io/safetensors.h"

/* Number of elements that a thread converts at a time, through an f32 buffer on its stack. */
enum { STEP = 1024 };
/* Number of elements that a thread reads from the file at a time: at most 256 KiB, so that they are still in the L2
 * when they are converted. */
enum { PIECE = 1 << 15 };

/* Converts n <= STEP elements at p, which may be unaligned, to f32. */
static void widen(const unsigned char *p, pb_st_dtype from, size_t n, float *out)
{
    uint16_t half[STEP];
    if (from == PB_ST_F32) {
        memcpy(out, p, n * sizeof *out);
        return;
    }
    memcpy(half, p, n * sizeof *half);
    if (from == PB_ST_F16)
        for (size_t i = 0; i < n; i++) out[i] = pb_f16_to_f32(half[i]);
    else
        for (size_t i = 0; i < n; i++) out[i] = pb_bf16_to_f32(half[i]);
}

static void floats(const unsigned char *p, pb_st_dtype from, size_t n, pb_dtype to, void *out)
{
    float wide[STEP];
    if (to == PB_F32) {
        widen(p, from, n, out);
        return;
    }
    widen(p, from, n, wide);
    for (size_t i = 0; i < n; i++) ((uint16_t *)out)[i] = pb_f32_to_bf16(wide[i]);
}

/* Converts n integers of any supported type to int32. Returns false if a value does not fit. */
static bool integers(const unsigned char *p, pb_st_dtype from, size_t n, int32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        if (from == PB_ST_U8) {
            out[i] = p[i];
        } else if (from == PB_ST_I32) {
            memcpy(&out[i], p + i * sizeof *out, sizeof *out);
        } else {
            memcpy(&v, p + i * sizeof v, sizeof v);
            if (v < INT32_MIN || v > INT32_MAX) return false;
            out[i] = (int32_t)v;
        }
    }
    return true;
}

static bool same(pb_st_dtype from, pb_dtype to)
{
    return (from == PB_ST_F32 && to == PB_F32) || (from == PB_ST_BF16 && to == PB_BF16);
}

bool pb_st_can_convert(pb_st_dtype from, pb_dtype to)
{
    if (to == PB_I32) return from == PB_ST_I64 || from == PB_ST_I32 || from == PB_ST_U8;
    return (to == PB_F32 || to == PB_BF16) && (from == PB_ST_F32 || from == PB_ST_F16 || from == PB_ST_BF16);
}

static pb_status refuse(const pb_st_tensor *t, pb_dtype to)
{
    return pb_fail(PB_EFORMAT, "%s: tensor %.150s is %s and cannot be read as %s", t->file, t->name,
                   pb_st_dtype_name(t->dtype), pb_dtype_name(to));
}

static pb_status too_large(const pb_st_tensor *t)
{
    return pb_fail(PB_EINVAL, "%s: tensor %.150s: a value does not fit into 32 bits", t->file, t->name);
}

/* Converts n elements on the calling thread. Returns false if a value does not fit. */
static bool convert(const unsigned char *from, pb_st_dtype dtype, size_t n, pb_dtype to, unsigned char *out)
{
    const size_t in = pb_st_dtype_size(dtype), size = pb_dtype_size(to);
    bool fits = true;
    for (size_t at = 0; at < n; at += STEP) {
        const size_t len = n - at < STEP ? n - at : STEP;
        if (same(dtype, to)) memcpy(out + at * size, from + at * in, len * size);
        else if (to == PB_I32)
            fits = integers(from + at * in, dtype, len, (int32_t *)(void *)(out + at * size)) && fits;
        else floats(from + at * in, dtype, len, to, out + at * size);
    }
    return fits;
}

pb_status pb_st_convert(const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out)
{
    const size_t in = pb_st_dtype_size(t->dtype), size = pb_dtype_size(to), pieces = (n + PIECE - 1) / PIECE;
    const unsigned char *from = t->data + first * in;
    bool fits = true;
    if (!pb_st_can_convert(t->dtype, to)) return refuse(t, to);
#pragma omp parallel for reduction(&& : fits) if (pieces > 1)
    for (size_t p = 0; p < pieces; p++) {
        const size_t at = p * PIECE, len = n - at < PIECE ? n - at : PIECE;
        fits = convert(from + at * in, t->dtype, len, to, (unsigned char *)out + at * size) && fits;
    }
    return fits ? PB_OK : too_large(t);
}

pb_status pb_st_load(const pb_safetensors *f, const pb_st_tensor *t, size_t first, size_t n, pb_dtype to, void *out)
{
    const size_t in = pb_st_dtype_size(t->dtype), size = pb_dtype_size(to), pieces = (n + PIECE - 1) / PIECE;
    const bool direct = same(t->dtype, to);
    bool fits = true;
    char why[320] = ""; /* message of a failed read, copied because each thread has its own pb_error() */
    pb_status failed = PB_OK;
    size_t offset;
    int fd;
    if (!pb_st_can_convert(t->dtype, to)) return refuse(t, to);
    if (!pb_st_file(f, t, &fd, &offset)) return pb_st_convert(t, first, n, to, out);
#pragma omp parallel for reduction(&& : fits) if (pieces > 1)
    for (size_t p = 0; p < pieces; p++) {
        unsigned char room[PIECE * sizeof(int64_t)];
        const size_t at = p * PIECE, len = n - at < PIECE ? n - at : PIECE;
        unsigned char *dest = (unsigned char *)out + at * size, *buffer = direct ? dest : room;
        const pb_status s = pb_file_read_at(fd, t->file, offset + (first + at) * in, buffer, len * in);
        if (s == PB_OK && !direct) fits = convert(buffer, t->dtype, len, to, dest) && fits;
        if (s == PB_OK) continue;
#pragma omp critical
        failed = s, snprintf(why, sizeof why, "%s", pb_error());
    }
    if (failed != PB_OK) return pb_fail(failed, "%s (tensor %.150s)", why, t->name);
    return fits ? PB_OK : too_large(t);
}
