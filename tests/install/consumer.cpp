// engraft from C++: the constructor macros are C only, so the structs are filled by hand; all functions can be called.
#include <engraft/engraft.h>

int main()
{
    eg_context_options options{};
    options.struct_size = sizeof options;
    options.seed = 1;
    options.threads = 1;
    eg_context *ctx = eg_context_new_with(&options);

    struct eg_conv2d c{};
    c.base.ctx = ctx;
    c.in_channels = 1;
    c.out_channels = 4;
    c.kernel_size = 3;
    c.padding = 1;
    eg_module *conv = eg_module_new(&eg_conv2d_class, sizeof c, &c);

    const eg_shape shape = {{2, 1, 8, 8}, 4};
    eg_tensor *x = eg_ones(ctx, shape);
    eg_tensor *y = eg_module_call(conv, &x, 1);
    printf("%s %lld\n", eg_version(), static_cast<long long>(eg_tensor_numel(y)));
    eg_module_release(conv);
    return eg_exit_status(ctx);
}
