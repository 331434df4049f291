// Resolves the names of a plan against a call site.
#include "runtime/instance.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace ak::runtime {
namespace {

using kernel::Argument;
using kernel::ConcreteLaunch;

template <class Names>
size_t position_in(const Names& names, const std::string& name) {
  return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
}

}  // namespace

Instance::Instance(DeviceType device_type, CallSite site, const kernel::ConcretePlan& plan, const std::vector<std::string>& weights)
    : device_type_(device_type), site_(std::move(site)) {
  if (site_.inputs.size() + site_.outputs.size() > max_tensors)
    throw Error("the call site has more than " + std::to_string(max_tensors) + " tensors");
  sort_scratch(plan);
  for (const kernel::ConcreteTensorMap& map : plan.tensor_maps) tensor_map_names_.push_back(map.name);
  for (size_t i = 0; i < site_.inputs.size(); ++i) {
    if (std::ranges::find(weights, site_.inputs[i].name) != weights.end()) weight_inputs_.push_back(i);
  }
  for (const ConcreteLaunch& launch : plan.prepares) {
    for (const Slot& slot : slots_of(launch)) {
      const bool is_weight = std::ranges::find(weight_inputs_, slot.index) != weight_inputs_.end();
      if (slot.kind == Slot::Kind::tensor && !is_weight) throw Error("a [[prepare]] launch may read only inputs of role weight");
    }
  }
}

/// Scratch that [[prepare]] touches lives with the weights, the rest with a call. What a worker has for itself is the CPU's matter.
void Instance::sort_scratch(const kernel::ConcretePlan& plan) {
  for (const auto& scratch : plan.scratch) {
    if (scratch.per_worker) continue;
    const bool prepared = kernel::touch_scratch(plan, plan.prepares, scratch.name);
    (prepared ? prepared_names_ : buffer_names_).push_back(scratch.name);
    (prepared ? prepared_buffers_ : buffers_).push_back({scratch.bytes, scratch.zeroed});
  }
}

std::vector<Instance::Slot> Instance::slots_of(const ConcreteLaunch& launch) const {
  std::vector<Slot> slots;
  for (const Argument& argument : launch.arguments) slots.push_back(slot_of(argument));
  return slots;
}

Instance::Slot Instance::slot_of(const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Kind::integer:
    case Argument::Kind::integer32: return {Slot::Kind::value, 0, std::bit_cast<uint64_t>(argument.integer)};
    case Argument::Kind::real: return {Slot::Kind::value, 0, std::bit_cast<uint32_t>(static_cast<float>(argument.real))};
    case Argument::Kind::null: return {Slot::Kind::value, 0, 0};
    case Argument::Kind::tensor_map: return {Slot::Kind::tensor_map, position_in(tensor_map_names_, argument.name), 0};
    case Argument::Kind::tensor: return {Slot::Kind::tensor, tensor_index(argument.name), 0};
    case Argument::Kind::scratch: break;
  }
  if (const size_t index = position_in(prepared_names_, argument.name); index < prepared_names_.size())
    return {Slot::Kind::prepared, index, 0};
  const size_t index = position_in(buffer_names_, argument.name);
  if (index == buffer_names_.size())
    throw Error("the plan names scratch " + argument.name + ", which is declared for one worker or not at all");
  return {Slot::Kind::buffer, index, 0};
}

size_t Instance::tensor_index(const std::string& name) const {
  size_t index = 0;
  for (const auto* tensors : {&site_.inputs, &site_.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      if (tensor.name == name) return index;
      ++index;
    }
  }
  throw Error("the plan names tensor " + name + ", which the call site does not have");
}

std::string Instance::difference(std::span<const TensorView> inputs) const {
  if (inputs.size() != site_.inputs.size()) return "the kernel takes " + std::to_string(site_.inputs.size()) + " inputs";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::string text = runtime::difference(site_.inputs[i], inputs[i]); !text.empty()) return text;
  }
  return {};
}

}  // namespace ak::runtime
