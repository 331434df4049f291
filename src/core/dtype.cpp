// The table of element types.
#include "core/dtype.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace ak {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name, safetensors, cpp, cuda, triton;
  int64_t bytes;
  int mantissa_bits;     // explicit; 0 for integers
  int minimum_exponent;  // of the smallest normal number
};

constexpr std::array<Row, 10> table = {{
    {Dtype::float64, "float64", "F64", "double", "double", "fp64", 8, 52, -1022},
    {Dtype::float32, "float32", "F32", "float", "float", "fp32", 4, 23, -126},
    {Dtype::float16, "float16", "F16", "ak::float16", "__half", "fp16", 2, 10, -14},
    {Dtype::bfloat16, "bfloat16", "BF16", "ak::bfloat16", "__nv_bfloat16", "bf16", 2, 7, -126},
    {Dtype::int64, "int64", "I64", "int64_t", "int64_t", "i64", 8, 0, 0},
    {Dtype::int32, "int32", "I32", "int32_t", "int32_t", "i32", 4, 0, 0},
    {Dtype::int16, "int16", "I16", "int16_t", "int16_t", "i16", 2, 0, 0},
    {Dtype::int8, "int8", "I8", "int8_t", "int8_t", "i8", 1, 0, 0},
    {Dtype::uint8, "uint8", "U8", "uint8_t", "uint8_t", "u8", 1, 0, 0},
    {Dtype::boolean, "bool", "BOOL", "bool", "bool", "i1", 1, 0, 0},
}};

struct Alias {
  std::string_view alias, name;
};
constexpr std::array<Alias, 9> aliases = {{{"fp32", "float32"},
                                           {"float", "float32"},
                                           {"fp16", "float16"},
                                           {"half", "float16"},
                                           {"bf16", "bfloat16"},
                                           {"fp64", "float64"},
                                           {"double", "float64"},
                                           {"long", "int64"},
                                           {"int", "int32"}}};

const Row& row(Dtype dtype) { return table[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t size_bytes(Dtype dtype) { return row(dtype).bytes; }
bool is_floating(Dtype dtype) { return row(dtype).mantissa_bits > 0; }
std::string_view name_of(Dtype dtype) { return row(dtype).name; }
std::string_view safetensors_name(Dtype dtype) { return row(dtype).safetensors; }
std::string_view cpp_name(Dtype dtype) { return row(dtype).cpp; }
std::string_view cuda_name(Dtype dtype) { return row(dtype).cuda; }
std::string_view triton_name(Dtype dtype) { return row(dtype).triton; }

std::optional<Dtype> find_dtype(std::string_view name) {
  for (const Alias& alias : aliases) {
    if (alias.alias == name) name = alias.name;
  }
  for (const Row& candidate : table) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

Dtype parse_dtype(std::string_view name) {
  if (const auto found = find_dtype(name)) return *found;
  std::string known;
  for (const Row& candidate : table) known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  throw Error("unknown dtype '" + std::string(name) + "'", "use one of " + known);
}

Dtype parse_safetensors_dtype(std::string_view name) {
  for (const Row& candidate : table) {
    if (candidate.safetensors == name) return candidate.dtype;
  }
  throw Error("unknown safetensors dtype '" + std::string(name) + "'");
}

double half_ulp(Dtype dtype, double value) {
  const Row& type = row(dtype);
  if (type.mantissa_bits == 0 || !std::isfinite(value)) return 0.0;
  const int exponent = value == 0.0 ? type.minimum_exponent : std::max(std::ilogb(value), type.minimum_exponent);
  return std::ldexp(0.5, exponent - type.mantissa_bits);
}

}  // namespace ak
