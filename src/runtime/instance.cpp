// Makes a finished kernel ready for one call site, and calls it.
#include "runtime/instance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace ak::runtime {
namespace {

using kernel::Argument;
using kernel::ConcreteLaunch;

constexpr int64_t cache_line_bytes = 64;
constexpr size_t max_parameters = 64;
constexpr int64_t shares_per_worker = 8;  // parts of the grid that a worker fetches, so that uneven blocks even out
constexpr size_t fingerprint_words = 64;  // of a weight's content that are looked at to notice that it was overwritten in place
constexpr size_t prepared_kept = 4;       // sets of prepared weights an instance keeps: copies of a model share its instances

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

template <class Names>
size_t position_in(const Names& names, const std::string& name) {
  return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
}

bool reads_scratch(const std::vector<ConcreteLaunch>& launches, const std::string& name) {
  return std::ranges::any_of(launches, [&](const ConcreteLaunch& launch) {
    return std::ranges::any_of(launch.arguments, [&](const Argument& a) { return a.kind == Argument::Kind::scratch && a.name == name; });
  });
}

int64_t storage_bytes(const TensorSpec& tensor) {
  int64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return (last + 1) * size_bytes(tensor.dtype);
}

KernelParameter parameter_of(Argument::Kind kind) {
  if (kind == Argument::Kind::integer) return {1, sizeof(int64_t)};
  if (kind == Argument::Kind::real) return {2, sizeof(float)};
  return {0, sizeof(void*)};
}

/// What the workers of one launch share.
struct Progress {
  const KernelRecord* record;
  void* const* arguments;
  std::byte* scratch;
  int64_t scratch_bytes;
  int64_t blocks;
  int64_t share;
  std::atomic<int64_t> next = 0;
};

/// Workers fetch shares of the grid until none is left. A worker is an index of the loop, not a thread, so that its number is below the
/// number of workers however many threads PyTorch has by now.
void work(int64_t begin, int64_t end, void* context) {
  auto& progress = *static_cast<Progress*>(context);
  for (int64_t worker = begin; worker < end; ++worker) {
    std::byte* scratch = progress.scratch == nullptr ? nullptr : progress.scratch + worker * progress.scratch_bytes;
    for (int64_t first; (first = progress.next.fetch_add(progress.share, std::memory_order_relaxed)) < progress.blocks;) {
      const int64_t last = std::min(first + progress.share, progress.blocks);
      for (int64_t block = first; block < last; ++block) progress.record->call(block, worker, scratch, progress.arguments);
    }
  }
}

}  // namespace

Instance::Instance(CallSite site, kernel::ConcretePlan plan, std::unique_ptr<Kernels> module, int64_t workers,
                   std::vector<std::string> weights)
    : site_(std::move(site)), module_(std::move(module)), workers_(workers) {
  sort_scratch(plan);
  for (const auto& launch : plan.prepares) prepare_.push_back(resolve(launch));
  for (const auto& launch : plan.launches) launches_.push_back(resolve(launch));
  for (size_t i = 0; i < site_.inputs.size(); ++i) {
    if (std::ranges::find(weights, site_.inputs[i].name) != weights.end()) weight_inputs_.push_back(i);
  }
  for (const Launch& launch : prepare_) {
    for (const Slot& slot : launch.slots) {
      const bool is_weight = std::ranges::find(weight_inputs_, slot.index) != weight_inputs_.end();
      if (slot.kind == Slot::Kind::tensor && !is_weight) throw Error("a [[prepare]] launch may read only inputs of role weight");
    }
  }
}

/// Scratch that [[prepare]] touches lives with the weights, the rest with a call.
void Instance::sort_scratch(const kernel::ConcretePlan& plan) {
  for (const auto& scratch : plan.scratch) {
    if (scratch.per_worker) {
      if (per_worker_bytes_ > 0) throw Error("a kernel file may declare one scratch per worker");
      per_worker_name_ = scratch.name;
      per_worker_bytes_ = round_up(scratch.bytes, cache_line_bytes);
      per_worker_zeroed_ = scratch.zeroed;
    } else if (reads_scratch(plan.prepares, scratch.name)) {
      prepared_names_.push_back(scratch.name);
      prepared_buffers_.push_back({scratch.bytes, scratch.zeroed});
    } else {
      buffer_names_.push_back(scratch.name);
      buffers_.push_back({scratch.bytes, scratch.zeroed});
    }
  }
}

Instance::Launch Instance::resolve(const ConcreteLaunch& launch) const {
  const KernelRecord& record = module_->kernel(launch.kernel);
  const auto count = static_cast<size_t>(record.parameter_count);
  if (launch.arguments.size() != count) {
    throw Error("the plan gives " + launch.kernel + " " + std::to_string(launch.arguments.size()) + " arguments, it takes " +
                std::to_string(count));
  }
  if (count > max_parameters) throw Error("kernel " + launch.kernel + " has more than " + std::to_string(max_parameters) + " parameters");
  Launch resolved{&record, launch.blocks(), {}};
  for (size_t i = 0; i < count; ++i) {
    const KernelParameter expected = parameter_of(launch.arguments[i].kind);
    if (record.parameters[i].kind != expected.kind || record.parameters[i].size_bytes != expected.size_bytes) {
      throw Error("argument " + std::to_string(i) + " of " + launch.kernel + " is not of the type that the plan gives");
    }
    resolved.slots.push_back(resolve(launch.arguments[i]));
  }
  return resolved;
}

