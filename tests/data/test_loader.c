/*
 * tests/data/test_loader.c - order, transforms and threads of the loader.
 */
#include "data/data_support.h"

enum { N = 37, CHANNELS = 2, SIDE = 4, NUMEL = CHANNELS * SIDE * SIDE, CLASSES = 5 };

typedef struct fixture {
    eg_context *ctx;
    eg_dataset *dataset;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eg_context_new(.seed = 1, .threads = 1);
    f->dataset = make_images(f->ctx, N, CHANNELS, SIDE, CLASSES);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    eg_dataset_release(f->dataset);
    eg_context_free(f->ctx);
    free(f);
    eg_error_clear();
    return 0;
}

/* Appends all batches from here to the epoch's end, in logical order; returns the number of samples. */
static size_t drain(eg_loader *loader, eg_context *ctx, float *out, int64_t *labels)
{
    size_t n = 0;
    for (;;) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_batch batch;
        assert_ok(eg_loader_next(loader, &batch));
        if (batch.size > 0) {
            assert_true(eg_shape_equal(eg_tensor_shape(batch.x), EG_SHAPE((int64_t)batch.size, CHANNELS, SIDE, SIDE)));
            assert_int_equal(eg_tensor_strides(batch.x)[1], 1); /* channels-last */
            assert_int_equal(eg_tensor_dtype(batch.y), EG_I64);
            assert_ok(eg_tensor_read(batch.x, out + n * NUMEL, batch.size * NUMEL));
            assert_ok(eg_tensor_read_i64(batch.y, labels + n, batch.size));
        } else {
            assert_null(batch.x);
            assert_null(batch.y);
        }
        eg_tape_end(tape);
        n += batch.size;
        if (batch.size == 0)
            return n;
    }
}

static size_t identity(const float *sample)
{
    return (size_t)(sample[0] - 1) / NUMEL;
}

static void test_in_order(void **state)
{
    fixture *f = *state;
    float x[N * NUMEL];
    int64_t y[N];
    eg_loader *loader = eg_loader_new(f->dataset, 8);
    assert_made(loader);
    assert_int_equal(eg_loader_size(loader), 5);
    assert_int_equal(drain(loader, f->ctx, x, y), N); /* without a start: the first epoch */
    for (size_t i = 0; i < N * NUMEL; i++)
        assert_true(x[i] == (float)(i + 1));
    for (size_t i = 0; i < N; i++)
        assert_int_equal(y[i], i % CLASSES);
    assert_int_equal(drain(loader, f->ctx, x, y), 0); /* the end stays the end */
    eg_loader_free(loader);
    loader = eg_loader_new(f->dataset, 8, .drop_last = true);
    assert_int_equal(eg_loader_size(loader), 4);
    assert_int_equal(drain(loader, f->ctx, x, y), 32);
    eg_loader_free(loader);
}

static void test_vectors(void **state)
{
    fixture *f = *state;
    const float data[] = {1, 2, 3, 4, 5, 6};
    const int64_t labels[] = {0, 1, 0};
    eg_dataset *dataset = eg_dataset_from_arrays(f->ctx, data, EG_SHAPE(2), labels, 3, 2);
    eg_loader *loader = eg_loader_new(dataset, 2, .workers = 1);
    eg_batch batch;
    assert_ok(eg_loader_next(loader, &batch));
    assert_true(eg_shape_equal(eg_tensor_shape(batch.x), EG_SHAPE(2, 2)));
    assert_tensor(batch.x, 0, 1, 2, 3, 4);
    eg_loader_free(loader);
    eg_transform flip = eg_random_flip(1);
    assert_refused(eg_loader_new(dataset, 2, .transforms = &flip, .n_transforms = 1), EG_EINVAL,
                   "needs images (C, H, W)");
    eg_dataset_release(dataset);
}

/* Same numbers in the same order for any number of threads. */
static void test_workers(void **state)
{
    fixture *f = *state;
    const eg_transform transforms[] = {eg_random_crop(1), eg_random_flip(0.5), eg_cutout(2)};
    static const int workers[] = {0, 1, 3};
    float first[2][N * NUMEL], x[N * NUMEL];
    int64_t first_y[2][N], y[N];
    for (size_t w = 0; w < 3; w++) {
        eg_loader *loader = eg_loader_new(f->dataset, 4, .shuffle = true, .workers = workers[w], .seed = 9,
                                          .transforms = transforms, .n_transforms = 3);
        assert_made(loader);
        for (size_t epoch = 0; epoch < 2; epoch++) {
            assert_ok(eg_loader_start(loader, epoch, 0));
            assert_int_equal(drain(loader, f->ctx, w == 0 ? first[epoch] : x, w == 0 ? first_y[epoch] : y), N);
            if (w == 0)
                continue;
            assert_memory_equal(x, first[epoch], sizeof x);
            assert_memory_equal(y, first_y[epoch], sizeof y);
        }
        eg_loader_free(loader);
    }
    assert_memory_not_equal(first[0], first[1], sizeof x); /* epochs differ */
}

