// Reads call_json, and compares the tensors of a call with what was announced.
#include "runtime/call_site.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::runtime {
namespace {

TensorSpec parse_tensor(const Json& json) {
  TensorSpec spec{json.at("name"), parse_dtype(json.at("dtype").get<std::string>()), json.at("shape"), json.at("strides")};
  if (spec.shape.size() != spec.strides.size()) throw Error("tensor " + spec.name + " has another number of strides than of dims");
  return spec;
}

std::vector<TensorSpec> parse_tensors(const Json& json) {
  std::vector<TensorSpec> tensors;
  for (const Json& tensor : json) tensors.push_back(parse_tensor(tensor));
  return tensors;
}

bool same_layout(const TensorSpec& announced, const TensorView& given) {
  if (std::ranges::find(announced.shape, 0) != announced.shape.end()) return true;
  for (size_t i = 0; i < announced.shape.size(); ++i) {
    if (announced.shape[i] != 1 && announced.strides[i] != given.strides[i]) return false;
  }
  return true;
}

}  // namespace

CallSite parse_call_site(std::string_view text) try {
  const Json json = Json::parse(text);
  return {parse_tensors(json.at("inputs")), parse_tensors(json.at("outputs")), kernel::binding_from_json(json),
          json.contains("device") ? std::optional(json.at("device").get<int>()) : std::nullopt};
} catch (const Json::exception& error) {
  throw Error(std::string("call_json: ") + error.what());
}

std::string difference(const TensorSpec& announced, const TensorView& given) {
  if (announced.dtype != given.dtype) {
    return fmt::format("{} is {}, the kernel was opened for {}", announced.name, name_of(given.dtype), name_of(announced.dtype));
  }
  if (!std::ranges::equal(announced.shape, given.shape)) {
    return fmt::format("{} has shape [{}], the kernel was opened for [{}]", announced.name, fmt::join(given.shape, ", "),
                       fmt::join(announced.shape, ", "));
  }
  if (!same_layout(announced, given)) {
    return fmt::format("{} has strides [{}], the kernel was opened for [{}]", announced.name, fmt::join(given.strides, ", "),
                       fmt::join(announced.strides, ", "));
  }
  return {};
}

}  // namespace ak::runtime
