/*
 * Normalized parameters: a parameter that is computed from others before each forward pass.
 *
 * The module keeps a record of it, which is copied with the module. The slot of the parameter gives way to those of the
 * parts; its C field holds eg_none, and while forward runs what was computed: a tensor of the call's scope, recorded on
 * the tape like any other.
 */
#include "nn/internal.h"

#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's: lengths are at least this. */
#define EPS 1e-12

struct eg_reparam {
    char *name; /* of the parameter */
    eg_tensor **field;
    int dim;
    int64_t iterations; /* of the power method; 0 = weight normalization */
};

/* The names of what a parameter is made from, behind its own; the first two of either kind replace it. */
static const char *const weight_parts[] = {"_g", "_v"}, *const spectral_parts[] = {"_orig", "_u", "_v"};
enum { MOST_PARTS = 3 };

static size_t part_count(bool spectral)
{
    return spectral ? EG_COUNT(spectral_parts) : EG_COUNT(weight_parts);
}

static bool is_spectral(const eg_reparam *r)
{
    return r->iterations > 0;
}

/* ---- slots of parts ---- */

static bool part_named(const char *slot, const char *name, const char *suffix)
{
    size_t length = strlen(name);
    return strncmp(slot, name, length) == 0 && strcmp(slot + length, suffix) == 0;
}

static eg_slot *part_slot(const eg_module *m, const char *name, bool spectral, size_t i)
{
    const char *suffix = spectral ? spectral_parts[i] : weight_parts[i];
    for (size_t k = 0; k < m->n_slots; k++)
        if (m->slots[k].kind != EG_SLOT_CHILD && part_named(m->slots[k].name, name, suffix))
            return &m->slots[k];
    return NULL;
}

static void remove_parts(eg_module *m, const char *name, bool spectral, size_t n)
{
    for (size_t i = 0; i < n; i++)
        eg__slot_remove(m, part_slot(m, name, spectral, i));
}

static eg_status add_part(eg_module *m, const char *name, bool spectral, size_t i, eg_tensor *t)
{
    char *full = eg__format("%s%s", name, spectral ? spectral_parts[i] : weight_parts[i]);
    if (full == NULL)
        return EG_ENOMEM;
    eg_slot_kind kind = spectral && i > 0 ? EG_SLOT_BUFFER : EG_SLOT_PARAMETER;
    eg_slot *slot = eg__slot_add_tensor(m, full, kind, NULL);
    free(full);
    if (slot == NULL)
        return eg_error_last()->code;
    *eg__slot_tensor(slot) = eg_tensor_keep(t);
    return EG_OK;
}

static eg_status add_parts(eg_module *m, const char *name, bool spectral, eg_tensor *const *parts)
{
    for (size_t i = 0; i < part_count(spectral); i++) {
        eg_status status = parts[i] == NULL ? eg_error_last()->code : add_part(m, name, spectral, i, parts[i]);
        if (status != EG_OK) {
            remove_parts(m, name, spectral, i);
            return status;
        }
    }
    return EG_OK;
}

/* ---- what is computed ---- */

/* w as a matrix whose rows are the indices of dimension dim. */
static eg_tensor *as_matrix(eg_tensor *w, int dim)
{
    if (w == NULL)
        return NULL;
    eg_shape order = {.ndim = w->shape.ndim, .dims = {dim}};
    for (int d = 0, at = 1; d < order.ndim; d++)
        if (d != dim)
            order.dims[at++] = d;
    eg_tensor *first = dim == 0 ? w : eg_permute(w, order);
    return eg_reshape(first, EG_SHAPE(w->shape.dims[dim], -1));
}

/* buffer = vector / its length */
static eg_status set_unit(eg_tensor *buffer, eg_tensor *vector)
{
    if (vector == NULL)
        return eg_error_last()->code;
    const eg_kernels *k = eg__kernels(buffer->ctx, buffer->dtype);
    double squares = 0;
    eg_tensor *line = eg_reshape(vector, buffer->shape);
    if (line == NULL)
        return eg_error_last()->code;
    EG_TRY(eg__tensor_copy_into(buffer, line));
    EG_TRY(k->norm2(1, &buffer, &squares));
    EG_TRY(k->scale(1, &buffer, 1 / EG_MAX(sqrt(squares), EPS)));
    eg_tensor_touch(buffer);
    return EG_OK;
}

/* Makes u and v more like the first singular vectors (Miyato et al. 2018). */
static eg_status power_method(eg_tensor *w, int dim, eg_tensor *u, eg_tensor *v, int64_t iterations)
{
    eg_tape *tape = eg_tape_begin(w->ctx, EG_NO_GRAD);
    if (tape == NULL)
        return EG_ENOMEM;
    eg_tensor *matrix = as_matrix(w, dim);
    eg_status status = matrix == NULL ? eg_error_last()->code : EG_OK;
    for (int64_t i = 0; status == EG_OK && i < iterations; i++) {
        status = set_unit(v, eg_matmul(eg_reshape(u, EG_SHAPE(1, -1)), matrix));
        if (status == EG_OK)
            status = set_unit(u, eg_matmul(matrix, eg_reshape(v, EG_SHAPE(-1, 1))));
    }
    eg_tape_end(tape);
    return status;
}