Instance::Slot Instance::resolve(const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Kind::integer: return {Slot::Kind::value, 0, std::bit_cast<uint64_t>(argument.integer)};
    case Argument::Kind::real: return {Slot::Kind::value, 0, std::bit_cast<uint32_t>(static_cast<float>(argument.real))};
    case Argument::Kind::null: return {Slot::Kind::value, 0, 0};
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

std::unique_ptr<Instance::Workspace> Instance::make_workspace() const {
  auto workspace = std::make_unique<Workspace>();
  for (const Buffer& buffer : buffers_) workspace->buffers.emplace_back(buffer.size_bytes);
  if (per_worker_bytes_ > 0) workspace->per_worker = AlignedBuffer(per_worker_bytes_ * workers_);
  return workspace;
}

/// Addresses of the weights and words spread over their content: other weights, or weights loaded anew in place, give another one.
std::vector<uint64_t> Instance::fingerprint(std::span<void* const> inputs) const {
  std::vector<uint64_t> words;
  for (const size_t input : weight_inputs_) {
    words.push_back(reinterpret_cast<uintptr_t>(inputs[input]));
    const auto* content = static_cast<const std::byte*>(inputs[input]);
    const auto length = static_cast<size_t>(storage_bytes(site_.inputs[input])) / sizeof(uint64_t);
    const size_t looked_at = std::min(length, fingerprint_words);
    for (size_t i = 0; i < looked_at; ++i) {
      uint64_t word;
      std::memcpy(&word, content + i * length / looked_at * sizeof word, sizeof word);
      words.push_back(word);
    }
  }
  return words;
}

std::shared_ptr<const Instance::Prepared> Instance::prepared_for(std::span<void* const> tensors, Workspace& workspace,
                                                                 ParallelFor parallel_for) {
  auto weights = fingerprint(tensors);
  const std::lock_guard lock(prepared_mutex_);
  const auto found = std::ranges::find_if(prepared_, [&](const auto& prepared) { return prepared->weights == weights; });
  if (found != prepared_.end()) return *found;

  auto made = std::make_shared<Prepared>();
  made->weights = std::move(weights);
  for (const Buffer& buffer : prepared_buffers_) {
    made->buffers.emplace_back(buffer.size_bytes);
    if (buffer.zeroed) std::memset(made->buffers.back().data(), 0, static_cast<size_t>(buffer.size_bytes));
  }
  for (const Launch& launch : prepare_) run(launch, tensors, workspace, made.get(), parallel_for);
  if (prepared_.size() == prepared_kept) prepared_.erase(prepared_.begin());
  prepared_.push_back(made);
  return made;
}

void Instance::run(const Launch& launch, std::span<void* const> tensors, const Workspace& workspace, const Prepared* prepared,
                   ParallelFor parallel_for) const {
  std::array<uint64_t, max_parameters> value;
  std::array<void*, max_parameters> argument;
  for (size_t i = 0; i < launch.slots.size(); ++i) {
    const Slot& slot = launch.slots[i];
    switch (slot.kind) {
      case Slot::Kind::value: value[i] = slot.value; break;
      case Slot::Kind::tensor: value[i] = reinterpret_cast<uintptr_t>(tensors[slot.index]); break;
      case Slot::Kind::buffer: value[i] = reinterpret_cast<uintptr_t>(workspace.buffers[slot.index].data()); break;
      case Slot::Kind::prepared: value[i] = reinterpret_cast<uintptr_t>(prepared->buffers[slot.index].data()); break;
    }
    argument[i] = &value[i];
  }
  const int64_t workers = std::min(workers_, launch.blocks);
  Progress progress{launch.record,     argument.data(), workspace.per_worker.data(),
                    per_worker_bytes_, launch.blocks,   std::max<int64_t>(1, launch.blocks / (workers_ * shares_per_worker))};
  if (workers <= 1) {
    work(0, 1, &progress);
  } else if (parallel_for(0, workers, 1, work, &progress) != 0) {
    throw Error("PyTorch could not run a parallel loop");
  }
}

void Instance::call(std::span<void* const> inputs, std::span<void* const> outputs, ParallelFor parallel_for) {
  std::array<void*, 16> tensors;
  AK_CHECK(inputs.size() + outputs.size() <= tensors.size(), "a kernel has at most 16 tensors");
  std::ranges::copy(outputs, std::ranges::copy(inputs, tensors.begin()).out);
  auto workspace = workspaces_.take([this] { return make_workspace(); });
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].zeroed) std::memset(workspace->buffers[i].data(), 0, static_cast<size_t>(buffers_[i].size_bytes));
  }
  if (per_worker_zeroed_) std::memset(workspace->per_worker.data(), 0, static_cast<size_t>(workspace->per_worker.size_bytes()));
  const auto prepared = prepare_.empty() ? nullptr : prepared_for(tensors, *workspace, parallel_for);
  for (const Launch& launch : launches_) run(launch, tensors, *workspace, prepared.get(), parallel_for);
  workspaces_.give_back(std::move(workspace));
  calls_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ak::runtime
