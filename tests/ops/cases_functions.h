/*
 * tests/ops/cases_functions.h - cases.h's part for functions of one number, comparisons, indexing and the losses made
 * of other operations. Included by cases.h only.
 */

#define RUN_MATH(record, call)                                                                                         \
    static eg_tensor *run_##record(eg_tensor *const *in, const op_case *c)                                             \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return call;                                                                                                   \
    }
RUN_MATH(elu, eg_f_elu(in[0], c->d[0]))
RUN_MATH(softplus, eg_f_softplus(in[0], c->d[0], c->d[1]))
RUN_MATH(mish, eg_f_mish(in[0]))
RUN_MATH(prelu, eg_f_prelu(in[0], in[1]))
RUN_MATH(exp, eg_exp(in[0]))
RUN_MATH(log, eg_ln(in[0]))
RUN_MATH(sqrt, eg_sqrt(in[0]))
RUN_MATH(abs, eg_abs(in[0]))
RUN_MATH(pow, eg_pow(in[0], c->d[0]))
RUN_MATH(clamp, eg_clamp(in[0], c->d[0], c->d[1]))
RUN_MATH(neg, eg_neg(in[0]))
RUN_MATH(maximum, eg_maximum(in[0], in[1]))
RUN_MATH(minimum, eg_minimum(in[0], in[1]))
RUN_MATH(where, eg_where(eg_gt(in[0], in[1]), in[2], in[3]))
/* What has no gradient decides what becomes of the last input. */
RUN_MATH(gt, eg_mul(eg_gt(in[0], in[1]), in[2]))
RUN_MATH(lt, eg_mul(eg_lt(in[0], in[1]), in[2]))
RUN_MATH(eq, eg_mul(eg_eq(in[0], eg_clamp(in[0], -0.5, 0.5)), in[1]))

/* p: size of the indexed dimension, dim */
RUN_MATH(gather, eg_gather(in[0], (int)c->p[1], in[1]))
RUN_MATH(index_select, eg_index_select(in[0], (int)c->p[1], in[1]))
RUN_MATH(cumsum, eg_cumsum(in[0], (int)c->p[1]))
RUN_MATH(argmax, eg_gather(in[0], (int)c->p[1], eg_argmax(in[0], (int)c->p[1], true)))
RUN_MATH(argmax_dropped, eg_index_select(in[0], 0, eg_argmax(in[0], 1, false)))
RUN_MATH(one_hot, eg_gather(in[0], 1, eg_argmax(eg_f_one_hot(in[1], c->p[0]), 1, true)))
/* p: -, dim, k, largest */
RUN_MATH(topk, eg_tuple_get(eg_topk(in[0], c->p[2], (int)c->p[1], c->p[3] != 0), 0))

/* p: classes, reduction, log_target; d: beta */
RUN_MATH(l1, eg_f_l1_loss(in[0], in[1], .reduction = (eg_reduction)c->p[1]))
RUN_MATH(smooth_l1, eg_f_smooth_l1_loss(in[0], in[1], .reduction = (eg_reduction)c->p[1], .beta = EG_F64(c->d[0])))
RUN_MATH(kl_div, eg_f_kl_div(in[0], in[1], .reduction = (eg_reduction)c->p[1], .log_target = c->p[2] != 0))
RUN_MATH(nll, eg_f_nll_loss(in[0], in[1], in[2], .reduction = (eg_reduction)c->p[1]))
RUN_MATH(bce, eg_f_bce_with_logits(in[0], in[1], in[2], .reduction = (eg_reduction)c->p[1]))

