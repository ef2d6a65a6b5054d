/* corpus.h - batches for benchmarks and tests: the conversations that ship with the project, tokenized as bytes.
 *
 * The byte tokenizer (tokenizer.h) needs no files. A conversation becomes `<im_start>role\n content <im_end>\n ...`
 * (ChatML). The loss counts the bytes that an assistant wrote and the `<im_end>` after them. All conversations, in an
 * order drawn from the seed, form one stream of tokens. The stream is cut into windows of S+1 tokens; a batch row is a
 * window in which at least a quarter of the targets count. */
#ifndef PB_CORPUS_H
#define PB_CORPUS_H
#include "trainer/tokenizer/tokenizer.h"

typedef struct pb_corpus pb_corpus;

/* Reads a JSONL file (data/jsonl.h) with the template "bytes" and the mask "assistant". EINVAL: a malformed
 * line (the message has file:line), or no conversation; EPATH, EIO, ENOMEM. The caller closes *out. */
pb_status pb_corpus_open(const char *path, uint64_t seed, pb_corpus **out);
void pb_corpus_close(pb_corpus *c);
size_t pb_corpus_conversations(const pb_corpus *c);
size_t pb_corpus_tokens(const pb_corpus *c);

/* Fills batch number `index` of shape [B,S]; the corpus repeats from its start when its windows are used up. The caller
 * owns the arrays of B*S elements each. EINVAL: no window of this length has enough loss tokens. */
pb_status pb_corpus_batch(const pb_corpus *c, int B, int S, size_t index, int32_t *ids, int32_t *targets, float *mask);

/* Writes the path of the shipped corpus to `buffer` (n bytes) and returns `buffer`: $PB_DATA/corpus.jsonl
 * if the variable is set; else share/plumb/corpus.jsonl of the installation if it is readable; else the
 * file in the source tree. */
const char *pb_corpus_path(char *buffer, size_t n);
#endif
