// Packs arguments and launches. Nothing here waits or allocates once a set of weights has been seen, so calls cost little and can be
// captured.
#include "runtime/cuda_instance.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "device/cuda/launch.h"

namespace ak::runtime {

using namespace device::cuda;
using kernel::ConcreteLaunch;

namespace {

constexpr size_t prepared_kept = 4;       // sets of prepared weights an instance keeps: copies of a model share its instances
constexpr int64_t max_maps = 8;           // of a launch
constexpr int64_t alignment_bytes = 256;  // of buffers: what cuMemAlloc gives, enough for bulk copies and tensor maps

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool aligned(std::span<void* const> tensors) {
  constexpr uintptr_t unit = kernel::Argument::vector_bytes;
  return std::ranges::all_of(tensors, [](const void* tensor) { return reinterpret_cast<uintptr_t>(tensor) % unit == 0; });
}

bool overlaps(const std::vector<CUlaunchAttribute>& attributes) {
  return !attributes.empty() && attributes.back().id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
}

}  // namespace

CudaInstance::CudaInstance(CallSite site, const kernel::ConcretePlan& plan, std::unique_ptr<PrimaryContext> context,
                           const std::vector<std::string>& images, const std::vector<std::string>& weights)
    : Instance(DeviceType::cuda, std::move(site), plan, weights), context_(std::move(context)), driver_(context_->driver()) {
  if (std::ranges::any_of(plan.scratch, &kernel::ConcreteScratch::per_worker)) throw Error("scratch for one worker is for the CPU");
  for (const kernel::ConcreteTensorMap& map : plan.tensor_maps) tensor_maps_.push_back({map, slot_of(map.tensor)});
  layout_ = lay_out(buffers());
  prepared_layout_ = lay_out(prepared_buffers());
  const CurrentContext current(*context_);
  const BesideCapture beside(driver_);
  module_ = std::make_unique<CudaModule>(images, *context_);
  prepare_ = resolve(plan.prepares);
  launches_ = resolve(plan.launches);
}

CudaInstance::Layout CudaInstance::lay_out(const std::vector<Buffer>& buffers) {
  Layout layout{std::vector<int64_t>(buffers.size()), 0, 0};
  for (const bool zeroed : {true, false}) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].zeroed != zeroed) continue;
      layout.offsets[i] = layout.size_bytes;
      layout.size_bytes += round_up(buffers[i].size_bytes, alignment_bytes);
    }
    if (zeroed) layout.zeroed_bytes = layout.size_bytes;
  }
  return layout;
}

/// A launch of no block is none.
std::vector<CudaInstance::Launch> CudaInstance::resolve(const std::vector<ConcreteLaunch>& launches) const {
  std::vector<Launch> resolved;
  for (const ConcreteLaunch& launch : launches) {
    if (launch.arguments.size() > max_parameters)
      throw Error("kernel " + launch.kernel + " has more than " + std::to_string(max_parameters) + " parameters");
    if (std::ranges::count(launch.arguments, kernel::Argument::Kind::tensor_map, &kernel::Argument::kind) > max_maps)
      throw Error("kernel " + launch.kernel + " takes more than " + std::to_string(max_maps) + " tensor maps");
    const CUfunction function = module_->function_for(launch);
    if (launch.blocks() > 0) resolved.push_back({function, config_of(launch), attributes_of(launch), slots_of(launch)});
  }
  return resolved;
}

void CudaInstance::zero(CUdeviceptr memory, const Layout& layout, CUstream stream) const {
  if (layout.zeroed_bytes > 0)
    check(driver_.cuMemsetD8Async(memory, 0, static_cast<size_t>(layout.zeroed_bytes), stream), "zero scratch", driver_);
}

void CudaInstance::call(std::span<void* const> inputs, std::span<void* const> outputs, CUstream stream, Caller& caller) {
  if (unaligned_ && !(aligned(inputs) && aligned(outputs))) {
    unaligned_->call(inputs, outputs, stream, caller);
    return count_call();
  }
  std::array<void*, max_tensors> tensors;
  AK_CHECK(inputs.size() + outputs.size() <= tensors.size(), "the constructor refuses sites with more tensors");
  std::ranges::copy(outputs, std::ranges::copy(inputs, tensors.begin()).out);
  const CurrentContext current(*context_);
  Memory memory;
  if (layout_.size_bytes > 0) memory.buffers = reinterpret_cast<uintptr_t>(caller.take(layout_.size_bytes));
  zero(memory.buffers, layout_, stream);
  if (!prepare_.empty()) find_prepared(tensors, memory, stream, caller);
  bool may_overlap = !memory.prepared_just_now;
  for (const Launch& launch : launches_) {
    run(launch, tensors, memory, stream, may_overlap);
    may_overlap = true;
  }
  count_call();
}

