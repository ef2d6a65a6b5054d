/* data.h - text to batches: the conversations that ship with the project, as bytes.
 *
 * The byte tokenizer needs no files: ids 0..255 are the bytes of UTF-8 text, then the special tokens
 * below. A conversation becomes  <im_start>role\n content <im_end>\n ...  (ChatML); the loss counts the
 * bytes an assistant wrote and the <im_end> that ends them. All conversations in a seeded order form one
 * stream; row i of S tokens is its i-th window of S+1 tokens in which at least a quarter counts. */
#ifndef PB_DATA_H
#define PB_DATA_H
#include "trainer/trainer.h"

enum { PB_TOKEN_START = 256, PB_TOKEN_END, PB_BYTE_VOCAB };

typedef struct pb_corpus pb_corpus;

/* Reads the JSONL of data/jsonl.h through the template "bytes" and the mask "assistant"; the first bad line ends the
 * reading, with file:line. */
pb_status pb_corpus_open(const char *path, uint64_t seed, pb_corpus **out);
void pb_corpus_close(pb_corpus *c);
size_t pb_corpus_conversations(const pb_corpus *c);
size_t pb_corpus_tokens(const pb_corpus *c);

/* Batch number `index` of shape [B,S] (wraps around at the corpus's end). The arrays are the caller's,
 * [B*S] each. EINVAL: no window of this length has enough counted tokens. */
pb_status pb_corpus_batch(const pb_corpus *c, int B, int S, size_t index, int32_t *ids, int32_t *targets, float *mask);

/* Where the shipped corpus lies: $PB_DATA, beside the program (../share/plumb), or the source tree. */
const char *pb_corpus_path(char *buffer, size_t n);
#endif
