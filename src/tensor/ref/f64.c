/* tensor/ref/f64.c - the reference kernels for float64. */
typedef double real;
#define REF_TABLE eg__ref_f64_kernels
#include "tensor/ref/typed.inc"
