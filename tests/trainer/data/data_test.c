/* data_test.c - tests of a data set's rows: their contents, isolation of packed conversations, and resuming at a
 * position. */
#include "tests/trainer/data/data_fixture.h"
#include "trainer/step/trainer.h"

/* Returns the number in the question (such as "q7") of the sample whose first token is ids[0]. */
static int sample_at(const int32_t *ids)
{
    int n = 0;
    const int32_t head[] = {PB_TOKEN_START, 'u', 's', 'e', 'r', '\n', 'q'};
    assert_memory_equal(ids, head, sizeof head);
    for (ids += 7; *ids >= '0' && *ids <= '9'; ids++) n = 10 * n + (*ids - '0');
    return n;
}

/* The position that predicts the end of a message counts if the message is the assistant's. Headers, ends and
 * newlines between messages never count. */
static void check_mask(const room *r, int at, bool assistant)
{
    if (r->ids[at] == PB_TOKEN_START || r->ids[at] == PB_TOKEN_END) assert_true(r->mask[at] == 0);
    if (r->targets[at] == PB_TOKEN_END) assert_true(r->mask[at] == (assistant ? 1 : 0));
    if (r->targets[at] == PB_TOKEN_START || r->targets[at] == '\n') assert_true(r->mask[at] == 0);
}

static void check_row(const room *r, int row, int align, int *seen)
{
    int start = 0;
    bool assistant = false;
    for (int s = 0; s < S; s++) {
        const int at = row * S + s;
        if (r->start[at] == s) start = s;
        assert_true(s < r->used[row] || (r->start[at] == s && r->mask[at] == 0));
        /* the row's last used position has a token of a conversation as its target */
        if (s + 1 == r->used[row]) assert_true(r->targets[at] != 0);
        assert_int_equal(r->start[at], start);
        assert_int_equal(r->pos[at], s - start);
        if (r->start[at] == s && r->ids[at] == PB_TOKEN_START) {
            seen[sample_at(r->ids + at)]++;
            assert_int_equal(s % align, 0);
        } else if (r->start[at] == s) assert_true(r->mask[at] == 0 && r->ids[at] == 0); /* padding */
        if (r->ids[at] == PB_TOKEN_START) assistant = r->targets[at] == 'a';
        check_mask(r, at, assistant);
        if (s + 1 < S && r->start[at + 1] == start) assert_int_equal(r->targets[at], r->ids[at + 1]);
    }
}

static void an_epoch_has_every_sample_once(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        const int pack = k > 0, align = k > 1 ? 16 : 1;
        pb_dataset_config cfg = config();
        pb_dataset_counts c;
        cfg.pack = pack ? PB_PACK_ON : PB_PACK_OFF;
        cfg.align = k > 1 ? align : 0;
        pb_dataset *d = open_samples(&cfg, SAMPLES, &c);
        room r;
        const pb_rows out = rows_of(&r);
        int seen[SAMPLES] = {0};
        double counted = 0;
        assert_int_equal(c.kept, SAMPLES);
        assert_true(pack ? pb_dataset_rows(d) * S < c.tokens * 8 / 5 : pb_dataset_rows(d) == SAMPLES);
        if (pack && align == 1) assert_true(pb_dataset_rows(d) * S < c.tokens * 5 / 4);
        for (size_t row = pb_dataset_rows(d); row; row--) {
            pb_dataset_next(d, 1, &out);
            check_row(&r, 0, align, seen);
            for (int i = 0; i < S; i++) counted += (double)r.mask[i];
        }
        for (int i = 0; i < SAMPLES; i++)
            if (seen[i] != 1) fail_msg("sample %d was there %d times", i, seen[i]);
        assert_int_equal(counted, c.counted);
        assert_int_equal(pb_dataset_position(d).epoch, 0);
        pb_dataset_next(d, B, &out);
        assert_int_equal(pb_dataset_position(d).epoch, 1);
        assert_int_equal(pb_dataset_position(d).row, B);
        pb_dataset_close(d);
    }
}