static void test_shuffle(void **state)
{
    fixture *f = *state;
    float x[N * NUMEL];
    int64_t y[N];
    size_t orders[3][N];
    for (size_t k = 0; k < 3; k++) { /* epochs 0 and 1, and another seed */
        eg_loader *loader = eg_loader_new(f->dataset, 10, .shuffle = true, .seed = k == 2 ? 4 : 3);
        assert_ok(eg_loader_start(loader, k % 2, 0));
        assert_int_equal(drain(loader, f->ctx, x, y), N);
        bool seen[N] = {false};
        for (size_t i = 0; i < N; i++) {
            orders[k][i] = identity(x + i * NUMEL);
            assert_false(seen[orders[k][i]]);
            seen[orders[k][i]] = true;
            assert_int_equal(y[i], orders[k][i] % CLASSES);
        }
        eg_loader_free(loader);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
}

static void test_resume(void **state)
{
    fixture *f = *state;
    const eg_transform crop = eg_random_crop(2);
    float whole[N * NUMEL], x[N * NUMEL];
    int64_t whole_y[N], y[N];
    for (int workers = 0; workers < 3; workers++) {
        eg_loader *loader = eg_loader_new(f->dataset, 4, .shuffle = true, .workers = workers, .seed = 2,
                                          .transforms = &crop, .n_transforms = 1);
        assert_ok(eg_loader_start(loader, 6, 0));
        assert_int_equal(drain(loader, f->ctx, whole, whole_y), N);
        for (size_t batch = 0; batch <= eg_loader_size(loader); batch++) {
            size_t left = N - (4 * batch < N ? 4 * batch : N);
            assert_ok(eg_loader_start(loader, 6, batch));
            assert_int_equal(drain(loader, f->ctx, x, y), left);
            if (left > 0)
                assert_memory_equal(x, whole + 4 * batch * NUMEL, left * NUMEL * sizeof *x);
        }
        assert_fails(eg_loader_start(loader, 6, 11), EG_EINVAL, "batch 11 of an epoch of 10");
        eg_loader_free(loader);
    }
}

/* Freed before, in and after an epoch, and restarted while threads are at work. */
static void test_shutdown(void **state)
{
    fixture *f = *state;
    for (size_t taken = 0; taken < 12; taken++) {
        eg_loader *loader = eg_loader_new(f->dataset, 4, .shuffle = true, .workers = 3);
        assert_made(loader);
        if (taken > 0)
            assert_ok(eg_loader_start(loader, 0, 0));
        for (size_t i = 1; i < taken; i++) {
            eg_tape *tape = eg_tape_begin(f->ctx, EG_NO_GRAD);
            eg_batch batch;
            assert_ok(eg_loader_next(loader, &batch));
            assert_int_equal(batch.size, i < 10 ? 4 : i == 10 ? 1 : 0);
            eg_tape_end(tape);
        }
        for (uint64_t epoch = 0; epoch < taken; epoch++)
            assert_ok(eg_loader_start(loader, epoch, epoch % 3));
        eg_loader_free(loader);
    }
    eg_loader_free(NULL);
}

/* ---- transforms ---- */

static void load_one(fixture *f, const eg_transform *transform, uint64_t epoch, float *x)
{
    int64_t y[N];
    eg_loader *loader = eg_loader_new(f->dataset, N, .transforms = transform, .n_transforms = transform ? 1 : 0);
    assert_made(loader);
    assert_ok(eg_loader_start(loader, epoch, 0));
    assert_int_equal(drain(loader, f->ctx, x, y), N);
    eg_loader_free(loader);
}

static void test_flip(void **state)
{
    fixture *f = *state;
    float plain[N * NUMEL], x[N * NUMEL];
    load_one(f, NULL, 0, plain);
    eg_transform never = eg_random_flip(0), always = eg_random_flip(1), half = eg_random_flip(0.5);
    load_one(f, &never, 0, x);
    assert_memory_equal(x, plain, sizeof x);
    load_one(f, &always, 0, x);
    for (size_t row = 0; row < N * NUMEL / SIDE; row++)
        for (size_t i = 0; i < SIDE; i++)
            assert_true(x[row * SIDE + i] == plain[row * SIDE + SIDE - 1 - i]);
    load_one(f, &half, 0, x);
    size_t flipped = 0;
    for (size_t i = 0; i < N; i++)
        flipped += x[i * NUMEL] != plain[i * NUMEL];
    assert_true(flipped > N / 5 && flipped < N - N / 5);
}

/* A crop is the picture moved by at most the padding, the same for all channels, with zeros behind it. */
static void test_crop(void **state)
{
    fixture *f = *state;
    float plain[N * NUMEL], x[N * NUMEL];
    load_one(f, NULL, 0, plain);
    eg_transform crop = eg_random_crop(1);
    load_one(f, &crop, 3, x);
    size_t shifts = 0;
    for (size_t s = 0; s < N; s++) {
        const float *a = plain + s * NUMEL, *b = x + s * NUMEL;
        size_t matches = 0;
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                bool same = true;
                for (int c = 0; c < CHANNELS; c++)
                    for (int y = 0; y < SIDE; y++)
                        for (int z = 0; z < SIDE; z++) {
                            bool inside = y + dy >= 0 && y + dy < SIDE && z + dx >= 0 && z + dx < SIDE;
                            float expected = inside ? a[(c * SIDE + y + dy) * SIDE + z + dx] : 0;
                            same = same && b[(c * SIDE + y) * SIDE + z] == expected;
                        }
                matches += same;
                shifts += same && (dy != 0 || dx != 0);
            }
        assert_int_equal(matches, 1);
    }
    assert_true(shifts > N / 2);
    eg_transform none = eg_random_crop(0), far = eg_random_crop(1000);
    load_one(f, &none, 0, x);
    assert_memory_equal(x, plain, sizeof x);
    load_one(f, &far, 0, x); /* mostly out of the picture: zeros, no harm */
}

