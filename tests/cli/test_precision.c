/* --precision: refused where the processor lacks it, and a whole search, retraining and evaluation where it is
 * emulated. */
#include "command_support.h"

#define REFUSAL "bf16 needs a processor with AVX512-BF16 or AMX; this one has AVX2: use --precision f32"

static void test_refused(void **state)
{
    (void)state;
    char path[TEMPORARY_PATH_SIZE];
    engraft_fails(SEARCH "--strategy spos --epochs 1 --precision bf16 --out @/no", 1, REFUSAL);
    assert_int_not_equal(access(temporary_path(directory, "no", path), F_OK), 0);
    engraft_fails("show --space cells --memory --precision bf16", 1, REFUSAL);
    engraft_fails(SEARCH "--precision f16 --out @/no", 2, "unknown precision 'f16', expected 'f32' or 'bf16'");
    engraft_fails("show --space cells --precision bf16", 2, "go with '--memory'");
}

static double activations(const json_t *shown)
{
    return json_number_value(json_object_get(json_array_get(json_object_get(shown, "memory"), 0), "activations"));
}

static void test_emulated(void **state)
{
    (void)state;
    setenv("EG_BF16", "emulate", 1);
    json_t *search = engraft_json(SEARCH "--strategy darts --epochs 1 --precision bf16 --out @/s --json");
    json_t *retrain =
        engraft_json("retrain --run @/s --epochs 6 --batch 16 --threads 1 --precision bf16 --out @/r --json");
    assert_true(json_number_value(json_object_get(retrain, "test_accuracy")) > 0.6);
    json_t *eval = engraft_json("eval --run @/r --threads 1 --json");
    assert_true(json_equal(json_object_get(eval, "test_accuracy"), json_object_get(retrain, "test_accuracy")));
    engraft_fails("search --resume --precision f32 --out @/s", 1, "precision");
    json_t *again = engraft_json("search --resume --out @/s --json");
    assert_true(json_equal(json_object_get(again, "arch"), json_object_get(search, "arch")));
    json_t *narrow = engraft_json("show --space cells --channels 16 --memory --batch 256 --precision bf16 --json"),
           *wide = engraft_json("show --space cells --channels 16 --memory --batch 256 --json");
    assert_true(activations(wide) > 0 && activations(narrow) < 0.65 * activations(wide));
    json_t *of_run = engraft_json("show --run @/s --memory --batch 256 --json"),
           *of_other = engraft_json("show --run @/s --memory --batch 256 --precision f32 --json");
    assert_true(activations(of_run) != activations(of_other));
    unsetenv("EG_BF16");
    engraft_fails("eval --run @/r --threads 1", 1, REFUSAL);
    json_t *plain = engraft_json("eval --run @/r --threads 1 --precision f32 --json");
    assert_true(json_number_value(json_object_get(plain, "test_accuracy")) > 0.6);
    json_decref(search), json_decref(retrain), json_decref(eval), json_decref(again);
    json_decref(narrow), json_decref(wide), json_decref(plain), json_decref(of_run), json_decref(of_other);
}

int main(void)
{
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* wherever this runs, it is a processor without */
    unsetenv("EG_BF16");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_emulated)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