/* One row a line. */
/* clang-format off */
#define CASES_OF_FUNCTIONS                                                                                                   \
    {"elu", "", run_elu, "n", {S(2, 3, 4, 5)}, {0}, {0.7}},                                                                  \
    {"softplus", "", run_softplus, "n", {S(2, 3, 3, 5)}, {0}, {1.5, 20}},                                                    \
    {"softplus", "threshold", run_softplus, "n", {S(7, 3)}, {0}, {2, 1}},                                                    \
    {"mish", "", run_mish, "n", {S(2, 24, 3, 1)}, {0}, {0}},                                                                 \
    {"prelu", "channels", run_prelu, "nn", {S(2, 24, 3, 2), S(24)}, {0}, {0}},                                               \
    {"prelu", "one slope, row-major", run_prelu, "wn", {S(2, 3, 4, 5), S(1)}, {0}, {0}},                                     \
    {"prelu", "(N, C)", run_prelu, "nn", {S(5, 3), S(3)}, {0}, {0}},                                                         \
    {"prelu", "1-d", run_prelu, "nn", {S(7), S(1)}, {0}, {0}},                                                               \
    {"exp", "", run_exp, "n", {S(2, 3, 5)}, {0}, {0}},                                                                       \
    {"log", "", run_log, "p", {S(2, 3, 4, 5)}, {0}, {0}},                                                                    \
    {"sqrt", "", run_sqrt, "p", {S(5, 3)}, {0}, {0}},                                                                        \
    {"abs", "row-major", run_abs, "w", {S(2, 3, 4, 5)}, {0}, {0}},                                                           \
    {"pow", "2", run_pow, "n", {S(5, 3)}, {0}, {2}},                                                                         \
    {"pow", "3", run_pow, "n", {S(5, 3)}, {0}, {3}},                                                                         \
    {"pow", "1/2", run_pow, "p", {S(7)}, {0}, {0.5}},                                                                        \
    {"pow", "-1", run_pow, "p", {S(2, 3, 4, 5)}, {0}, {-1}},                                                                 \
    {"pow", "-1.7", run_pow, "p", {S(2, 3, 4, 5)}, {0}, {-1.7}},                                                             \
    {"clamp", "", run_clamp, "n", {S(2, 3, 4, 5)}, {0}, {-0.4, 0.9}},                                                        \
    {"clamp", "one side", run_clamp, "n", {S(9)}, {0}, {-INFINITY, 0.3}},                                                    \
    {"affine", "neg", run_neg, "n", {S(9)}, {0}, {0}},                                                                       \
    {"maximum", "equal shapes", run_maximum, "nn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},                                \
    {"maximum", "broadcast", run_maximum, "wn", {S(2, 3, 4, 5), S(3, 1, 1)}, {0}, {0}},                                      \
    {"minimum", "broadcast", run_minimum, "nn", {S(3, 1, 5), S(4, 1)}, {0}, {0}},                                            \
    {"where", "", run_where, "NNnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},                \
    {"where", "all broadcast", run_where, "NNnn", {S(3, 1), S(1), S(2, 1, 5), S(3, 5)}, {0}, {0}},                           \
    {"gt", "", run_gt, "NNn", {S(2, 3, 4, 5), S(5), S(2, 3, 4, 5)}, {0}, {0}},                                               \
    {"gt", "less", run_lt, "NNn", {S(7, 3), S(7, 3), S(7, 3)}, {0}, {0}},                                                    \
    {"eq", "", run_eq, "Nn", {S(7, 3), S(7, 3)}, {0}, {0}},                                                                  \
    {"gather", "channels", run_gather, "nl", {S(2, 5, 4, 3), S(2, 7, 4, 3)}, {5, 1}, {0}},                                   \
    {"gather", "smaller index", run_gather, "wl", {S(2, 5, 4, 3), S(1, 5, 3, 2)}, {3, -1}, {0}},                             \
    {"gather", "rows", run_gather, "nl", {S(6, 24), S(9, 24)}, {6, 0}, {0}},                                                 \
    {"gather", "1-d", run_gather, "nl", {S(5), S(8)}, {5, 0}, {0}},                                                          \
    {"gather", "one element", run_gather, "nl", {S(1, 1), S(1, 1)}, {1, 0}, {0}},                                            \
    {"index_select", "rows", run_index_select, "nl", {S(6, 24), S(9)}, {6, 0}, {0}},                                         \
    {"index_select", "channels", run_index_select, "nl", {S(2, 5, 4, 3), S(7)}, {5, 1}, {0}},                                \
    {"index_select", "width, row-major", run_index_select, "wl", {S(2, 5, 4, 3), S(2)}, {3, -1}, {0}},                       \
    {"index_select", "1-d", run_index_select, "nl", {S(5), S(3)}, {5, 0}, {0}},                                              \
    {"cumsum", "rows", run_cumsum, "n", {S(7, 3)}, {0, 0}, {0}},                                                             \
    {"cumsum", "channels", run_cumsum, "n", {S(2, 3, 4, 5)}, {0, 1}, {0}},                                                   \
    {"cumsum", "width", run_cumsum, "w", {S(2, 3, 4, 5)}, {0, -1}, {0}},                                                     \
    {"argmax", "kept", run_argmax, "n", {S(2, 5, 4, 3)}, {0, 1}, {0}},                                                       \
    {"argmax", "last", run_argmax, "n", {S(6, 37)}, {0, -1}, {0}},                                                           \
    {"argmax", "dropped", run_argmax_dropped, "n", {S(5, 5)}, {0}, {0}},                                                     \
    {"one_hot", "", run_one_hot, "nl", {S(6, 4), S(6)}, {4}, {0}},                                                           \
    {"topk", "rows", run_topk, "n", {S(5, 24)}, {0, -1, 7, 1}, {0}},                                                         \
    {"topk", "smallest channels", run_topk, "n", {S(2, 5, 4, 3)}, {0, 1, 2, 0}, {0}},                                        \
    {"topk", "all", run_topk, "w", {S(2, 3, 2, 5)}, {0, 3, 5, 1}, {0}},                                                      \
    {"topk", "one", run_topk, "n", {S(9)}, {0, 0, 1, 1}, {0}},                                                               \
    {"abs", "l1_loss", run_l1, "nn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0, EG_REDUCTION_MEAN}, {0}},                           \
    {"abs", "l1_loss, each", run_l1, "nw", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0, EG_REDUCTION_NONE}, {0}},                     \
    {"smooth_l1", "mean", run_smooth_l1, "nn", {S(7, 3), S(7, 3)}, {0, EG_REDUCTION_MEAN}, {0.7}},                           \
    {"smooth_l1", "each", run_smooth_l1, "nn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0, EG_REDUCTION_NONE}, {1.3}},               \
    {"abs", "smooth_l1_loss of beta 0", run_smooth_l1, "nn", {S(9), S(9)}, {0, EG_REDUCTION_SUM}, {0}},                      \
    {"log", "kl_div", run_kl_div, "np", {S(5, 3), S(5, 3)}, {0, EG_REDUCTION_BATCHMEAN}, {0}},                               \
    {"exp", "kl_div of logarithms", run_kl_div, "nn", {S(5, 3), S(5, 3)}, {0, EG_REDUCTION_MEAN, 1}, {0}},                   \
    {"gather", "nll_loss", run_nll, "nl", {S(7, 5), S(7)}, {5, EG_REDUCTION_MEAN}, {0}},                                     \
    {"gather", "nll_loss with weights", run_nll, "nlp", {S(7, 5), S(7), S(5)}, {5, EG_REDUCTION_MEAN}, {0}},                 \
    {"gather", "nll_loss of images", run_nll, "nlp", {S(2, 5, 4, 3), S(2, 4, 3), S(5)}, {5, EG_REDUCTION_NONE}, {0}},        \
    {"softplus", "bce", run_bce, "np", {S(7, 3), S(7, 3)}, {0, EG_REDUCTION_MEAN}, {0}},                                     \
    {"softplus", "bce with weight", run_bce, "npp", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(3, 1, 1)}, {0, EG_REDUCTION_SUM}, {0}},
/* clang-format on */
