/*
 * Random numbers: the generator's published vectors, positions, and the shape of the distributions.
 */
#include "support.h"

#include "base/internal.h"

static void check_block(const uint32_t counter[4], const uint32_t key[2], const uint32_t expected[4])
{
    uint32_t got[4];
    eg__philox(counter, key, got);
    assert_memory_equal(got, expected, sizeof got);
}

/* The known answers of Random123's philox4x32-10. */
static void test_known_answers(void **state)
{
    (void)state;
    check_block((uint32_t[4]){0}, (uint32_t[2]){0}, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_block((uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, (uint32_t[]){0xffffffff, 0xffffffff},
                (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_block((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, (uint32_t[]){0xa4093822, 0x299f31d0},
                (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static void test_a_stream_is_its_three_numbers(void **state)
{
    (void)state;
    eg_rng rng = {0};
    const uint32_t expected[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int i = 0; i < 4; i++)
        assert_int_equal(eg_rng_u32(&rng), expected[i]);
    assert_int_equal(rng.position, 4);
    eg_rng_u32(&rng);
    eg_rng copy = rng;
    assert_int_equal(eg_rng_u32(&rng), eg_rng_u32(&copy));
    assert_true(eg_rng_normal(&rng) == eg_rng_normal(&copy)); /* across a block's border */
    assert_int_equal(rng.position, 10);
    assert_true(eg_rng_uniform(&rng) == eg_rng_uniform(&copy));
    assert_int_equal(rng.position, 12);
}

static void test_streams_differ(void **state)
{
    (void)state;
    eg_rng a = eg_rng_make(1, "shuffle", 0), b = eg_rng_make(1, "shuffle", 1);
    eg_rng c = eg_rng_make(1, "augment", 0), d = eg_rng_make(2, "shuffle", 0);
    assert_true(a.stream != b.stream && a.stream != c.stream && a.stream == d.stream);
    uint32_t w = eg_rng_u32(&a);
    assert_true(w != eg_rng_u32(&b) && w != eg_rng_u32(&c) && w != eg_rng_u32(&d));
    assert_int_equal(eg_rng_make(1, "shuffle", 0).position, 0);
}

static void test_moments(void **state)
{
    (void)state;
    eg_rng rng = eg_rng_make(3, "moments", 0);
    enum { N = 200000 };
    double sum = 0, square = 0, fourth = 0, uniform = 0, uniform_square = 0;
    for (int i = 0; i < N; i++) {
        double z = eg_rng_normal(&rng), u = eg_rng_uniform(&rng);
        assert_true(u >= 0 && u < 1 && isfinite(z));
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        uniform += u;
        uniform_square += u * u;
    }
    /* five standard errors */
    assert_close(sum / N, 0, 5 / sqrt(N));
    assert_close(square / N, 1, 5 * sqrt(2.0 / N));
    assert_close(fourth / N, 3, 5 * sqrt(96.0 / N));
    assert_close(uniform / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    assert_close(uniform_square / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
}

static void test_below(void **state)
{
    (void)state;
    eg_rng rng = eg_rng_make(4, "below", 0);
    assert_int_equal(eg_rng_below(&rng, 0), 0);
    assert_int_equal(eg_rng_below(&rng, 1), 0);
    enum { N = 60000 };
    int count[6] = {0};
    for (int i = 0; i < N; i++)
        count[eg_rng_below(&rng, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_close(count[i], N / 6.0, 5 * sqrt(N * 5.0 / 36));
    bool high = false; /* a range of more than half of all numbers: taking the remainder would be far off */
    uint64_t n = (UINT64_C(1) << 63) + 1;
    for (int i = 0; i < 100; i++) {
        uint64_t x = eg_rng_below(&rng, n);
        assert_true(x < n);
        high |= x > n / 2;
    }
    assert_true(high);
}

static void test_shuffle(void **state)
{
    (void)state;
    enum { N = 100 };
    int64_t items[N], seen[N] = {0};
    for (int i = 0; i < N; i++)
        items[i] = i;
    eg_rng rng = eg_rng_make(5, "shuffle", 0);
    eg_rng_shuffle(&rng, items, N);
    int fixed = 0;
    for (int i = 0; i < N; i++) {
        seen[items[i]]++;
        fixed += items[i] == i;
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    assert_in_range(fixed, 0, 10);
    eg_rng_shuffle(&rng, items, 0);
    eg_rng_shuffle(&rng, NULL, 0);
    assert_int_equal(eg_error_last()->code, EG_OK);
    eg_rng_shuffle(&rng, NULL, 5);
    assert_int_equal(eg_error_last()->code, EG_EINVAL);
    assert_string_equal(eg_error_last()->message, "eg_rng_shuffle: items is NULL");
    eg_error_clear();
    eg_rng_shuffle(NULL, items, 5);
    assert_int_equal(eg_error_last()->code, EG_EINVAL);
    eg_error_clear();
}

static void test_context_stream(void **state)
{
    (void)state;
    eg_context *a = eg_context_new(.seed = 7, .threads = 1), *b = eg_context_new(.seed = 7, .threads = 2);
    assert_int_equal(eg_rng_u32(eg_context_rng(a)), eg_rng_u32(eg_context_rng(b)));
    assert_int_equal(eg_context_seed(a), 7);
    eg_context_free(a);
    eg_context_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),  cmocka_unit_test(test_a_stream_is_its_three_numbers),
        cmocka_unit_test(test_streams_differ), cmocka_unit_test(test_moments),
        cmocka_unit_test(test_below),          cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_context_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
