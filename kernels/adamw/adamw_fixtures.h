/* adamw_fixtures.h - results of torch.optim.AdamW (PyTorch 2.11.0) for 8 elements in 3 steps with
 * betas (0.9, 0.95), eps 1e-08, weight decay 0.1. Written by scripts/fixtures/adamw_fixtures.py. */
#ifndef PB_ADAMW_FIXTURES_H
#define PB_ADAMW_FIXTURES_H
/* clang-format off */
static const float fixture_lr[1][3] = {
    {1.000000000e-02f, 5.000000000e-03f, 2.000000000e-02f},
};
static const float fixture_grad[3][8] = {
    {1.000000000e-01f, -2.000000000e-01f, 3.000000000e-01f, 1.000000000e+00f, -1.000000000e-03f, 0.000000000e+00f, 5.000000000e+00f, -7.000000000e-01f},
    {-4.000000000e-01f, -1.000000000e-01f, 2.500000000e-01f, 2.000000000e+00f, 2.000000000e-03f, 0.000000000e+00f, -5.000000000e+00f, 6.000000000e-01f},
    {5.000000000e-02f, 3.000000000e-01f, -3.500000000e-01f, -1.000000000e+00f, 1.000000000e-06f, 1.000000000e-09f, 5.000000000e-01f, 2.000000000e-01f},
};
static const float fixture_w0[1][8] = {
    {5.000000000e-01f, -1.250000000e+00f, 2.000000000e+00f, 0.000000000e+00f, -3.000000000e-03f, 7.500000000e-01f, 1.000000000e-04f, -3.000000000e+00f},
};
/* After the third step. */
static const float fixture_w[1][8] = {
    {4.980967641e-01f, -1.232591987e+00f, 1.975207329e+00f, -2.315898612e-02f, -5.239485763e-04f, 7.466808558e-01f, -9.704059921e-03f, -2.981789589e+00f},
};
static const float fixture_m[1][8] = {
    {-2.290000021e-02f, 4.800000694e-03f, 1.179999951e-02f, 1.609999985e-01f, 9.910001245e-05f, 1.000000013e-10f, 4.999993835e-03f, 1.730000228e-02f},
};
static const float fixture_v[1][8] = {
    {8.176251315e-03f, 6.780000404e-03f, 1.315500028e-02f, 2.851250172e-01f, 2.351250714e-07f, 4.999999841e-20f, 2.328125000e+00f, 4.121125117e-02f},
};
/* clang-format on */
#endif
