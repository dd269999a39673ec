/* tensor/ref/f32.c - the reference kernels for float32. */
typedef float real;
#define REF_TABLE eg__ref_f32_kernels
#include "tensor/ref/typed.inc"