static void check_positions(pb_pack pack)
{
    pb_dataset_config cfg = config();
    pb_dataset_counts c;
    cfg.pack = pack;
    cfg.long_ones = PB_LONG_SPLIT;
    pb_dataset *a = open_samples(&cfg, SAMPLES, &c), *b = open_samples(&cfg, SAMPLES, &c);
    static room x, y;
    const pb_rows to_x = rows_of(&x), to_y = rows_of(&y);
    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    for (int i = 0; i < 37; i++) pb_dataset_next(a, 1, &to_x);
    const pb_data_position at = pb_dataset_position(a);
    assert_true(at.epoch > 1 && at.row > 0);
    CHECK_OK(pb_dataset_seek(b, at));
    for (int i = 0; i < 30; i++) {
        pb_dataset_next(a, B, &to_x);
        pb_dataset_next(b, B, &to_y);
        assert_memory_equal(&x, &y, sizeof x);
    }
    CHECK_FAILS(pb_dataset_seek(b, (pb_data_position){3, 4000}), PB_EINVAL, "the position is row 4000");
    pb_dataset_next(a, B, &to_x); /* after the refused seek, `b` continues where it was */
    pb_dataset_next(b, B, &to_y);
    assert_memory_equal(&x, &y, sizeof x);
    CHECK_OK(pb_dataset_seek(a, (pb_data_position){0, 0}));
    CHECK_OK(pb_dataset_seek(b, (pb_data_position){1, 0}));
    pb_dataset_next(a, B, &to_x);
    pb_dataset_next(b, B, &to_y);
    assert_true(memcmp(&x, &y, sizeof x) != 0); /* each epoch has another order */
    pb_dataset_close(b);
    cfg.seed++;
    b = open_samples(&cfg, SAMPLES, &c);
    pb_dataset_next(b, B, &to_y);
    assert_true(memcmp(&x, &y, sizeof x) != 0);
    pb_dataset_close(a);
    pb_dataset_close(b);
}

static void a_data_position_can_be_resumed(void **state)
{
    (void)state;
    check_positions(PB_PACK_ON);
    check_positions(PB_PACK_STREAM);
}

/* Splitting long conversations keeps every loss token exactly once, with the same (token, target) pairs, for any row
 * length. */
static void split_conversations_lose_nothing(void **state)
{
    (void)state;
    static room r;
    const pb_rows to = rows_of(&r);
    pb_dataset_counts c;
    pb_dataset_config cfg = config();
    size_t counted = 0, pairs[2] = {0};
    for (int S_ = S; S_ > 2; S_ = S_ * 2 / 3) {
        cfg.S = S_;
        cfg.long_ones = PB_LONG_SPLIT;
        pb_dataset *d = open_samples(&cfg, SAMPLES, &c);
        size_t hash = 0;
        for (size_t row = pb_dataset_rows(d); row-- > 0;) {
            pb_dataset_next(d, 1, &to);
            for (int i = 0; i < S_; i++)
                if (r.mask[i] > 0) hash += (size_t)(r.ids[i] * 1009 + r.targets[i]) * 2654435761u;
        }
        if (!counted) counted = c.counted, pairs[0] = hash;
        assert_int_equal(c.counted, counted);
        assert_int_equal(hash, pairs[0]);
        assert_int_equal(c.kept, SAMPLES);
        pb_dataset_close(d);
    }
}

/* Conversations are packed into one row when their lengths add up to exactly the row length. */
static void packing_fills_rows_completely(void **state)
{
    (void)state;
    enum { SHORT = 6 };
    static room r;
    const pb_rows to = rows_of(&r);
    pb_dataset_counts c;
    pb_dataset_config cfg = config();
    char path[] = "/tmp/pb_data_testXXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    assert_non_null(f);
    for (int i = 0; i < SHORT; i++) fputs("{\"instruction\":\"x\",\"response\":\"y\"}\n", f); /* 22 positions each */
    fclose(f);
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    for (int fit = 1; fit <= 3; fit++) {
        cfg.S = 22 * fit;
        CHECK_OK(pb_dataset_open(path, t, &cfg, &c, &d));
        assert_int_equal(pb_dataset_rows(d), SHORT / fit);
        pb_dataset_next(d, 1, &to);
        assert_int_equal(r.used[0], cfg.S);
        pb_dataset_blank(d, 0, 1, &to); /* a row without a conversation */
        assert_int_equal(r.used[0], 0);
        for (int i = 0; i < cfg.S; i++) assert_true(r.mask[i] == 0 && r.start[i] == i && r.pos[i] == 0);
        assert_int_equal(pb_dataset_position(d).row, 1);
        pb_dataset_close(d);
    }
    pb_tokenizer_close(t);
    remove(path);
}

/* Every conversation is in exactly one of the two data sets, training or held out. */
static void training_and_held_out_data_are_disjoint(void **state)
{
    (void)state;
    pb_dataset_counts c[2];
    pb_dataset_config cfg = config();
    cfg.held_out = 0.25;
    for (int part = 0; part < 2; part++) {
        cfg.evaluation = part;
        pb_dataset_close(open_samples(&cfg, SAMPLES, &c[part]));
    }
    assert_int_equal(c[0].kept + c[1].kept, SAMPLES);
    assert_int_equal(c[0].elsewhere, c[1].kept);
    assert_int_equal(c[1].elsewhere, c[0].kept);
    assert_in_range(c[1].kept, SAMPLES / 8, SAMPLES / 2);
    cfg.evaluation = false;
    cfg.held_out = 1;
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    CHECK_FAILS(pb_dataset_open("/dev/null", t, &cfg, c, &d), PB_EINVAL, "held-out share of 1");
    pb_tokenizer_close(t);
}