/// Where weights that were not met before come while the stream is being captured, or after too many others, their preparation is a part of
/// the call, or of the graph.
void CudaInstance::find_prepared(std::span<void* const> tensors, Memory& memory, CUstream stream, Caller& caller) {
  std::vector<void*> weights;
  for (const size_t input : weight_inputs()) weights.push_back(tensors[input]);
  const std::lock_guard lock(prepared_mutex_);
  const auto found = std::ranges::find_if(prepared_, [&](const auto& prepared) { return prepared->weights == weights; });
  const bool known = found != prepared_.end();
  if (known && !(*found)->stale) {
    memory.prepared = (*found)->memory.address();
    return;
  }
  memory.prepared_just_now = true;
  if (is_capturing(stream) || (!known && prepared_.size() == prepared_kept)) {
    if (prepared_layout_.size_bytes > 0) memory.prepared = reinterpret_cast<uintptr_t>(caller.take(prepared_layout_.size_bytes));
    prepare(tensors, memory, stream);
    return;
  }
  const BesideCapture beside(driver_);
  Prepared& prepared = known ? **found : add_prepared(std::move(weights), caller);
  memory.prepared = prepared.memory.address();
  prepare(tensors, memory, stream);
  check(driver_.cuStreamSynchronize(stream), "prepare weights", driver_);  // calls on other streams will read them
  prepared.stale = false;
}

CudaInstance::Prepared& CudaInstance::add_prepared(std::vector<void*> weights, Caller& caller) {
  std::vector<std::shared_ptr<void>> kept;
  for (const size_t input : weight_inputs()) kept.push_back(caller.keep(input));
  prepared_.emplace_back(new Prepared{std::move(weights), std::move(kept), DeviceMemory(prepared_layout_.size_bytes, *context_)});
  return *prepared_.back();
}

void CudaInstance::prepare(std::span<void* const> tensors, const Memory& memory, CUstream stream) const {
  zero(memory.prepared, prepared_layout_, stream);
  for (const Launch& launch : prepare_) run(launch, tensors, memory, stream, true);
}

bool CudaInstance::is_capturing(CUstream stream) const {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver_.cuStreamIsCapturing(stream, &status), "ask whether a stream is being captured", driver_);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t CudaInstance::value_of(const Slot& slot, std::span<void* const> tensors, const Memory& memory) const {
  switch (slot.kind) {
    case Slot::Kind::value: return slot.value;
    case Slot::Kind::tensor: return reinterpret_cast<uintptr_t>(tensors[slot.index]);
    case Slot::Kind::buffer: return memory.buffers + static_cast<uint64_t>(layout_.offsets[slot.index]);
    case Slot::Kind::prepared: return memory.prepared + static_cast<uint64_t>(prepared_layout_.offsets[slot.index]);
    case Slot::Kind::tensor_map: break;
  }
  AK_CHECK(false, "a tensor map is no value");
}

void CudaInstance::run(const Launch& launch, std::span<void* const> tensors, const Memory& memory, CUstream stream,
                       bool may_overlap) const {
  std::array<uint64_t, max_parameters> value;
  std::array<CUtensorMap, max_maps> map;
  std::array<void*, max_parameters> argument;
  size_t maps = 0;
  for (size_t i = 0; i < launch.slots.size(); ++i) {
    const Slot& slot = launch.slots[i];
    if (slot.kind == Slot::Kind::tensor_map) {
      const TensorMap& described = tensor_maps_[slot.index];
      map[maps] = encode(described.map, value_of(described.of, tensors, memory), driver_);
      argument[i] = &map[maps++];
    } else {
      value[i] = value_of(slot, tensors, memory);
      argument[i] = &value[i];
    }
  }
  CUlaunchConfig config = launch.config;
  config.stream = stream;
  config.attributes = const_cast<CUlaunchAttribute*>(launch.attributes.data());
  config.attribute_count = static_cast<unsigned>(launch.attributes.size()) - (!may_overlap && overlaps(launch.attributes) ? 1 : 0);
  check(driver_.cuLaunchKernelEx(&config, launch.function, argument.data(), nullptr), "launch a kernel", driver_);
}

void CudaInstance::weights_changed() {
  const std::lock_guard lock(prepared_mutex_);
  for (const auto& prepared : prepared_) prepared->stale = true;
  if (unaligned_) unaligned_->weights_changed();
}

}  // namespace ak::runtime