/* w over its largest singular value. u and v are constants to the gradient, and copies: the next call may change them
 * before this one's backward has run. */
static eg_tensor *spectral_weight(eg_tensor *w, int dim, eg_tensor *u, eg_tensor *v)
{
    eg_tensor *row = eg_reshape(eg_tensor_copy(u), EG_SHAPE(1, -1));
    eg_tensor *column = eg_reshape(eg_tensor_copy(v), EG_SHAPE(-1, 1));
    eg_tensor *sigma = eg_matmul(eg_matmul(row, as_matrix(w, dim)), column);
    return eg_div(w, eg_reshape(sigma, EG_SCALAR));
}

static eg_tensor *compute(eg_module *m, const eg_reparam *r, bool learn)
{
    eg_tensor *parts[MOST_PARTS] = {NULL};
    for (size_t i = 0; i < part_count(is_spectral(r)); i++)
        parts[i] = *eg__slot_tensor(part_slot(m, r->name, is_spectral(r), i));
    if (!is_spectral(r))
        return eg_f_weight_norm(parts[1], parts[0], r->dim);
    if (learn && power_method(parts[0], r->dim, parts[1], parts[2], r->iterations) != EG_OK)
        return NULL;
    return spectral_weight(parts[0], r->dim, parts[1], parts[2]);
}

eg_status eg__reparams_compute(eg_module *m, bool learn)
{
    for (size_t i = 0; i < m->n_reparams; i++) {
        eg_tensor *t = compute(m, &m->reparams[i], learn);
        if (t == NULL)
            return eg_error_last()->code;
        *m->reparams[i].field = t;
    }
    return EG_OK;
}

void eg__reparams_clear(eg_module *m)
{
    for (size_t i = 0; i < m->n_reparams; i++)
        *m->reparams[i].field = eg_none;
}

/* ---- with the module ---- */

eg_status eg__reparams_copy(eg_module *dst, const eg_module *src)
{
    for (size_t i = 0; i < src->n_reparams; i++) {
        eg_reparam copy = src->reparams[i];
        EG_TRY(eg__grow(&dst->reparams, &dst->reparams_capacity, i + 1, sizeof(*dst->reparams)));
        copy.field = (eg_tensor **)((char *)dst + ((const char *)copy.field - (const char *)src));
        copy.name = eg__strdup(copy.name);
        if (copy.name == NULL)
            return EG_ENOMEM;
        *copy.field = eg_none;
        dst->reparams[dst->n_reparams++] = copy;
    }
    return EG_OK;
}

void eg__reparams_free(eg_module *m)
{
    for (size_t i = 0; i < m->n_reparams; i++)
        free(m->reparams[i].name);
    free(m->reparams);
}

/* ---- adding ---- */

/* Clones find the field at the same place in their struct. */
static eg_status check_slot(const eg_module *m, const char *name, const eg_slot *slot, int dim)
{
    EG_CHECK(slot != NULL && slot->kind == EG_SLOT_PARAMETER && !eg_is_none(*eg__slot_tensor((eg_slot *)slot)),
             EG_ENOENT, "%s has no parameter '%s'", m->cls->name, name);
    uintptr_t start = (uintptr_t)m, place = (uintptr_t)slot->field.tensor;
    EG_CHECK(place >= start && place < start + m->cls->instance_size, EG_EINVAL,
             "%s: parameter '%s' has no member of the module's struct", m->cls->name, name);
    int ndim = (*slot->field.tensor)->shape.ndim;
    EG_CHECK(dim < ndim, EG_EINVAL, "%s: dimension %d is out of range for parameter '%s'", m->cls->name, dim, name);
    return EG_OK;
}

/* The lengths of w, with dimensions of size 1 beside dim; -1: the length of all. */
static eg_tensor *lengths_of(eg_tensor *w, int dim)
{
    eg_reduce_args args = {.x = eg_mul(w, w), .keepdim = dim >= 0};
    for (int d = 0; d < w->shape.ndim; d++)
        if (d != dim)
            args.dims.dims[args.dims.ndim++] = d;
    eg_tensor *g = args.dims.ndim == 0 ? args.x : eg_sum_with(&args);
    int64_t n = g == NULL ? 0 : eg_tensor_numel(g);
    for (int64_t i = 0; i < n; i++) {
        if (g->dtype == EG_F64)
            eg__f64(g)[i] = sqrt(eg__f64(g)[i]);
        else
            eg__f32(g)[i] = sqrtf(eg__f32(g)[i]);
    }
    return g;
}

/* A random vector of length 1. */
static eg_tensor *random_unit(const eg_tensor *w, int64_t n)
{
    eg_tensor *t = eg_empty(w->ctx, w->dtype, EG_SHAPE(n), EG_LAYOUT_ROW_MAJOR);
    if (t == NULL || eg_init_normal(t, 0, 1) != EG_OK || set_unit(t, t) != EG_OK)
        return NULL;
    return t;
}

