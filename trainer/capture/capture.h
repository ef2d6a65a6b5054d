/* capture.h - captures: files with the tensors and arguments of op calls, so that these calls can be run again on
 * another machine, backend or implementation (replay.h, `bench replay`).
 *
 * A capture is a safetensors file (trainer/io/safetensors.h). Its tensors are
 *
 *     K/before/NAME   NAME of call K before the call: an input, or a tensor that the op reads and writes
 *     K/after/NAME    NAME after the call: an output, or a tensor that the op reads and writes
 *     extra/NAME      a tensor that explains the calls, and is no argument of them
 *
 * K is 0, 1, ... in the order of the calls; NAME is that of the op's bind. Each has the shape [rows,cols], without
 * gaps. A list of addresses of other tensors is not in the file, because bind makes it anew. The metadata are
 *
 *     format            "plumb capture 1"
 *     calls             how many calls; 0: the file has extra tensors only
 *     K.op              for example rmsnorm_fwd
 *     K.implementation  backend and implementation that ran, for example cpu.avx2
 *     K.dtype, K.shape  type of the op's tensors, and its shape as in keys of results: f32, B1.S256.D576.p0
 *     K.numbers         arguments that no shape determines: eps=1e-06
 *     checksum          of all these texts and tensors, 16 hexadecimal digits; a file with another one is damaged
 *
 * and the notes below, if they are known. A file is written completely or not at all, and a file of more than the limit
 * is not begun. */
#ifndef PB_CAPTURE_H
#define PB_CAPTURE_H
#include "os/disk.h"
#include "trainer/capture/call.h"

#define PB_CAPTURE_FORMAT "plumb capture 1"
enum { PB_CAPTURE_CALLS = 16 };

/* Where a capture comes from. Each entry: X(key of the metadata, meaning). */
#define PB_CAPTURE_NOTE_MAP(X)                                                                                         \
    X(program, "the program and its version")                                                                          \
    X(rank, "rank that captured")                                                                                      \
    X(step, "training step, from 1")                                                                                   \
    X(layer, "layer, from 0")                                                                                          \
    X(phase, "phase of the step")                                                                                      \
    X(tensor, "parameter or activation")                                                                               \
    X(why, "why it was captured")
typedef enum pb_capture_key {
#define X(key, what) PB_NOTE_##key,
    PB_CAPTURE_NOTE_MAP(X)
#undef X
        PB_CAPTURE_NOTES
} pb_capture_key;

typedef struct pb_capture pb_capture;

/* Begins a capture of at most `limit` bytes of tensors. ENOMEM. Its members are copies: the tensors may change at
 * once. */
pb_status pb_capture_open(size_t limit, pb_capture **out);
void pb_capture_close(pb_capture *c); /* NULL is allowed */

/* Sets a note. EINVAL: it is longer than 255 bytes. */
pb_status pb_capture_note(pb_capture *c, pb_capture_key key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds an extra tensor: rows of `cols` elements, one after the other, in device memory. Host sync. EINVAL: the
 * capture would be larger than its limit. ENOMEM, EDEVICE. */
pb_status pb_capture_extra(pb_capture *c, pb_ctx *ctx, const char *name, const void *device, size_t rows, size_t cols,
                           pb_dtype dtype);
/* Begin and end a call. pb_capture_after notes which implementation ran, `impl` of the context's backend. Host syncs.
 * EINVAL: more than PB_CAPTURE_CALLS calls, or larger than the limit. */
pb_status pb_capture_before(pb_capture *c, const pb_call *call);
pb_status pb_capture_after(pb_capture *c, const pb_call *call, const pb_impl *impl);
/* Runs a call between the two. */
pb_status pb_capture_run(pb_capture *c, pb_call *call);
/* Writes the file. EPATH, EIO; ENOMEM. */
pb_status pb_capture_write(pb_capture *c, const pb_disk *disk, const char *path);
#endif
