/* The C API of libautokernel.so: matching, opening finished kernels, the PyTorch operator that calls them, and a sandbox for compilers. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AK_API __attribute__((visibility("default")))

/* Text in, text out: JSON, freed by the caller with ak_free. Nothing throws; null or -1 is an error, and ak_last_error() of the same
   thread has its text. Formats: docs/formats/bundle.md. */

/// Match the families' patterns in a graph: {"regions": [...]}.
AK_API char* ak_match(const char* graph_json, const char* patterns_json, const char* families_directory);

/// Make a bundle's kernel ready for one call site. The number depends on the content of the bundle and of call_json alone, so compiled code
/// that names it may be cached across processes.
AK_API int64_t ak_open(const char* bundle_directory, const char* call_json);

/// The launches of a bundle for one call site, every number evaluated for this machine: {"launches", "prepare", "scratch", "macros"}.
AK_API char* ak_plan(const char* bundle_directory, const char* call_json);

/// Give torch.ops.autokernel.call1 ... call8 their implementation for the CPU, and for CUDA where PyTorch has it, through PyTorch's C shim
/// in this process. 0, or -1.
AK_API int ak_register(void);

/// How often the instance was called; -1 where there is none.
AK_API int64_t ak_calls(int64_t instance);

/// Say that weights were overwritten in place: kernels on GPUs, which do not notice it, prepare them again at their next call.
AK_API void ak_weights_changed(void);

/// Confine this process and those it will start, for good, to the files of {"read": [path, ...], "run": [...], "write": [...]}, directories
/// with all below, and to the calls that a compiler needs: {"levels": what was reached, of "files" and "calls"}. Without Landlock of
/// version 2, which lets files move between directories, files stay open.
AK_API char* ak_confine(const char* rules_json);

/// Undo one ak_open.
AK_API void ak_close(int64_t instance);

/// The text of this thread's last error; valid until its next call.
AK_API const char* ak_last_error(void);

AK_API void ak_free(char* text);

#ifdef __cplusplus
}
#endif
