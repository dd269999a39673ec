/* The program as people use it: commands, results, help, and one clear sentence for each way of going wrong. */
#define _XOPEN_SOURCE 700 /* for pseudo-terminals */

#include "command_support.h"

#include <sys/ioctl.h>

/* ---------------------------------------------------------------------------------------------- the way from search to
 * eval */

static void test_search_retrain_eval(void **state)
{
    (void)state;
    json_t *search = engraft_json(SEARCH "--strategy spos --epochs 2 --evaluations 3 --out @/s --json");
    assert_true(json_is_object(json_object_get(search, "arch")));
    assert_true(json_is_number(json_object_get(search, "seconds")));
    assert_true(json_is_string(json_object_get(search, "run")));

    json_t *retrain = engraft_json("retrain --run @/s --epochs 3 --batch 16 --lr 0.1 --threads 1 --out @/r --json");
    double accuracy = json_number_value(json_object_get(retrain, "test_accuracy"));
    assert_true(accuracy >= 0 && accuracy <= 1);
    assert_true(json_integer_value(json_object_get(retrain, "params")) > 0);
    assert_true(json_integer_value(json_object_get(retrain, "macs")) > 0);
    assert_true(json_is_number(json_object_get(retrain, "seconds")));

    json_t *eval = engraft_json("eval --run @/r --threads 1 --json");
    const char *const same[] = {"test_accuracy", "params", "macs"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!json_equal(json_object_get(eval, same[i]), json_object_get(retrain, same[i])))
            fail_msg("%s of eval and retrain differ", same[i]);

    json_t *again = engraft_json("retrain --resume --out @/r --json");
    assert_true(json_equal(again, retrain)); /* it is done: a report */
    json_t *show = engraft_json("show --run @/r --json");
    assert_true(json_equal(json_object_get(show, "params"), json_object_get(retrain, "params")));
    assert_true(json_equal(json_object_get(show, "macs"), json_object_get(retrain, "macs")));
    json_decref(search), json_decref(retrain), json_decref(eval), json_decref(again), json_decref(show);
}

static void test_retrain_from_file(void **state)
{
    (void)state;
    json_t *search = engraft_json(SEARCH "--strategy random --out @/random --json");
    json_t *retrain = engraft_json(
        "retrain --space cells --arch @/random/arch.json --data idx:@ --channels 4 --layers 2 --epochs 1 --batch 16 "
        "--augment off --subset 48 --threads 1 --out @/from_file --json");
    assert_true(json_is_number(json_object_get(retrain, "test_accuracy")));
    json_decref(search), json_decref(retrain);
}

