/*
 * Scopes: parts of a model that are sub-spaces. A mutator is told when the forward of each begins and ends; here it
 * draws what happens, and lets nobody inside of a cell choose the same way twice in a row.
 *
 *     cc scopes.c $(pkg-config --cflags --libs engraft) -o scopes && ./scopes
 */
#include <engraft/nas.h>

#include <stdio.h>

/* ---- a cell: a scope that runs its layers one after the other ---- */

typedef struct cell {
    eg_module base;
    const char *key;
    eg_module *const *modules;
    size_t n_modules;
} cell;

static eg_tensor *cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *x = in[0];
    for (size_t i = 0; i < eg_module_n_children(self); i++)
        x = eg_call(eg_module_child_at(self, i, NULL), x);
    return x;
}

static EG_CLASS(cell, .super = &eg_mutable_scope_class, .forward = cell_forward,
                .fields = EG_FIELDS(EG_TEXT(cell, key, .help = "key"), EG_MODULES_FIELD(cell)));

static eg_module *open_layer(eg_context *ctx, const char *key)
{
    return eg_layer_choice(
        ctx, EG_CHOICES({"relu", eg_relu(ctx)}, {"tanh", eg_tanh(ctx)}, {"linear", eg_linear(ctx, 4, 4)}), .key = key);
}

/* ---- the mutator ---- */

typedef struct guide {
    eg_mutator base;
    int depth, last; /* last: what was chosen before in this cell, -1 = nothing */
} guide;

static eg_status enter(eg_mutator *self, eg_module *scope)
{
    guide *g = (guide *)self;
    printf("%*s%s {\n", 2 * g->depth++, "", eg_mutable_key(scope));
    g->last = -1;
    return EG_OK;
}

static eg_status leave(eg_mutator *self, eg_module *scope)
{
    (void)scope;
    guide *g = (guide *)self;
    printf("%*s}\n", 2 * --g->depth, "");
    g->last = -1;
    return EG_OK;
}

/* Decides on the spot, whatever a reset sampled. */
static eg_tensor *choose(eg_mutator *self, eg_module *choice, eg_tensor *const *in, size_t n_in, eg_tensor **mask)
{
    (void)mask;
    guide *g = (guide *)self;
    int n = (int)eg_layer_choice_size(choice), op;
    do
        op = (int)eg_rng_below(eg_context_rng(self->ctx), (uint64_t)n);
    while (op == g->last);
    g->last = op;
    printf("%*s%s: %s\n", 2 * g->depth, "", eg_mutable_key(choice), eg_layer_choice_name(choice, (size_t)op));
    return eg_module_call(eg_layer_choice_at(choice, (size_t)op), in, n_in);
}

static const eg_mutator_class guide_class = {.struct_size = sizeof(eg_mutator_class),
                                             .name = "Guide",
                                             .instance_size = sizeof(guide),
                                             .on_forward_layer_choice = choose,
                                             .enter_mutable_scope = enter,
                                             .exit_mutable_scope = leave};

static eg_status print_mutable(void *payload, eg_module *m)
{
    (void)payload;
    printf(" %s", eg_mutable_name(m));
    return EG_OK;
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 1);
    eg_module *inner = eg_new(cell, ctx, "inner", EG_MODULES(open_layer(ctx, "c"), open_layer(ctx, "d")));
    eg_module *outer = eg_new(cell, ctx, "outer", EG_MODULES(open_layer(ctx, "a"), open_layer(ctx, "b"), inner));
    eg_module *net = eg_sequential(ctx, EG_MODULES(outer, open_layer(ctx, "tail")));
    eg_mutator *mutator = eg_mutator_attach(&guide_class, sizeof(guide), &(guide){.last = -1}, net);
    size_t children = 0;
    if (mutator != NULL) {
        printf("children of the root:");
        children = mutator->tree->n_children;
        for (size_t i = 0; i < children; i++)
            print_mutable(NULL, mutator->tree->children[i]->module);
        printf("\nall, inner ones first:");
        eg_mutable_node_traverse(mutator->tree, EG_POST_ORDER, true, NULL, print_mutable, NULL);
        printf("\n");
    }
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    bool ran = eg_call(net, eg_ones(ctx, EG_SHAPE(1, 4))) != NULL;
    eg_tape_end(scope);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    int status = eg_exit_status(ctx);
    return status != 0 ? status : ran && children == 2 ? 0 : 1;
}