static void test_cutout(void **state)
{
    fixture *f = *state;
    float plain[N * NUMEL], x[N * NUMEL];
    load_one(f, NULL, 0, plain);
    eg_transform cut = eg_cutout(2);
    load_one(f, &cut, 0, x);
    for (size_t s = 0; s < N; s++) {
        size_t zeros = 0;
        for (size_t i = 0; i < SIDE * SIDE; i++) {
            const float *a = plain + s * NUMEL + i, *b = x + s * NUMEL + i;
            zeros += b[0] == 0;
            assert_true((b[0] == 0) == (b[SIDE * SIDE] == 0)); /* all channels alike */
            assert_true(b[0] == 0 || b[0] == a[0]);
        }
        assert_true(zeros == 1 || zeros == 2 || zeros == 4); /* clipped at a corner, at an edge, whole */
    }
    eg_transform nothing = eg_cutout(0), all = eg_cutout(100);
    load_one(f, &nothing, 0, x);
    assert_memory_equal(x, plain, sizeof x);
    load_one(f, &all, 0, x);
    for (size_t i = 0; i < N * NUMEL; i++)
        assert_true(x[i] == 0);
}

static void negate(const void *payload, float *sample, eg_shape shape, float *scratch, eg_rng *rng)
{
    (void)rng;
    assert_string_equal(payload, "payload");
    int64_t n = eg_shape_numel(shape);
    for (int64_t i = 0; i < n; i++)
        scratch[i] = -sample[i];
    memcpy(sample, scratch, (size_t)n * sizeof *sample);
}

static void test_own_transform(void **state)
{
    fixture *f = *state;
    float x[N * NUMEL];
    eg_transform own = {.apply = negate, .payload = "payload"};
    load_one(f, &own, 0, x);
    assert_true(x[5] == -6);
    assert_true(x[N * NUMEL - 1] == -(float)(N * NUMEL));
}

static void test_bad_options(void **state)
{
    fixture *f = *state;
    assert_refused(eg_loader_new(f->dataset, 0), EG_EINVAL, "batch size 0");
    assert_refused(eg_loader_new(NULL, 4), EG_EINVAL, "data set");
    assert_refused(eg_loader_new_with(&(eg_loader_options){.dataset = f->dataset, .batch_size = 4}), EG_EINVAL,
                   "struct_size");
    assert_refused(eg_loader_new_with(NULL), EG_EINVAL, "options");
    assert_refused(eg_loader_new(f->dataset, 4, .workers = -1), EG_EINVAL, "-1 workers");
    assert_refused(eg_loader_new(f->dataset, 4, .n_transforms = 1), EG_EINVAL, "transforms at NULL");
    const eg_transform bad[] = {eg_random_crop(-1), eg_random_flip(1.5), eg_cutout(-3), {.apply = NULL}};
    static const char *const parts[] = {"random crop: -1", "random flip: 1.5", "cutout: -3", "no function"};
    for (size_t i = 0; i < 4; i++)
        assert_refused(eg_loader_new(f->dataset, 4, .transforms = &bad[i], .n_transforms = 1), EG_EINVAL, parts[i]);
    eg_batch batch;
    assert_fails(eg_loader_next(NULL, &batch), EG_EINVAL, "loader");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vectors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_workers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shuffle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shutdown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cutout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_transform, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_options, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
