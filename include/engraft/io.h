/** @file
 * engraft/io.h - files of tensors: safetensors (https://github.com/huggingface/safetensors), read and written.
 *
 * Files may be hostile: every offset, size and shape is checked against the file's length before memory is taken.
 * Writing is atomic: temporary name, sync, rename.
 */
#ifndef ENGRAFT_IO_H
#define ENGRAFT_IO_H

#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Reads all tensors (F32, F64, I64, U8; F16 and BF16 become F32, other integer types I64) in file order. 4-d
 *  tensors are row-major. *metadata (may be NULL) receives the JSON text of "__metadata__" ("{}" when absent), for
 *  eg_free(). NULL on failure: ENOENT, EIO (also what is not a regular file), EFORMAT (naming the tensor). */
EG_API eg_state *eg_safetensors_load(eg_context *ctx, const char *path, char **metadata);
/** Writes F32, F64, I64 and U8 tensors, those of wide types first (so that each is aligned in a mapped file), then by
 *  name; `metadata`: JSON object of strings or NULL. EINVAL for tensors without numbers, for names that are
 *  no UTF-8 and for metadata of another form; EIO. */
EG_API eg_status eg_safetensors_save(const eg_state *state, const char *path, const char *metadata);

/** Saves the state of a model (eg_module_state()). Fails as eg_safetensors_save() does. */
EG_API eg_status eg_module_save(eg_module *m, const char *path);
/** Loads it, strictly: see eg_module_load_state(). Nothing is changed on failure. */
EG_API eg_status eg_module_load(eg_module *m, const char *path);

#ifdef __cplusplus
}
#endif
#endif
