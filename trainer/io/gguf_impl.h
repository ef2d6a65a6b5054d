/* gguf_impl.h - the members of an opened GGUF file, for the files that read it, and the conversion of its blocks. */
#ifndef PB_GGUF_IMPL_H
#define PB_GGUF_IMPL_H
#include "os/file.h"
#include "trainer/io/gguf.h"

/* The types of metadata values, with their numbers in the file. */
typedef enum pb_gguf_kind {
    PB_GGUF_U8,
    PB_GGUF_I8,
    PB_GGUF_U16,
    PB_GGUF_I16,
    PB_GGUF_U32,
    PB_GGUF_I32,
    PB_GGUF_REAL32,
    PB_GGUF_BOOL,
    PB_GGUF_TEXT,
    PB_GGUF_ARRAY,
    PB_GGUF_U64,
    PB_GGUF_I64,
    PB_GGUF_REAL64,
    PB_GGUF_NKINDS
} pb_gguf_kind;

typedef struct pb_gguf_entry {
    char *key;
    pb_gguf_kind kind, of;   /* of: type of the elements of an array */
    size_t n;                /* bytes of a text, elements of an array */
    const unsigned char *at; /* the value's bytes; of a text or an array those after its length */
} pb_gguf_entry;

struct pb_gguf {
    char *path;
    pb_map map;             /* {0} when the caller holds the bytes in memory */
    const unsigned char *p; /* [size] the whole file */
    size_t size, at;        /* at: where parsing continues */
    pb_gguf_entry *entry;   /* [entries] sorted by key */
    pb_gguf_tensor *tensor; /* [tensors] sorted by name */
    size_t entries, tensors;
};

/* Elements and bytes of a block. */
typedef struct pb_gguf_block {
    size_t elements, bytes;
} pb_gguf_block;
pb_gguf_block pb_gguf_block_of(pb_gguf_type t);

/* Value of an integer of the metadata; negative ones become 0. */
uint64_t pb_gguf_integer(pb_gguf_kind kind, const unsigned char *p);
size_t pb_gguf_kind_size(pb_gguf_kind kind); /* 0: a text or an array */
static inline uint64_t pb_gguf_u64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}
#endif
