/*
 * ops/registry.c - the table of built-in operations.
 */
#include "ops/registry.h"

#define OP_ADDRESS(record) &eg__op_##record,
const eg_op *const eg__op_list[] = {EG_OPS(OP_ADDRESS)};
#undef OP_ADDRESS

const size_t eg__op_count = EG_COUNT(eg__op_list);
