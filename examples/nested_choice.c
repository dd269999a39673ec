/*
 * Choices inside choices: a menu. Whether there is soup at all, which one, and whether it comes with bread, are
 * decisions that exist only where the one above them was made that way; so an architecture names only what matters.
 *
 *     cc nested_choice.c $(pkg-config --cflags --libs engraft) -o nested_choice && ./nested_choice
 */
#include <engraft/nas.h>

/* A dish is a layer that adds its price to the bill. */
typedef struct dish {
    eg_module base;
    double price;
} dish;

static eg_tensor *dish_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_affine(in[0], 1, ((dish *)self)->price);
}

static EG_CLASS(dish, .forward = dish_forward, .fields = EG_FIELDS(EG_FLOAT(dish, price, .help = "of one")));

static eg_module *make_menu(eg_context *ctx)
{
    eg_module *chilled = eg_layer_choice(
        ctx, EG_CHOICES({"with bread", eg_new(dish, ctx, 1.5)}, {"plain", eg_identity(ctx)}), .key = "gazpacho");
    eg_module *soup =
        eg_layer_choice(ctx,
                        EG_CHOICES({"tomato", eg_new(dish, ctx, 4)},
                                   {"gazpacho", eg_sequential(ctx, EG_MODULES(eg_new(dish, ctx, 5), chilled))}),
                        .key = "soup");
    eg_module *starter =
        eg_layer_choice(ctx, EG_CHOICES({"soup", soup}, {"salad", eg_new(dish, ctx, 6)}, {"nothing", eg_identity(ctx)}),
                        .key = "starter");
    /* as many desserts as one likes; a choice inside the second exists for who takes two */
    eg_module *second = eg_layer_choice(ctx, EG_CHOICES({"cake", eg_new(dish, ctx, 5)}, {"ice", eg_new(dish, ctx, 3)}),
                                        .key = "second");
    eg_module *desserts = eg_repeat(ctx, EG_MODULES(eg_new(dish, ctx, 4), second),
                                    .depth = eg_value_choice(ctx, EG_VALUES(0, 1, 2), .key = "desserts"));
    return eg_sequential(ctx, EG_MODULES(starter, eg_new(dish, ctx, 12), desserts));
}

static double bill(eg_module *menu)
{
    eg_tape *tape = eg_tape_begin(menu->ctx, EG_NO_GRAD);
    eg_tensor *sum = eg_call(menu, eg_zeros(menu->ctx, EG_SHAPE(1)));
    double value = sum != NULL ? eg_tensor_item(sum) : -1;
    eg_tape_end(tape);
    return value;
}

static void print_order(eg_mutator *guest, eg_module *menu)
{
    eg_arch *arch = eg_mutator_export_decisions(guest, guest->current);
    for (size_t i = 0; i < eg_arch_size(arch); i++) {
        char *value = eg_arch_value(arch, eg_arch_key(arch, i));
        printf("%s%s: %s", i == 0 ? "  " : ", ", eg_arch_key(arch, i), value);
        eg_free(value);
    }
    printf("  = %.2f\n", bill(menu));
    eg_arch_free(arch);
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 4, .threads = 1);
    eg_module *menu = make_menu(ctx);
    eg_mutator *guest = eg_random_mutator_new(menu);
    printf("five guests who do not care:\n");
    for (int i = 0; i < 5 && guest != NULL && eg_mutator_reset(guest) == EG_OK; i++)
        print_order(guest, menu);

    /* what was not chosen is not asked, and has nothing to say */
    eg_arch *odd = eg_arch_parse("{\"starter\": \"salad\", \"soup\": \"tomato\", \"desserts\": 0}");
    if (eg_mutator_set_arch(guest, odd) == EG_EINVAL)
        printf("a guest who cares too much: %s\n", eg_error_last()->message);
    eg_error_clear();
    eg_arch_free(odd);
    eg_mutator_detach(guest);

    eg_arch *order = eg_arch_parse("{\"starter\": \"soup\", \"soup\": \"gazpacho\", \"gazpacho\": \"with bread\","
                                   " \"desserts\": 2, \"second\": \"ice\"}");
    if (eg_apply_arch(menu, order) == EG_OK) {
        printf("served, %.2f:\n", bill(menu));
        eg_module_print(menu, stdout);
    }
    eg_arch_free(order);
    eg_module_release(menu);
    return eg_exit_status(ctx);
}
