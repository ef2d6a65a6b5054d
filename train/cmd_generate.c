/* cmd_generate.c - `train generate`: prints what a model writes after a prompt. Standard output has the text alone;
 * what was done goes to standard error. */
#include <limits.h>
#include <string.h>

#include "train/job.h"
#include "trainer/data/encode.h"
#include "trainer/generate/generate.h"
#include "trainer/hf/hf_stop.h"
#include "trainer/tokenizer/text_stream.h"
#include "trainer/tokenizer/unicode.h"

typedef struct writer {
    pb_train_options o; /* of the job: quiet, because its notes go to standard output */
    pb_job *j;
    pb_ids prompt;
    pb_text_stream stream;
    pb_bytes text;                 /* what is printed next */
    int32_t stop[PB_STOP_IDS + 1]; /* [stops] ids that end the text */
    int stops;
    bool ids, some; /* ids: --ids; some: an id was printed */
} writer;

/* Checks that a text of the command line is UTF-8, which templates need. */
static pb_status check_text(const char *option, const char *text)
{
    const size_t n = text ? strlen(text) : 0, valid = n ? pb_tok_valid(text, n) : 0;
    if (valid == n) return PB_OK;
    return pb_fail(PB_EINVAL, "--%s is not UTF-8 from byte %zu on", option, valid + 1);
}

static pb_message message(pb_chat_role role, const char *text)
{
    return (pb_message){.role = role, .content = {text, strlen(text)}};
}

static pb_status encode_chat(writer *w, const pb_train_options *o)
{
    pb_message m[2] = {message(PB_CHAT_SYSTEM, o->system ? o->system : ""), message(PB_CHAT_USER, o->prompt)};
    const pb_chat chat = {.message = o->system ? m : m + 1, .n = o->system ? 2 : 1};
    pb_samples samples = {0};
    pb_status s = pb_encode_chat(w->j->tokenizer, &chat, &w->j->data_cfg.chat, PB_MASK_ALL, &samples);
    if (s == PB_OK) {
        w->prompt = samples.ids;
        samples.ids = (pb_ids){0};
    }
    pb_samples_free(&samples);
    return s;
}

/* Converts the prompt to ids, with the chat template or, with --raw, as transformers' tokenizers convert a text. */
static pb_status encode(writer *w, const pb_train_options *o)
{
    if (o->raw && o->system) return pb_fail(PB_EINVAL, "--system needs a chat template, which --raw leaves out");
    PB_TRY(check_text("prompt", o->prompt));
    PB_TRY(check_text("system", o->system));
    PB_TRY(o->raw ? pb_tokenizer_encode(w->j->tokenizer, o->prompt, strlen(o->prompt), PB_TOK_TEMPLATE, &w->prompt)
                  : encode_chat(w, o));
    const int most = w->j->cfg.model.geometry->max_pos;
    if (w->prompt.n == 0) return pb_fail(PB_EINVAL, "--prompt has no tokens");
    if (w->prompt.n <= (size_t)most) return PB_OK;
    return pb_fail(PB_EINVAL, "--prompt has %zu tokens%s, but %s has only %d positions", w->prompt.n,
                   o->raw ? "" : " with its chat template", o->model, most);
}

/* The ids that end the text: those of the model's folder or file, and with a chat template the one that ends a
 * message. */
static pb_status find_stops(writer *w)
{
    pb_stop_ids of_folder = {.n = 0};
    if (w->j->input.path) PB_TRY(pb_hf_stop_ids(w->j->input.path, w->j->cfg.model.geometry->V, &of_folder));
    w->stops = of_folder.n;
    memcpy(w->stop, of_folder.id, (size_t)of_folder.n * sizeof *w->stop);
    if (!w->j->data_cfg.chat.answer) return PB_OK;
    return pb_tokenizer_special(w->j->tokenizer, pb_chat_end(w->j->data_cfg.chat.family), &w->stop[w->stops++]);
}

static void print_text(writer *w)
{
    if (w->text.n) fwrite(w->text.p, 1, w->text.n, stdout);
    fflush(stdout);
    w->text.n = 0;
}

static pb_status print_token(void *self, int32_t id)
{
    writer *w = self;
    if (w->ids) {
        printf("%s%d", w->some ? " " : "", id);
        fflush(stdout);
        w->some = true;
    } else {
        PB_TRY(pb_text_stream_add(&w->stream, id, &w->text));
        print_text(w);
    }
    return ferror(stdout) ? pb_fail(PB_EIO, "standard output could not be written completely") : PB_OK;
}

static void print_summary(const writer *w, const pb_generated *g)
{
    const double rest = g->tokens - 1;
    fprintf(stderr, "train: %d tokens after a prompt of %zu, stopped %s; prompt %.3g s", g->tokens, w->prompt.n,
            pb_ended_words[g->ended], g->prompt_s);
    if (rest > 0 && g->rest_s > 0) fprintf(stderr, ", then %.3g tokens/s", rest / g->rest_s);
    fprintf(stderr, "\n");
}

static pb_status write_answer(writer *w, const pb_train_options *o)
{
    const pb_generation g = {.prompt = w->prompt.id,
                             .n = (int)w->prompt.n,
                             .most = (int)o->max_tokens,
                             .sampling = {o->temperature, o->top_p},
                             .seed = (uint64_t)o->seed,
                             .stop = w->stop,
                             .nstop = w->stops,
                             .each = print_token,
                             .self = w};
    pb_generated done;
    pb_status s = pb_generate(&w->j->ctx, w->j->trainer, &g, &done);
    const pb_status ended = pb_text_stream_end(&w->stream, &w->text);
    print_text(w);
    printf("\n");
    fflush(stdout);
    if (s == PB_OK) s = ended;
    if (s == PB_OK && !o->quiet) print_summary(w, &done);
    return s;
}

/* Everything that can be wrong with the options is found before the weights are read. */
static pb_status generate(writer *w, const pb_train_options *o)
{
    const pb_sampling sampling = {o->temperature, o->top_p};
    if (!o->prompt) return pb_fail(PB_EINVAL, "generate needs --prompt TEXT");
    if (o->max_tokens > INT_MAX / 2) return pb_fail(PB_EINVAL, "--max-tokens %ld is too large", o->max_tokens);
    PB_TRY(pb_sampling_check(&sampling));
    PB_TRY(pb_job_configure(&w->o, w->j));
    w->j->data_cfg.chat.answer = !o->raw;
    PB_TRY(pb_input_open_tokenizer(&w->j->input, &w->j->data_cfg.chat, &w->j->tokenizer));
    PB_TRY(encode(w, o));
    PB_TRY(find_stops(w));
    const long positions = (long)w->prompt.n + o->max_tokens - 1, most = w->j->cfg.model.geometry->max_pos;
    pb_generate_configure(&w->j->cfg, (int)(positions < most ? positions : most));
    PB_TRY(pb_job_open(w->j, false));
    w->stream.t = w->j->tokenizer;
    return write_answer(w, o);
}

pb_status pb_train_generate(const pb_train_options *o)
{
    pb_job j = {0};
    writer w = {.o = *o, .j = &j, .ids = o->ids};
    w.o.quiet = true;
    const pb_status s = pb_job_explain_lost_device(&j, generate(&w, o));
    pb_text_stream_free(&w.stream);
    pb_bytes_free(&w.text);
    pb_ids_free(&w.prompt);
    pb_job_close(&j);
    return s;
}