/* Two retrainings side by side, the second of a control that nothing was trained for. */
static void test_compare(void **state)
{
    (void)state;
    engraft_fails("compare --run @/found --control @/control", 1, "is no finished retraining");
    json_t *search = engraft_json(SEARCH "--strategy random --lr 0.05 --out @/cs --json");
    assert_null(json_object_get(search, "epochs")); /* it trains nothing */
    json_t *sides[2];
    sides[0] = engraft_json("retrain --run @/cs --epochs 1 --batch 16 --threads 1 --out @/found --json");
    sides[1] = engraft_json("retrain --run @/cs --epochs 2 --batch 16 --threads 1 --out @/control --json");
    json_t *both = engraft_json("compare --run @/found --control @/control --json");
    const char *const names[] = {"run", "control"}, *const same[] = {"run", "test_accuracy", "params", "macs"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *side = json_object_get(both, names[i]);
        assert_true(json_equal(json_object_get(side, "arch"), json_object_get(search, "arch")));
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            if (!json_equal(json_object_get(side, same[k]), json_object_get(sides[i], same[k])))
                fail_msg("%s of compare and of the retraining %s differ", same[k], names[i]);
    }
    outcome o = engraft("compare --run @/found --control @/control");
    expect_status("compare", &o, 0);
    const char *const rows[] = {"cell0_op1", "parameters", "MACs", "test accuracy", "/found", "/control"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_part("compare", o.out, rows[i]);
    outcome_free(o);
    engraft_fails("compare --run @/found --control @/cs", 1, "/cs' is a search, not a retraining");
    engraft_fails("eval --run @/cs", 1, "/cs' is a search, not a retraining");
    json_decref(search), json_decref(sides[0]), json_decref(sides[1]), json_decref(both);
}

/* Numbers in files are as people wrote them. */
static void test_numbers_in_files(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --lr 0.05 --out @/numbers --json"));
    char path[TEMPORARY_PATH_SIZE];
    char *text = slurp(temporary_path(directory, "numbers/run.json", path));
    expect_part("run.json", text, "\"lr\": 0.05,");
    free(text);
    text = slurp(temporary_path(directory, "numbers/result.json", path));
    json_t *result = json_loads(text, 0, NULL);
    double seconds = json_number_value(json_object_get(result, "seconds"));
    char shown[64];
    snprintf(shown, sizeof shown, "\"seconds\": %.15g", seconds);
    expect_part("result.json", text, shown);
    assert_close(seconds * 1000, round(seconds * 1000), 1e-6);
    json_decref(result);
    free(text);
}

static void test_darts(void **state)
{
    (void)state;
    json_t *search = engraft_json(SEARCH "--strategy darts --epochs 1 --subset 64 --out @/darts --json");
    assert_true(json_object_size(json_object_get(search, "arch")) > 0);
    json_decref(search);
}

/* Expects one line of a text: a word, spaces, a word, and whatever follows. */
static void expect_row(const char *text, const char *first, const char *second)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t length = strlen(first);
        if (strncmp(line, first, length) != 0 || line[length] != ' ')
            continue;
        const char *rest = line + length + strspn(line + length, " ");
        if (strncmp(rest, second, strlen(second)) == 0 && strchr(" \n", rest[strlen(second)]))
            return;
    }
    fail_msg("no row \"%s %s\" in: %s", first, second, text);
}

static void test_text_output(void **state)
{
    (void)state;
    outcome o = engraft(SEARCH "--strategy random --epochs 3 --out @/text/");
    expect_status("search", &o, 0);
    expect_part("search", o.err, "strategy 'random' trains nothing: '--epochs' has no effect");
    expect_part("search", o.out, "cell0_op1");
    char next[2 * TEMPORARY_PATH_SIZE + 64];
    snprintf(next, sizeof next, "engraft retrain --run %s/text --out %s/text-retrained\n", directory, directory);
    expect_part("search", o.out, next);
    expect_part("search", o.out, "/text/arch.json\n");
    /* a choice whether to take one input is a yes or a no to people, the reference's form in files */
    char path[TEMPORARY_PATH_SIZE], *file = slurp(temporary_path(directory, "text/arch.json", path));
    bool taken = strstr(file, "\"cell0_shortcut\": \"\"") != NULL;
    assert_true(taken || strstr(file, "\"cell0_shortcut\": []"));
    free(file);
    expect_row(o.out, "cell0_shortcut", taken ? "yes" : "no");
    outcome_free(o);
    o = engraft("show --run @/text");
    expect_status("show", &o, 0);
    expect_row(o.out, "choice", "type");
    expect_part("show", o.out, taken ? "input_choice  yes " : "input_choice  no ");
    expect_part("show", o.out, "yes or no");
    outcome_free(o);
    json_t *show = engraft_json("show --run @/text --json");
    assert_non_null(json_object_get(json_array_get(json_object_get(show, "mutables"), 0), "chosen"));
    json_decref(show);
    o = engraft("show --space cells --channels 4 --layers 2");
    expect_status("show", &o, 0);
    assert_null(strstr(o.out, "LayerChoice"));
    outcome_free(o);
    o = engraft("show --space cells --channels 4 --layers 2 --tree");
    expect_part("show --tree", o.out, "LayerChoice");
    expect_part("show", o.out, "params");
    outcome_free(o);
}

static void test_show(void **state)
{
    (void)state;
    json_t *show = engraft_json("show --space cells --channels 4 --layers 2 --data idx:@ --json");
    assert_true(json_integer_value(json_object_get(show, "params")) > 0);
    assert_true(json_integer_value(json_object_get(show, "macs")) > 0);
    const json_t *mutables = json_object_get(show, "mutables");
    assert_true(json_array_size(mutables) > 0);
    size_t i;
    const json_t *item;
    json_array_foreach(mutables, i, item)
    {
        assert_true(json_is_string(json_object_get(item, "key")));
        assert_true(json_is_string(json_object_get(item, "type")));
        assert_true(json_array_size(json_object_get(item, "candidates")) > 0);
    }
    json_decref(show);
}

