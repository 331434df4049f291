// Element types of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ak {

enum class Dtype : uint8_t { float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, boolean };

int64_t size_bytes(Dtype dtype);
bool is_floating(Dtype dtype);

/// PyTorch's name: "float32", "bool".
std::string_view name_of(Dtype dtype);
/// errors: an unknown name; the text lists the known ones. "fp16", "half", "bf16" and the like are understood.
Dtype parse_dtype(std::string_view name);
std::optional<Dtype> find_dtype(std::string_view name);
/// safetensors' name: "F32", "BOOL".
std::string_view safetensors_name(Dtype dtype);
/// errors: an unknown name.
Dtype parse_safetensors_dtype(std::string_view name);
/// The type in a C++ kernel file: "float", "ak::float16", "int64_t".
std::string_view cpp_name(Dtype dtype);
/// The type in a CUDA kernel file: "float", "__half", "int64_t".
std::string_view cuda_name(Dtype dtype);
/// The element of a pointer in Triton: "fp32", "bf16", "i64".
std::string_view triton_name(Dtype dtype);

/// Half a unit in the last place of `dtype` at magnitude `value`, subnormals included. 0 for integers.
double half_ulp(Dtype dtype, double value);

}  // namespace ak
