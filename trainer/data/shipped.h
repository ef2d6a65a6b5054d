/* shipped.h - the conversations that ship with the project: where they are, and how benchmarks and tests read them; and
 * where the larger file of conversations is that the user may have made with scripts/corpus. */
#ifndef PB_SHIPPED_H
#define PB_SHIPPED_H
#include "trainer/data/dataset.h"

/* Writes the path of the shipped conversations to `buffer` (n bytes) and returns `buffer`: $PB_DATA/corpus.jsonl if the
 * variable is set; else share/plumb/corpus.jsonl of the installation if it is readable; else the file in the source
 * tree. */
const char *pb_shipped_path(char *buffer, size_t n);

/* Writes the path of the conversations that `train` uses without --data: those that scripts/corpus has made,
 * $XDG_DATA_HOME/plumb/texts.jsonl or ~/.local/share/plumb/texts.jsonl, if it is readable and PB_DATA is not set;
 * else pb_shipped_path(). Returns `buffer`. Benchmarks do not use it: their text must be the same everywhere. */
const char *pb_large_text_path(char *buffer, size_t n);

/* Opens a file of conversations as a stream (PB_PACK_STREAM) of full rows of S tokens. Uses the byte tokenizer, the
 * template "bytes" and the mask "assistant", so that no other file is needed. Rows in which less than a quarter of the
 * targets are loss tokens are left out. Errors as pb_dataset_open; a bad line is an error. The caller closes *out. */
pb_status pb_byte_stream_open(const char *path, int S, uint64_t seed, pb_dataset **out);
#endif