static void test_lists(void **state)
{
    (void)state;
    const char *const commands[][2] = {{"spaces --json", "spaces"}, {"strategies --json", "strategies"}};
    for (size_t i = 0; i < 2; i++) {
        json_t *json = engraft_json(commands[i][0]);
        assert_true(json_array_size(json_object_get(json, commands[i][1])) >= 2);
        json_decref(json);
    }
    outcome o = engraft("strategies");
    expect_part("strategies", o.out, "darts");
    outcome_free(o);
}

/* ---------------------------------------------------------------------------------------------- help and wrong use */

static void test_help(void **state)
{
    (void)state;
    const char *const commands[] = {"search", "retrain", "eval", "compare", "show", "spaces", "strategies"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[64], usage[64];
        snprintf(line, sizeof line, "%s --help", commands[i]);
        snprintf(usage, sizeof usage, "usage: engraft %s ", commands[i]);
        outcome o = engraft(line);
        expect_status(line, &o, 0);
        expect_part(line, o.out, usage);
        if (strcmp(commands[i], "retrain") == 0)
            expect_part(line, o.out, "for long trainings (default: off)");
        expect_part(line, o.out, "--json");
        assert_string_equal(o.err, "");
        snprintf(line, sizeof line, "help %s", commands[i]);
        outcome same = engraft(line);
        assert_string_equal(o.out, same.out);
        outcome_free(o);
        outcome_free(same);
    }
    outcome o = engraft("--help");
    expect_part("--help", o.out, "search");
    expect_part("--help", o.out, "OMP_WAIT_POLICY");
    outcome_free(o);
    o = engraft("--version");
    assert_string_equal(o.out, "engraft " EG_VERSION_STRING "\n");
    outcome_free(o);
}