static void long_empty_and_bad_lines_are_counted(void **state)
{
    (void)state;
    static const char lines[] = "{\"instruction\":\"abcdefghij\",\"response\":\"0123456789\"}\n"
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n\n{]\n"
                                "{\"instruction\":\"x\",\"response\":\"y\"}\n";
    /* The last line renders as <im_start>user\nx<im_end>\n<im_start>assistant\ny<im_end>\n: 23 tokens, so 22 positions.
     * The first line has 41 tokens, so 40 positions. */
    static const struct {
        pb_long how;
        int S;
        size_t kept, cut, dropped, empty, bad, tokens, counted;
    } cases[] = {
        {PB_LONG_CUT, 100, 2, 0, 0, 1, 1, 40 + 22, 11 + 2},
        {PB_LONG_CUT, 30, 2, 1, 0, 1, 1, 30 + 22, 2 + 2},
        {PB_LONG_CUT, 20, 1, 2, 0, 2, 1, 20, 1},
        {PB_LONG_SPLIT, 30, 2, 0, 0, 1, 1, 40 + 22, 11 + 2},     /* both pieces of the first sample have loss tokens */
        {PB_LONG_SPLIT, 20, 2, 0, 0, 1, 1, 20 + 20 + 2, 11 + 2}, /* the first piece of the first sample has none */
        {PB_LONG_SPLIT, 7, 2, 0, 0, 1, 1, 0, 11 + 2},
        {PB_LONG_DROP, 30, 1, 0, 1, 1, 1, 22, 2},
        {PB_LONG_REFUSE, 30, 1, 0, 0, 1, 2, 22, 2},
    };
    char path[] = "/tmp/pb_data_testXXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    pb_dataset_counts c;
    pb_dataset_config cfg = config();
    assert_non_null(f);
    fputs(lines, f);
    fclose(f);
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, ":4: column");
    cfg.bad_lines = PB_BAD_LINES_SKIP;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cfg.S = cases[i].S;
        cfg.long_ones = cases[i].how;
        CHECK_OK(pb_dataset_open(path, t, &cfg, &c, &d));
        assert_int_equal(c.lines.lines, 5);
        assert_int_equal(c.lines.blank, 1);
        assert_int_equal(c.lines.bad, cases[i].bad);
        assert_int_equal(c.lines.samples, c.kept + c.dropped + c.empty);
        assert_int_equal(c.kept, cases[i].kept);
        assert_int_equal(c.cut, cases[i].cut);
        assert_int_equal(c.dropped, cases[i].dropped);
        assert_int_equal(c.empty, cases[i].empty);
        if (cases[i].tokens) assert_int_equal(c.tokens, cases[i].tokens);
        assert_int_equal(c.counted, cases[i].counted);
        pb_dataset_close(d);
    }
    cfg.S = 100;
    cfg.mask = PB_MASK_ALL; /* with this mask every token except a conversation's first is a target */
    CHECK_OK(pb_dataset_open(path, t, &cfg, &c, &d));
    assert_int_equal(c.kept, 3);
    assert_int_equal(c.tokens, 40 + 8 + 22);
    assert_int_equal(c.counted, c.tokens);
    pb_dataset_close(d);
    cfg.mask = PB_MASK_ASSISTANT;
    cfg.S = 5;
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, "no conversation in it to learn from");
    cfg.S = 100, cfg.held_out = 1e-9, cfg.evaluation = true;
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, "with a held-out share of 1e-09, none of its ");
    cfg.held_out = 1 - 1e-9, cfg.evaluation = false;
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, "conversations is left to train on");
    cfg.held_out = 0;
    cfg.S = 0;
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, "rows of 0 tokens");
    pb_tokenizer_close(t);
    remove(path);
}

/* ---- packed rows in the trainer ---------------------------------------------------------------------- */

