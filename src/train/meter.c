/*
 * Meters: running averages of a training's numbers, printed as NNI's AverageMeterGroup prints them.
 */
#include "train/internal.h"

#include <math.h>

struct eg_meter_group {
    eg__map meters; /* name -> eg_meter *, owned */
};

void eg_meter_update(eg_meter *meter, double value, uint64_t n)
{
    if (!meter)
        return;
    meter->val = value;
    meter->sum += value * (double)n;
    meter->count += n;
    meter->avg = meter->count > 0 ? meter->sum / (double)meter->count : 0.0;
}

eg_meter_group *eg_meter_group_new(void)
{
    return eg__calloc(1, sizeof(eg_meter_group));
}

void eg_meter_group_free(eg_meter_group *group)
{
    if (!group)
        return;
    eg_meter_group_reset(group);
    eg_free(group);
}

void eg_meter_group_reset(eg_meter_group *group)
{
    if (!group)
        return;
    for (size_t i = 0; i < group->meters.n; i++)
        eg_free(group->meters.entries[i].value);
    eg__map_free(&group->meters);
    group->meters = (eg__map){0};
}

/* The meter of that name, made when it is not there yet. NULL on failure. */
static eg_meter *meter_of(eg_meter_group *group, const char *name)
{
    eg_meter *meter = eg__map_get(&group->meters, name);
    if (meter)
        return meter;
    meter = eg__calloc(1, sizeof *meter);
    if (!meter)
        return NULL;
    if (eg__map_put(&group->meters, name, meter) != EG_OK) {
        eg_free(meter);
        return NULL;
    }
    return meter;
}

eg_status eg_meter_group_update(eg_meter_group *group, const char *name, double value, uint64_t n)
{
    EG_CHECK(group && name, EG_EINVAL, "meter group or name is NULL");
    eg_meter *meter = meter_of(group, name);
    if (!meter)
        return EG_ENOMEM;
    eg_meter_update(meter, value, n);
    return EG_OK;
}

const eg_meter *eg_meter_group_get(const eg_meter_group *group, const char *name)
{
    if (!group || !name)
        return eg__null(__func__, group ? "name" : "group");
    const eg_meter *meter = eg__map_get(&group->meters, name);
    if (!meter)
        eg_fail(EG_ENOENT, "no meter '%s'", name);
    return meter;
}

size_t eg_meter_group_size(const eg_meter_group *group)
{
    return group ? group->meters.n : 0;
}

const eg_meter *eg_meter_group_at(const eg_meter_group *group, size_t i, const char **name)
{
    if (!group || i >= group->meters.n) {
        eg_fail(EG_EINVAL, "meter %zu of a group of %zu", i, eg_meter_group_size(group));
        return NULL;
    }
    if (name)
        *name = group->meters.entries[i].key;
    return group->meters.entries[i].value;
}

static char *text(const eg_meter_group *group, bool with_last)
{
    eg__buf buf = {0};
    eg__buf_append(&buf, "", 0);
    for (size_t i = 0; i < group->meters.n; i++) {
        const char *name = group->meters.entries[i].key;
        const eg_meter *meter = group->meters.entries[i].value;
        if (with_last)
            eg__buf_printf(&buf, "%s%s %4f (%4f)", i > 0 ? "  " : "", name, meter->val, meter->avg);
        else
            eg__buf_printf(&buf, "%s%s: %4f", i > 0 ? "  " : "", name, meter->avg);
    }
    return eg__buf_take(&buf);
}

char *eg_meter_group_text(const eg_meter_group *group)
{
    return group ? text(group, true) : eg__null(__func__, "group");
}

char *eg_meter_group_summary(const eg_meter_group *group)
{
    return group ? text(group, false) : eg__null(__func__, "group");
}

json_t *eg__meters_json(const eg_meter_group *group)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < group->meters.n; i++) {
        const eg_meter *meter = group->meters.entries[i].value;
        json_t *item =
            json_pack("{s:s, s:o, s:o, s:o}", "name", group->meters.entries[i].key, "val", eg__json_double(meter->val),
                      "sum", eg__json_double(meter->sum), "count", eg__json_u64(meter->count));
        if (!item || json_array_append_new(list, item) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    if (!list)
        eg_fail(EG_ENOMEM, "no memory for a checkpoint's meters");
    return list;
}

eg_status eg__meters_restore(eg_meter_group *group, const json_t *list)
{
    EG_CHECK(json_is_array(list), EG_EFORMAT, "meters are missing");
    eg_meter_group_reset(group);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        double val = 0, sum = 0;
        uint64_t count = 0;
        EG_CHECK(name, EG_EFORMAT, "meter %zu has no name", i);
        EG_TRY(eg__json_get_double(item, "val", &val));
        EG_TRY(eg__json_get_double(item, "sum", &sum));
        EG_TRY(eg__json_get_u64(item, "count", &count));
        eg_meter *meter = meter_of(group, name);
        if (!meter)
            return EG_ENOMEM;
        *meter = (eg_meter){.val = val, .sum = sum, .count = count, .avg = count > 0 ? sum / (double)count : 0.0};
    }
    return EG_OK;
}

void eg__meters_swap(eg_meter_group *a, eg_meter_group *b)
{
    eg_meter_group other = *a;
    *a = *b;
    *b = other;
}

json_t *eg__meters_averages(const eg_meter_group *group)
{
    json_t *averages = json_object();
    for (size_t i = 0; averages && i < group->meters.n; i++) {
        const eg_meter *meter = group->meters.entries[i].value;
        json_t *value = isfinite(meter->avg) ? json_real(meter->avg) : json_null();
        if (json_object_set_new(averages, group->meters.entries[i].key, value) != 0) {
            json_decref(averages);
            averages = NULL;
        }
    }
    if (!averages)
        eg_fail(EG_ENOMEM, "no memory for an event's meters");
    return averages;
}
