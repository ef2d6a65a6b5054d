/* gguf_blocks.c - converts the blocks of GGUF tensors to f32 and bf16, with several threads.
 *
 * The layouts are those of ggml's structs block_q4_0 to block_q6_K; the values are computed in f32 as ggml's functions
 * dequantize_row_* do. d, m: scale and offset of a block, in f16. */
#include <stdio.h>
#include <string.h>

#include "trainer/io/gguf_impl.h"
#include "trainer/io/half.h"

/* LARGEST: elements of the largest block. PIECE: elements that a thread converts at a time, a multiple of every
 * block. */
enum { LARGEST = 256, PIECE = 1 << 15, HALF = 16, PIECE_BYTES = PIECE * 4 };

static uint16_t u16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32(const unsigned char *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }
static float f16(const unsigned char *p) { return pb_f16_to_f32(u16(p)); }

/* ---- one block ---------------------------------------------------------------------------------------- */

static void unpack_F32(const unsigned char *p, float *out) { memcpy(out, p, sizeof *out); }
static void unpack_F16(const unsigned char *p, float *out) { *out = f16(p); }
static void unpack_BF16(const unsigned char *p, float *out) { *out = pb_bf16_to_f32(u16(p)); }

/* d (q - 8); the low halves of the bytes are elements 0..15, the high halves 16..31. */
static void unpack_Q4_0(const unsigned char *p, float *out)
{
    const float d = f16(p);
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)((p[2 + i] & 15) - 8) * d;
        out[i + HALF] = (float)((p[2 + i] >> 4) - 8) * d;
    }
}

/* d q + m. */
static void unpack_Q4_1(const unsigned char *p, float *out)
{
    const float d = f16(p), m = f16(p + 2);
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)(p[4 + i] & 15) * d + m;
        out[i + HALF] = (float)(p[4 + i] >> 4) * d + m;
    }
}

/* d (q - 16); bit 4 of element i is bit i of `high`. */
static void unpack_Q5_0(const unsigned char *p, float *out)
{
    const float d = f16(p);
    const uint32_t high = u32(p + 2);
    for (int i = 0; i < HALF; i++) {
        const uint32_t a = (high >> i & 1) << 4, b = (high >> (i + HALF) & 1) << 4;
        out[i] = (float)((int)((p[6 + i] & 15u) | a) - 16) * d;
        out[i + HALF] = (float)((int)((uint32_t)(p[6 + i] >> 4) | b) - 16) * d;
    }
}

/* d q + m. */
static void unpack_Q5_1(const unsigned char *p, float *out)
{
    const float d = f16(p), m = f16(p + 2);
    const uint32_t high = u32(p + 4);
    for (int i = 0; i < HALF; i++) {
        const uint32_t a = (high >> i & 1) << 4, b = (high >> (i + HALF) & 1) << 4;
        out[i] = (float)((p[8 + i] & 15u) | a) * d + m;
        out[i + HALF] = (float)((uint32_t)(p[8 + i] >> 4) | b) * d + m;
    }
}

static void unpack_Q8_0(const unsigned char *p, float *out)
{
    const float d = f16(p);
    for (int i = 0; i < 2 * HALF; i++) out[i] = (float)(int8_t)p[2 + i] * d;
}

/* Scale and offset of the part j of a Q4_K block, 6 bits each. Those of parts 0 to 3 are the lower 6 bits of bytes 0 to
 * 3 and 4 to 7. Of those of parts 4 to 7, the lower 4 bits are the halves of bytes 8 to 11, and the upper 2 bits are
 * the upper 2 bits of bytes 0 to 3 and 4 to 7. */
static void scale_and_min(int j, const unsigned char *s, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
        return;
    }
    *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
}

/* (d scale) q - (dmin min): eight parts of 32 elements; two parts share 32 bytes. */
static void unpack_Q4_K(const unsigned char *p, float *out)
{
    const float d = f16(p), dmin = f16(p + 2);
    for (int j = 0; j < 8; j++) {
        const unsigned char *q = p + 16 + 32 * (j / 2);
        int scale, min;
        scale_and_min(j, p + 4, &scale, &min);
        const float part = d * (float)scale, offset = dmin * (float)min;
        for (int i = 0; i < 32; i++) out[32 * j + i] = part * (float)(j % 2 ? q[i] >> 4 : q[i] & 15) - offset;
    }
}