static pb_trainer *open_model(pb_ctx *ctx, const char *model, pb_tuning tuning, int rows, int length, bool packed)
{
    const pb_geometry *g;
    pb_trainer *t = NULL;
    CHECK_OK(pb_geometry_find(model, &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.tuning = tuning;
    c.model.rank = 4;
    c.model.random_b = true;
    c.model.targets = (1u << PB_NTARGETS) - 1;
    c.B = rows;
    c.S = length;
    c.packed = packed;
    CHECK_OK(pb_trainer_open(ctx, &c, &t));
    return t;
}

/* Runs forward, loss and backward; adds the loss to *loss and the gradients to sum (allocated when NULL). *n: number
 * of gradients. */
static double *add_step(pb_ctx *ctx, pb_trainer *t, const pb_batch *b, double *loss, double *sum, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    double mean;
    CHECK_OK(pb_trainer_set_batch(t, b));
    for (int i = PB_PHASE_forward; i <= PB_PHASE_backward; i++) CHECK_OK(pb_phases[i](ctx, t));
    CHECK_OK(pb_trainer_loss(t, &mean));
    *loss += mean;
    *n = 0;
    if (!sum) sum = calloc(m->trained, sizeof *sum);
    assert_non_null(sum);
    for (int i = 0; i < m->n; i++)
        for (size_t k = 0; m->params[i].trained && k < pb_param_n(&m->params[i]); k++)
            sum[(*n)++] += (double)m->params[i].grad[k];
    return sum;
}

static double relative(const double *a, const double *b, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    assert_true(norm > 0);
    return sqrt(diff / norm);
}

static void check_isolation(pb_ctx *ctx, const char *model, pb_tuning tuning)
{
    const pb_dataset_config cfg = config();
    pb_dataset_counts c;
    pb_dataset *d = open_samples(&cfg, SAMPLES, &c);
    static room r;
    const pb_rows out = rows_of(&r);
    pb_dataset_next(d, B, &out);
    double count = 0, packed = 0, alone = 0, *x = NULL, *y = NULL;
    size_t n;
    int samples = 0;
    for (int i = 0; i < T; i++) count += (double)r.mask[i];
    pb_trainer *t = open_model(ctx, model, tuning, B, S, true);
    x = add_step(ctx, t, &(pb_batch){r.ids, r.targets, r.mask, count, r.start, r.pos}, &packed, x, &n);
    pb_trainer_close(t);
    for (int i = 0, end; i < T; i = end) {
        for (end = i + 1; end % S && r.start[end] != end % S;) end++;
        if (r.ids[i] != PB_TOKEN_START) continue;
        t = open_model(ctx, model, tuning, 1, end - i, false);
        y = add_step(ctx, t, &(pb_batch){r.ids + i, r.targets + i, r.mask + i, count}, &alone, y, &n);
        pb_trainer_close(t);
        samples++;
    }
    assert_true(samples >= 4);
    const double error = relative(x, y, n);
    if (!(fabs(packed - alone) <= 1e-6 * alone)) fail_msg("%s: loss %.9g packed, %.9g alone", model, packed, alone);
    if (!(error <= 1e-6)) fail_msg("%s: gradients of packed rows differ by %g", model, error);
    free(x);
    free(y);
    pb_dataset_close(d);
}

static void packed_rows_equal_each_sample_alone(void **state)
{
    check_isolation(*state, "tiny", PB_FULL);
    check_isolation(*state, "tiny", PB_LORA);
    check_isolation(*state, "tiny-qwen3", PB_FULL);
    check_isolation(*state, "doge-tiny", PB_FULL);
}

static void invalid_packing_is_refused(void **state)
{
    int32_t ids[8] = {0}, start[8] = {0}, pos[8] = {0};
    float mask[8] = {0};
    pb_batch b = {ids, ids, mask, 0, start, pos};
    pb_trainer *t = open_model(*state, "tiny", PB_LORA, 2, 4, true);
    CHECK_OK(pb_trainer_set_batch(t, &b));
    start[5] = 2;
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "start 2 of token 5 is outside 0 to 1");
    start[5] = -1;
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "start -1 of token 5");
    start[5] = 1, pos[7] = 4;
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "position 4 of token 7 is outside 0 to 3");
    pos[7] = 3, b.pos = NULL;
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "start and pos must be given");
    pb_trainer_close(t);
    t = open_model(*state, "tiny", PB_LORA, 2, 4, false);
    CHECK_FAILS(pb_trainer_set_batch(t, &b), PB_EINVAL, "start and pos must be NULL");
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_has_every_sample_once),
        cmocka_unit_test(a_data_position_can_be_resumed),
        cmocka_unit_test(split_conversations_lose_nothing),
        cmocka_unit_test(packing_fills_rows_completely),
        cmocka_unit_test(training_and_held_out_data_are_disjoint),
        cmocka_unit_test(long_empty_and_bad_lines_are_counted),
        cmocka_unit_test(packed_rows_equal_each_sample_alone),
        cmocka_unit_test(invalid_packing_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
