/* sha256.h - SHA-256 (FIPS 180-4) of bytes in memory, for fixtures that store only a digest. */
#ifndef PB_TEST_SHA256_H
#define PB_TEST_SHA256_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t sha_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* Returns the first 32 bits of the fraction of prime^power: the constants of the standard are those of square and cube
 * roots. */
static inline uint32_t sha_fraction(int prime, long double power)
{
    const long double root = powl((long double)prime, power);
    return (uint32_t)((root - floorl(root)) * 4294967296.0L);
}

static inline void sha_constants(uint32_t h[8], uint32_t k[64])
{
    for (int n = 0, p = 2; n < 64; p++) {
        int d = 2;
        while (d * d <= p && p % d) d++;
        if (d * d <= p) continue;
        if (n < 8) h[n] = sha_fraction(p, 0.5L);
        k[n++] = sha_fraction(p, 1.0L / 3.0L);
    }
}

static inline void sha_block(uint32_t h[8], const uint32_t k[64], const unsigned char *p)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (sha_rotate(a, 7) ^ sha_rotate(a, 18) ^ a >> 3) +
               (sha_rotate(b, 17) ^ sha_rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = s[4], a = s[0];
        const uint32_t t1 = s[7] + (sha_rotate(e, 6) ^ sha_rotate(e, 11) ^ sha_rotate(e, 25)) +
                            ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
        const uint32_t t2 =
            (sha_rotate(a, 2) ^ sha_rotate(a, 13) ^ sha_rotate(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += s[i];
}

static inline void sha256_hex(const void *data, size_t n, char hex[65])
{
    uint32_t h[8], k[64];
    unsigned char last[128] = {0};
    const size_t whole = n / 64 * 64, left = n - whole, padded = left < 56 ? 64 : 128;
    sha_constants(h, k);
    for (size_t i = 0; i < whole; i += 64) sha_block(h, k, (const unsigned char *)data + i);
    if (left) memcpy(last, (const unsigned char *)data + whole, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++) last[padded - 1 - (size_t)i] = (unsigned char)((uint64_t)n * 8 >> (8 * i));
    for (size_t i = 0; i < padded; i += 64) sha_block(h, k, last + i);
    for (int i = 0; i < 8; i++) snprintf(hex + (size_t)i * 8, 9, "%08x", h[i]);
}
#endif