/* The parts of w, in the order of their names. */
static void make_parts(eg_tensor *w, const eg_reparam *r, eg_tensor *parts[MOST_PARTS])
{
    if (!is_spectral(r)) {
        parts[0] = lengths_of(w, r->dim);
        parts[1] = w;
        if (parts[0] != NULL && eg_tensor_set_requires_grad(parts[0], eg_tensor_requires_grad(w)) != EG_OK)
            parts[0] = NULL;
        return;
    }
    int64_t rows = w->shape.dims[r->dim];
    parts[0] = w;
    parts[1] = random_unit(w, rows);
    parts[2] = parts[1] == NULL ? NULL : random_unit(w, eg_tensor_numel(w) / rows);
}

/* Replaces the slot by those of the parts; r's name is taken over when that succeeds. */
static eg_status install(eg_module *m, eg_reparam *r)
{
    eg_tensor *parts[MOST_PARTS] = {NULL};
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    if (tape == NULL)
        return EG_ENOMEM;
    make_parts(*r->field, r, parts);
    eg_status status = eg__grow(&m->reparams, &m->reparams_capacity, m->n_reparams + 1, sizeof(*m->reparams));
    if (status == EG_OK)
        status = add_parts(m, r->name, is_spectral(r), parts);
    eg_tape_end(tape);
    if (status != EG_OK)
        return status;
    m->reparams[m->n_reparams++] = *r;
    eg__slot_remove(m, eg__slot_find(m, r->name, strlen(r->name)));
    *r->field = eg_none;
    return EG_OK;
}

static eg_status add(eg_module *m, const char *name, int dim, int64_t iterations)
{
    EG_CHECK(m != NULL && name != NULL, EG_EINVAL, "module or name is NULL");
    EG_CHECK(m->open == NULL, EG_EUNSUPPORTED,
             "%s: '%s' cannot be normalized, for the module has open fields: fix them first", m->cls->name, name);
    eg_slot *slot = eg__slot_find(m, name, strlen(name));
    EG_TRY(check_slot(m, name, slot, dim));
    eg_reparam r = {.name = eg__strdup(name), .field = slot->field.tensor, .dim = dim, .iterations = iterations};
    if (r.name == NULL)
        return EG_ENOMEM;
    eg_status status = install(m, &r);
    if (status != EG_OK)
        free(r.name);
    return status;
}

eg_status eg_weight_norm(eg_module *m, const char *name, int dim)
{
    EG_CHECK(dim >= -1, EG_EINVAL, "dimension is %d, expected -1 or more", dim);
    return add(m, name, dim, 0);
}

eg_status eg_spectral_norm(eg_module *m, const char *name, int dim, int64_t n_power_iterations)
{
    EG_CHECK(dim >= 0, EG_EINVAL, "dimension is %d, expected 0 or more", dim);
    EG_CHECK(n_power_iterations >= 1, EG_EINVAL, "number of power iterations is %lld, expected 1 or more",
             (long long)n_power_iterations);
    return add(m, name, dim, n_power_iterations);
}

/* ---- removing ---- */

/* The parameter's number as they are computed now, in a slot of its own. */
static eg_status restore(eg_module *m, const eg_reparam *r)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    if (tape == NULL)
        return EG_ENOMEM;
    eg_tensor *t = compute(m, r, false);
    bool trained = eg_tensor_requires_grad(*eg__slot_tensor(part_slot(m, r->name, is_spectral(r), 0)));
    eg_status status = t == NULL ? eg_error_last()->code : eg_tensor_set_requires_grad(t, trained);
    eg_slot *slot = status == EG_OK ? eg__slot_add_tensor(m, r->name, EG_SLOT_PARAMETER, r->field) : NULL;
    if (slot != NULL)
        *r->field = eg_tensor_keep(t);
    eg_tape_end(tape);
    return slot != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status take_out(eg_module *m, const char *name, bool spectral)
{
    EG_CHECK(m != NULL && name != NULL, EG_EINVAL, "module or name is NULL");
    size_t i = 0;
    while (i < m->n_reparams && (strcmp(m->reparams[i].name, name) != 0 || is_spectral(&m->reparams[i]) != spectral))
        i++;
    EG_CHECK(i < m->n_reparams, EG_ENOENT, "%s has no parameter '%s' with %s normalization", m->cls->name, name,
             spectral ? "spectral" : "weight");
    eg_reparam r = m->reparams[i];
    EG_TRY(restore(m, &r));
    remove_parts(m, name, spectral, part_count(spectral));
    memmove(&m->reparams[i], &m->reparams[i + 1], (m->n_reparams - i - 1) * sizeof(r));
    m->n_reparams--;
    free(r.name);
    return EG_OK;
}

eg_status eg_remove_weight_norm(eg_module *m, const char *name)
{
    return take_out(m, name, false);
}

eg_status eg_remove_spectral_norm(eg_module *m, const char *name)
{
    return take_out(m, name, true);
}
