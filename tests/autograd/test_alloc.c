/*
 * Every allocation of base, tensor and autograd fails once: ENOMEM, nothing lost, and it works again afterwards.
 */
#include "support_alloc.h"

#include "autograd/internal.h"
#include "engraft/sys/op.h"

static eg_status infer(const eg_op_call *call, eg_spec *out)
{
    for (size_t i = 0; i < call->n_out; i++)
        out[i] = (eg_spec){.dtype = EG_F32, .shape = eg_tensor_shape(call->in[0])};
    return EG_OK;
}

/* Sums of all inputs, twice. */
static eg_status forward(eg_op_call *call)
{
    for (size_t k = 0; k < 2; k++)
        for (int64_t i = 0; i < eg_tensor_numel(call->out[k]); i++) {
            eg__f32(call->out[k])[i] = 0;
            for (size_t j = 0; j < call->n_in; j++)
                eg__f32(call->out[k])[i] += eg__f32(call->in[j])[i];
        }
    for (size_t j = 0; j < call->n_in; j++)
        EG_TRY(eg_op_save(call, call->in[j]));
    return EG_OK;
}

static eg_status backward(eg_op_grad *grad)
{
    for (size_t i = 0; i < grad->n_in; i++) {
        if (!grad->needs_grad[i])
            continue;
        eg_tensor *dx = eg_op_grad_new(grad, i);
        if (!dx)
            return eg_error_last()->code;
        for (int64_t k = 0; k < eg_tensor_numel(dx); k++)
            eg__f32(dx)[k] = 1;
    }
    return EG_OK;
}

static const eg_op sums_op = {.struct_size = sizeof(eg_op),
                              .name = "sums",
                              .attrs_size = sizeof(int),
                              .n_out = 2,
                              .infer = infer,
                              .forward = forward,
                              .backward = backward};

#define TRY_MADE(pointer)                                                                                              \
    do {                                                                                                               \
        if (!(pointer))                                                                                                \
            return eg_error_last()->code;                                                                              \
    } while (0)

static eg_status step(eg_context *ctx, eg_tensor *x)
{
    enum { N = 12 };
    eg_tensor *in[N];
    for (size_t i = 0; i < N; i++)
        in[i] = x;
    eg_tensor *pair = eg_apply(&sums_op, in, N, &(int){3});
    TRY_MADE(pair);
    eg_tensor *y = eg_apply(&sums_op, (eg_tensor *[]){eg_tuple_get(pair, 0), x}, 2, &(int){4});
    TRY_MADE(y);
    eg_tensor *detached = eg_detach(y);
    TRY_MADE(detached);
    TRY_MADE(eg_tensor_copy(eg_tuple_get(y, 0)));
    TRY_MADE(eg_randn(ctx, EG_SHAPE(40, 40)));
    TRY_MADE(eg_from_labels(ctx, 2, (const int64_t[]){1, 2}));
    return eg_backward_from(eg_tuple_get(y, 1), eg_detach(x));
}

static eg_status run_tape(eg_context *ctx, eg_tensor *x)
{
    EG_TRY(eg__call_push(ctx, "net"));
    eg_tape *outer = eg_tape_begin(ctx, EG_NO_GRAD), *tape = outer ? eg_tape_begin(ctx, EG_RECORD) : NULL;
    eg_status status = tape ? step(ctx, x) : eg_error_last()->code;
    eg_tape_end(tape);
    eg_tape_end(outer);
    eg__call_pop(ctx);
    return status;
}

static eg_status whole_life(void *payload)
{
    (void)payload;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    TRY_MADE(ctx);
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2), (const float[]){1, 2});
    eg_status status = x ? eg_tensor_set_requires_grad(x, true) : eg_error_last()->code;
    if (status == EG_OK)
        status = run_tape(ctx, x);
    if (status == EG_OK)
        status = run_tape(ctx, x);
    eg_context_free(ctx);
    return status;
}

static void test_whole_life(void **state)
{
    (void)state;
    assert_true(assert_survives_allocation_failures(whole_life, NULL, false) > 20);
    assert_true(assert_survives_allocation_failures(whole_life, NULL, true) > 20);
}

/* A context that has seen failures goes on as if nothing had happened. */
static void test_going_on(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2), (const float[]){1, 2});
    assert_ok(eg_tensor_set_requires_grad(x, true));
    size_t before = eg_context_get_stats(ctx).bytes_in_use;
    for (long n = 0; n < 60; n++) {
        alloc_fail_all = false;
        alloc_countdown = n;
        run_tape(ctx, x);
        alloc_countdown = -1;
        eg_tensor_zero_grad(x);
        assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, before);
        assert_string_equal(eg__call_path(ctx), "");
        assert_false(eg_is_recording(ctx));
    }
    eg_error_clear();
    assert_ok(run_tape(ctx, x));
    assert_tensor(eg_tensor_grad(x), 0, 13, 13);
    eg_context_free(ctx);
}

static eg_status base_work(void *payload)
{
    const char *path = payload;
    eg__map map = {0};
    eg_status status = EG_OK;
    for (int i = 0; i < 20 && status == EG_OK; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        status = eg__map_put(&map, key, &map);
        assert_true((eg__map_get(&map, key) != NULL) == (status == EG_OK)); /* all or nothing */
    }
    eg__map_free(&map);
    EG_TRY(status);
    eg__buf buf = {0};
    for (int i = 0; i < 50; i++)
        eg__buf_printf(&buf, "%d ", i);
    char *text = eg__buf_take(&buf), *data;
    TRY_MADE(text);
    size_t size;
    status = eg__file_write(path, text, strlen(text));
    if (status == EG_OK)
        status = eg__file_read(path, 0, &data, &size);
    if (status == EG_OK) {
        assert_string_equal(data, text);
        eg_free(data);
    }
    eg_free(text);
    return status;
}

static void test_base(void **state)
{
    (void)state;
    char path[TEMPORARY_PATH_SIZE], *directory = temporary_make();
    temporary_path(directory, "file", path);
    assert_true(assert_survives_allocation_failures(base_work, path, false) > 20);
    assert_int_equal(directory_count(directory), 1);
    assert_true(assert_survives_allocation_failures(base_work, path, true) > 20);
    assert_int_equal(directory_count(directory), 1);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_life),
        cmocka_unit_test(test_going_on),
        cmocka_unit_test(test_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