static void test_wrong_use(void **state)
{
    (void)state;
    const struct {
        const char *line, *part;
    } cases[] = {
        {"", "engraft: no command"},
        {"serch", "engraft: unknown command 'serch': did you mean 'search'?"},
        {"help serch", "did you mean 'search'?"},
        {"help a b", "engraft help: "},
        {"search --batch 0", "engraft search: option '--batch' takes a whole number of at least 1"},
        {"search --batch ten", "not 'ten'"},
        {"search --batch 1e3", "not '1e3'"},
        {"search --batch 99999999999999999999", "'--batch'"},
        {"search --epochs 0", "'--epochs'"},
        {"search --epochs --batch 3", "not '--batch'"},
        {"search --seed -1", "'--seed'"},
        {"search --lr 0", "'--lr' takes a number above 0"},
        {"search --lr nan", "'--lr'"},
        {"search --space", "engraft search: option '--space' needs a value"},
        {"search --space cell --out x", "did you mean 'cells'?"},
        {"show --space nope", "there is no space 'nope' ('engraft spaces' lists them)"},
        {"show --space mine.jsn", "there is no space 'mine.jsn' (the name of a space's file ends in .json)"},
        {"show --space cells --graph x --memory", "'--tree' and '--graph' go without"},
        {"search --space cells --strategy dart --out x", "'darts'"},
        {"search --choice best", "'evolution'"},
        {"search --out x", "option '--space NAME' is missing"},
        {"search --space cells", "option '--out DIR' is missing"},
        {"search --epoch=3", "unknown option '--epoch=3': did you mean '--epochs'?"}, /* full names only */
        {"search --epoch", "unknown option '--epoch': did you mean '--epochs'?"},
        {"search --check 3", "unknown option '--check': did you mean '--checkpoint-seconds'?"},
        {"search --hel", "unknown option '--hel': did you mean '--help'?"},
        {"search --data mnist", "unknown data set 'mnist', expected 'fashion-mnist', "},
        {"retrain --data idx:", "expected 'idx:DIR'"},
        {"eval --data csv", "expected 'csv:FILE'"},
        {"show --space cells --data fashion-mnist:x", "expected 'fashion-mnist'"},
        {"search --strategi spos", "unknown option '--strategi': did you mean '--strategy'?"},
        {"search --s spos", "unknown option '--s'"},
        {"search -x", "unknown option '-x'"},
        {"search --json=yes", "option '--json' takes no value"},
        {"search --data= ", "'--data'"},
        {"search cells", "'cells' is not an option"},
        {"retrain --augment maybe --out x", "takes 'on' or 'off'"},
        {"retrain --out x", "--run DIR"},
        {"retrain --out x --space cells", "--arch FILE"},
        {"retrain --run a --arch b --out x", "exclude each other"},
        {"eval", "option '--run DIR' is missing"},
        {"compare --run x", "option '--control DIR' is missing"},
        {"show", "either '--space NAME' or '--run DIR'"},
        {"show --space cells --run x", "either"},
        {"spaces --all", "engraft spaces: unknown option '--all'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        engraft_fails(cases[i].line, 2, cases[i].part);
}

/* ---------------------------------------------------------------------------------------------- failures */

static void test_bad_inputs(void **state)
{
    (void)state;
    write_to("plain", "x");
    engraft_fails("search --space cells --data idx:@/nowhere --out @/x", 1, "nowhere");
    engraft_fails(SEARCH "--strategy random --out @/plain", 1, "/plain'");
    engraft_fails(SEARCH "--strategy random --out @/plain/x", 1, "/plain");
    engraft_fails("retrain --run @/nowhere --out @/x", 1, "is no run");
    engraft_fails("eval --run @/nowhere", 1, "is no run");
    engraft_fails("show --run @/nowhere", 1, "is no run");
    engraft_fails("retrain --space cells --arch @/nowhere --data idx:@ --out @/x", 1, "nowhere");
    engraft_fails("retrain --space cells --arch @/plain --data idx:@ --out @/x", 1, "/plain");
}

static void test_bad_architectures(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --out @/bad --json"));
    engraft_fails(SEARCH "--strategy random --out @/bad", 1,
                  "/bad' holds a run already: add --resume or name another --out");
    engraft_fails("search --resume --out @/nothing", 1, "/nothing' holds no run to resume");
    engraft_fails("retrain --resume --out @/nothing", 1, "/nothing' holds no run to resume");
    engraft_fails("search --space cells --resume --out @/bad --seed 4", 1, "seed 3, not 4");
    write_to("bad/arch.json", "{\"cell0_op1\": \"nonsense\"}");
    engraft_fails("retrain --run @/bad --out @/y", 1, "cell0_");
    engraft_fails("show --run @/bad", 1, "cell0_");
    write_to("bad/arch.json", "{\"cell0_op1\": ");
    engraft_fails("retrain --run @/bad --out @/y2", 1, "arch.json");
    write_to("bad/run.json", "{\"space\": 3}");
    engraft_fails("retrain --run @/bad --out @/y3", 1, "'space'");
    write_to("bad/run.json", "nonsense");
    engraft_fails("show --run @/bad", 1, "run.json");
    char path[TEMPORARY_PATH_SIZE];
    remove(temporary_path(directory, "bad/arch.json", path));
    write_to("bad/run.json", "{\"space\": \"cells\"}");
    engraft_fails("retrain --run @/bad --out @/y4", 1, "not finished");
}

/* A command that was wrong leaves nothing in the way of the right one. */
static void test_right_after_wrong(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --out @/right --json"));
    char path[TEMPORARY_PATH_SIZE];
    engraft_fails("retrain --space darts --arch @/right/arch.json --data idx:@ --out @/wrong", 1,
                  "missing keys in the architecture: ");
    engraft_fails("retrain --run @/right --layers 1 --out @/wrong", 1, "unexpected keys");
    assert_int_not_equal(access(temporary_path(directory, "wrong", path), F_OK), 0);
    json_decref(engraft_json("retrain --run @/right --epochs 1 --batch 16 --threads 1 --out @/wrong --json"));
    engraft_fails("search --space darts --data idx:@ --layers 1000 --channels 4096 --out @/wrongs --batch 0", 2,
                  "'--batch'");
    write_to("table.csv", "1,2,0\n2,1,1\n3,4,0\n4,5,1\n5,6,0\n6,7,1\n");
    engraft_fails("search --space cells --data csv:@/table.csv --out @/wrongs", 1, "image");
    engraft_fails(SEARCH "--subset 1 --out @/wrongs", 1, "has 1 samples, too few to be halved");
    assert_int_not_equal(access(temporary_path(directory, "wrongs", path), F_OK), 0);
}

static void test_bad_checkpoint(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy spos --epochs 1 --evaluations 2 --out @/ck --json"));
    char path[TEMPORARY_PATH_SIZE];
    remove(temporary_path(directory, "ck/result.json", path));
    write_to("ck/checkpoint/last.safetensors", "nothing like a checkpoint");
    engraft_fails("search --resume --out @/ck", 1, "last.safetensors");
    json_decref(engraft_json("retrain --run @/ck --epochs 1 --batch 16 --threads 1 --out @/ckr --json"));
    write_to("ckr/model.safetensors", "nothing like a model");
    engraft_fails("eval --run @/ckr", 1, "model.safetensors");
}

/* A limit on file sizes stands for a full disk; /dev/full for a full output. */
static void test_no_room(void **state)
{
    (void)state;
    char line[2048];
    snprintf(line, sizeof line,
             "search --space cells --data idx:%s --channels 4 --layers 2 --strategy spos --epochs 1 --batch 16 "
             "--threads 1 --out %s/full",
             directory, directory);
    outcome o = run_limited(directory, line, 4096);
    expect_status(line, &o, 1);
    expect_part(line, o.err, "last.safetensors");
    outcome_free(o);
    char err[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "stderr", err);
    assert_int_equal(wait_program(start_program("search --help", "/dev/full", err, RLIM_INFINITY)), 1);
    char *text = slurp(err);
    expect_part("search --help", text, "cannot write standard output");
    free(text);
}

/* On a terminal of 40 columns no line of progress is longer than 39. */
static void test_narrow_terminal(void **state)
{
    (void)state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        skip();
    const char *name = ptsname(terminal);
    assert_non_null(name);
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = 40}), 0);
    char line[2048], out[TEMPORARY_PATH_SIZE], text[1 << 14];
    snprintf(line, sizeof line,
             "search --space cells --data idx:%s --channels 4 --layers 2 --strategy spos --epochs 2 --batch 16 "
             "--evaluations 2 --threads 1 --out %s/narrow",
             directory, directory);
    pid_t child = start_program(line, temporary_path(directory, "stdout", out), name, RLIM_INFINITY);
    size_t used = 0;
    for (ssize_t n; (n = read(terminal, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(terminal);
    assert_int_equal(wait_program(child), 0);
    expect_part("search", text, "epoch 2/2  train 3/3  acc1 "); /* no room for a bar */
    expect_part("search", text, "candidates [");
    expect_part("search", text, "] 2/2");
    static const char redraw[] = "\r\033[K";
    size_t lines = 0;
    for (const char *p = text; (p = strstr(p, redraw)); lines++) {
        p += strlen(redraw);
        assert_true(strcspn(p, "\r\n") <= 39);
    }
    assert_true(lines >= 3);
}

static void test_interrupt(void **state)
{
    (void)state;
    char line[2048], out[TEMPORARY_PATH_SIZE], err[TEMPORARY_PATH_SIZE], events[TEMPORARY_PATH_SIZE];
    snprintf(line, sizeof line,
             "search --space cells --data idx:%s --channels 4 --layers 2 --strategy spos --epochs 100000 --batch 16 "
             "--threads 1 --out %s/int",
             directory, directory);
    pid_t child = start_program(line, temporary_path(directory, "stdout", out),
                                temporary_path(directory, "stderr", err), RLIM_INFINITY);
    temporary_path(directory, "int/events.jsonl", events);
    for (int i = 0; i < 3000 && access(events, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(wait_program(child), 1);
    char *text = slurp(err);
    expect_part("search", text, "to go on: engraft search --resume --out ");
    free(text);
    assert_int_equal(access(temporary_path(directory, "int/checkpoint/last.safetensors", out), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_retrain_eval),
        cmocka_unit_test(test_retrain_from_file),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_numbers_in_files),
        cmocka_unit_test(test_darts),
        cmocka_unit_test(test_text_output),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_bad_inputs),
        cmocka_unit_test(test_bad_architectures),
        cmocka_unit_test(test_right_after_wrong),
        cmocka_unit_test(test_bad_checkpoint),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_narrow_terminal),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