/* (d scale) (q - 32): 16 parts of 16 elements, the lower four bits of an element in p[0..128), the upper two in
 * p[128..192), the scales in p[192..208). */
static void unpack_Q6_K(const unsigned char *p, float *out)
{
    const float d = f16(p + 208);
    for (int i = 0; i < LARGEST; i++) {
        const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
        const int low = p[64 * half + 32 * (quarter % 2) + at] >> 4 * (quarter / 2) & 15;
        const int high = p[128 + 32 * half + at] >> 2 * quarter & 3;
        const float part = d * (float)(int8_t)p[192 + i / 16];
        out[i] = part * (float)((low | high << 4) - 32);
    }
}

static void (*const unpack[PB_GGUF_NTYPES])(const unsigned char *p, float *out) = {
#define BLOCK(name, ...) unpack_##name,
#include "trainer/io/gguf.def"
};

/* ---- a range of elements ------------------------------------------------------------------------------ */

static void store(const float *from, size_t n, pb_dtype to, void *out, size_t at)
{
    if (to == PB_F32) memcpy((float *)out + at, from, n * sizeof *from);
    else
        for (size_t i = 0; i < n; i++) ((uint16_t *)out)[at + i] = pb_f32_to_bf16(from[i]);
}

/* Converts elements [first, first+n) to out[at..at+n). `p` holds the blocks from the one that contains `first` on. */
static void convert(pb_gguf_type type, const unsigned char *p, size_t first, size_t n, pb_dtype to, void *out,
                    size_t at)
{
    const pb_gguf_block b = pb_gguf_block_of(type);
    float values[LARGEST];
    for (size_t done = 0; done < n; p += b.bytes) {
        const size_t skip = (first + done) % b.elements, left = b.elements - skip;
        const size_t len = left < n - done ? left : n - done;
        unpack[type](p, values);
        store(values + skip, len, to, out, at + done);
        done += len;
    }
}

/* Converts elements [first, first+n), at most PIECE, whose blocks it reads from the file instead of through its
 * mapping: this avoids page faults, and SIGBUS if the file became shorter. */
static pb_status load_piece(const pb_gguf *f, const pb_gguf_tensor *t, size_t first, size_t n, pb_dtype to, void *out,
                            size_t at)
{
    const pb_gguf_block b = pb_gguf_block_of(t->type);
    const size_t from = first / b.elements * b.bytes, end = (first + n + b.elements - 1) / b.elements * b.bytes;
    unsigned char room[PIECE_BYTES + LARGEST * 4];
    if (!f->map.p) {
        convert(t->type, t->data + from, first, n, to, out, at);
        return PB_OK;
    }
    PB_TRY(pb_file_read_at(f->map.fd, t->file, (size_t)(t->data - f->p) + from, room, end - from));
    convert(t->type, room, first, n, to, out, at);
    return PB_OK;
}

pb_status pb_gguf_load(const pb_gguf *f, const pb_gguf_tensor *t, size_t first, size_t n, pb_dtype to, void *out)
{
    const size_t pieces = (n + PIECE - 1) / PIECE;
    char why[320] = ""; /* message of a failed read, copied because each thread has its own pb_error() */
    pb_status failed = PB_OK;
#pragma omp parallel for if (pieces > 1)
    for (size_t p = 0; p < pieces; p++) {
        const size_t at = p * PIECE, len = n - at < PIECE ? n - at : PIECE;
        const pb_status s = load_piece(f, t, first + at, len, to, out, at);
        if (s == PB_OK) continue;
#pragma omp critical
        failed = s, snprintf(why, sizeof why, "%s", pb_error());
    }
    return failed == PB_OK ? PB_OK : pb_fail(failed, "%s (tensor %.150s)", why, t->name);
}
