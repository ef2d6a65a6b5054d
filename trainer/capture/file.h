/* file.h - what the writer and the reader of captures share: the texts of a file, and its checksum. */
#ifndef PB_CAPTURE_FILE_H
#define PB_CAPTURE_FILE_H
#include "trainer/capture/capture.h"
#include "trainer/io/safetensors.h"

enum { PB_CAPTURE_TEXT = 256, PB_CAPTURE_DIGITS = 17 };

/* The texts of a call. Each entry: X(name of the metadata, after "K."). */
#define PB_CAPTURE_CALL_MAP(X) X(op) X(implementation) X(dtype) X(shape) X(numbers)
typedef enum pb_capture_call_text {
#define X(name) PB_CALL_##name,
    PB_CAPTURE_CALL_MAP(X)
#undef X
        PB_CALL_TEXTS
} pb_capture_call_text;
extern const char *const pb_capture_call_names[PB_CALL_TEXTS], *const pb_capture_note_names[PB_CAPTURE_NOTES];

/* The element type of a tensor in the file. */
pb_st_dtype pb_capture_st_dtype(pb_dtype t);

/* The checksum: begin with 0, add all notes in the order of PB_CAPTURE_NOTE_MAP (one that is missing: ""), the texts of
 * all calls in the order of PB_CAPTURE_CALL_MAP, and all tensors in the order of their names. */
uint64_t pb_capture_add_text(uint64_t sum, const char *text);
uint64_t pb_capture_add_tensor(uint64_t sum, const char *name, pb_st_dtype t, const size_t shape[2], const void *data,
                               size_t bytes);
#endif
