/*
 * tensor/cpu/binary.c - functions of two tensors, copies between layouts, filling.
 */
#include "tensor/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* ---- y = a op b; operands are y, a, b ---- */

#define ROW_LOOP(a_at, b_at, expression)                                                                               \
    for (int64_t r = 0; r < rows; r++) {                                                                               \
        const float *left = data[1] + r * row[1], *right = data[2] + r * row[2];                                       \
        float *y = data[0] + r * row[0];                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < cols; i++)                                                         \
        {                                                                                                              \
            float a = left[a_at], b = right[b_at];                                                                     \
            (void)a;                                                                                                   \
            y[i * col[0]] = (expression);                                                                              \
        }                                                                                                              \
    }

/* Strides that are constants where that makes vector code: all 1, and a number for the whole row on either side. */
#define BINARY(name, expression)                                                                                       \
    EG__CLONES static void name(void *arg, int64_t rows, int64_t cols, float *const *data, const int64_t *row,         \
                                const int64_t *strides)                                                                \
    {                                                                                                                  \
        (void)arg;                                                                                                     \
        if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {                                                   \
            const int64_t col[] = {1};                                                                                 \
            ROW_LOOP(i, i, expression)                                                                                 \
        } else if (strides[0] == 1 && strides[1] == 1 && strides[2] == 0) {                                            \
            const int64_t col[] = {1};                                                                                 \
            ROW_LOOP(i, 0, expression)                                                                                 \
        } else if (strides[0] == 1 && strides[1] == 0 && strides[2] == 1) {                                            \
            const int64_t col[] = {1};                                                                                 \
            ROW_LOOP(0, i, expression)                                                                                 \
        } else {                                                                                                       \
            const int64_t *col = strides;                                                                              \
            ROW_LOOP(i *col[1], i *col[2], expression)                                                                 \
        }                                                                                                              \
    }

BINARY(add_tile, a + b)
BINARY(sub_tile, a - b)
BINARY(mul_tile, a *b)
BINARY(div_tile, a / b)
BINARY(maximum_tile, a > b || a != a ? a : b)
BINARY(minimum_tile, a < b || a != a ? a : b)
BINARY(gt_tile, a > b ? 1.0f : 0.0f)
BINARY(eq_tile, a == b ? 1.0f : 0.0f)
BINARY(step_tile, a < b ? 0.0f : a == b ? 0.5f : 1.0f)
BINARY(keep_tile, b != 0.0f ? a : 0.0f)
BINARY(drop_tile, b != 0.0f ? 0.0f : a)
BINARY(leak_tile, a > 0.0f ? 1.0f : b)

static eg__tile binary_tile(eg__binary op)
{
    switch (op) {
    case EG__ADD:
        return add_tile;
    case EG__SUB:
        return sub_tile;
    case EG__MUL:
        return mul_tile;
    case EG__DIV:
        return div_tile;
    case EG__MAXIMUM:
        return maximum_tile;
    case EG__MINIMUM:
        return minimum_tile;
    case EG__GT:
        return gt_tile;
    case EG__EQ:
        return eq_tile;
    case EG__STEP:
        return step_tile;
    case EG__KEEP:
        return keep_tile;
    case EG__DROP:
        return drop_tile;
    case EG__LEAK:
        return leak_tile;
    case EG__BINARY_COUNT:
        break;
    }
    return NULL;
}

static void binary_run(eg__binary op, const eg_tensor *a, const eg_tensor *b, const eg_tensor *y)
{
    eg__loop loop;
    eg__loop_make(&loop, 3, (const eg_tensor *const[]){y, a, b});
    eg__loop_run(y->ctx, &loop, binary_tile(op), NULL);
}

eg_status eg__cpu_binary(eg__binary op, const eg_tensor *a, const eg_tensor *b, eg_tensor *y)
{
    binary_run(op, a, b, y);
    return EG_OK;
}

eg_status eg__cpu_accumulate(const eg_tensor *x, eg_tensor *y)
{
    binary_run(EG__ADD, y, x, y);
    return EG_OK;
}

/* ---- copies; operands are y, x ---- */

#define BLOCK 16

/* A block of a transpose: x runs along rows, y along columns; both sides touch whole cache lines. */
static inline void transpose_block(float *y, const float *x, int64_t rows, int64_t cols, int64_t y_row, int64_t x_col)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * y_row + c] = x[c * x_col + r];
}

EG__CLONES static void transpose_tile(int64_t rows, int64_t cols, float *y, const float *x, int64_t y_row,
                                      int64_t x_col)
{
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < cols; c += BLOCK) {
            float *to = y + r * y_row + c;
            const float *from = x + c * x_col + r;
            if (rows - r >= BLOCK && cols - c >= BLOCK)
                transpose_block(to, from, BLOCK, BLOCK, y_row, x_col);
            else
                transpose_block(to, from, EG_MIN(BLOCK, rows - r), EG_MIN(BLOCK, cols - c), y_row, x_col);
        }
}

static void copy_tile(void *arg, int64_t rows, int64_t cols, float *const *data, const int64_t *row, const int64_t *col)
{
    (void)arg;
    if (col[0] == 1 && row[1] == 1 && col[1] != 1) {
        transpose_tile(rows, cols, data[0], data[1], row[0], col[1]);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = data[1] + r * row[1];
        float *y = data[0] + r * row[0];
        if (col[0] == 1 && col[1] == 1) {
            memcpy(y, x, (size_t)cols * sizeof(float));
        } else {
            for (int64_t i = 0; i < cols; i++)
                y[i * col[0]] = x[i * col[1]];
        }
    }
}

eg_status eg__cpu_copy(const eg_tensor *x, eg_tensor *y)
{
    if (x->dtype != EG_F32 || y->dtype != EG_F32)
        return eg__ref_kernels.copy(x, y);
    if (eg__f32(x) == eg__f32(y) && eg__same_strides(x, y))
        return EG_OK;
    eg__loop loop;
    eg__loop_make(&loop, 2, (const eg_tensor *const[]){y, x});
    eg__loop_run(y->ctx, &loop, copy_tile, NULL);
    return EG_OK;
}

static void fill_tile(void *arg, int64_t rows, int64_t cols, float *const *data, const int64_t *row, const int64_t *col)
{
    float value = *(const float *)arg;
    for (int64_t r = 0; r < rows; r++) {
        float *y = data[0] + r * row[0];
        if (col[0] == 1 && value == 0.0f && !signbit(value)) {
            memset(y, 0, (size_t)cols * sizeof(float));
        } else {
            for (int64_t i = 0; i < cols; i++)
                y[i * col[0]] = value;
        }
    }
}

eg_status eg__cpu_fill(eg_tensor *y, double value)
{
    if (y->dtype != EG_F32)
        return eg__ref_kernels.fill(y, value);
    float number = (float)value;
    eg__loop loop;
    eg__loop_make(&loop, 1, (const eg_tensor *const[]){y});
    eg__loop_run(y->ctx, &loop, fill_tile, &number);
    return EG_OK;
}
