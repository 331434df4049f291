// Calls the blocks of a kernel's grid on the threads of PyTorch.
#include "runtime/cpu_instance.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"

namespace ak::runtime {
namespace {

using kernel::Argument;
using kernel::ConcreteLaunch;

constexpr int64_t cache_line_bytes = 64;
constexpr int64_t shares_per_worker = 8;  // parts of the grid that a worker fetches, so that uneven blocks even out
constexpr size_t fingerprint_words = 64;  // of a weight's content that are looked at to notice that it was overwritten in place
constexpr size_t prepared_kept = 4;       // sets of prepared weights an instance keeps: copies of a model share its instances

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

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

CpuInstance::CpuInstance(CallSite site, const kernel::ConcretePlan& plan, std::unique_ptr<Kernels> module, int64_t workers,
                         const std::vector<std::string>& weights)
    : Instance(DeviceType::cpu, std::move(site), plan, weights), module_(std::move(module)), workers_(workers) {
  find_worker_scratch(plan);
  for (const auto& launch : plan.prepares) prepare_.push_back(resolve(launch));
  for (const auto& launch : plan.launches) launches_.push_back(resolve(launch));
}

void CpuInstance::find_worker_scratch(const kernel::ConcretePlan& plan) {
  for (const auto& scratch : plan.scratch) {
    if (!scratch.per_worker) continue;
    if (per_worker_bytes_ > 0) throw Error("a kernel file may declare one scratch per worker");
    per_worker_bytes_ = round_up(scratch.bytes, cache_line_bytes);
    per_worker_zeroed_ = scratch.zeroed;
  }
}

CpuInstance::Launch CpuInstance::resolve(const ConcreteLaunch& launch) const {
  const KernelRecord& record = module_->kernel(launch.kernel);
  const auto count = static_cast<size_t>(record.parameter_count);
  if (launch.arguments.size() != count) {
    throw Error("the plan gives " + launch.kernel + " " + std::to_string(launch.arguments.size()) + " arguments, it takes " +
                std::to_string(count));
  }
  if (count > max_parameters) throw Error("kernel " + launch.kernel + " has more than " + std::to_string(max_parameters) + " parameters");
  for (size_t i = 0; i < count; ++i) {
    const KernelParameter expected = parameter_of(launch.arguments[i].kind);
    if (record.parameters[i].kind != expected.kind || record.parameters[i].size_bytes != expected.size_bytes) {
      throw Error("argument " + std::to_string(i) + " of " + launch.kernel + " is not of the type that the plan gives");
    }
  }
  return {&record, launch.blocks(), slots_of(launch)};
}

std::unique_ptr<CpuInstance::Workspace> CpuInstance::make_workspace() const {
  auto workspace = std::make_unique<Workspace>();
  for (const Buffer& buffer : buffers()) workspace->buffers.emplace_back(buffer.size_bytes);
  if (per_worker_bytes_ > 0) workspace->per_worker = AlignedBuffer(per_worker_bytes_ * workers_);
  return workspace;
}

/// Addresses of the weights and words spread over their content: other weights, or weights loaded anew in place, give another one.
std::vector<uint64_t> CpuInstance::fingerprint(std::span<void* const> inputs) const {
  std::vector<uint64_t> words;
  for (const size_t input : weight_inputs()) {
    words.push_back(reinterpret_cast<uintptr_t>(inputs[input]));
    const auto* content = static_cast<const std::byte*>(inputs[input]);
    const auto length = static_cast<size_t>(storage_bytes(site().inputs[input])) / sizeof(uint64_t);
    const size_t looked_at = std::min(length, fingerprint_words);
    for (size_t i = 0; i < looked_at; ++i) {
      uint64_t word;
      std::memcpy(&word, content + i * length / looked_at * sizeof word, sizeof word);
      words.push_back(word);
    }
  }
  return words;
}

std::shared_ptr<const CpuInstance::Prepared> CpuInstance::prepared_for(std::span<void* const> tensors, Workspace& workspace,
                                                                       ParallelFor parallel_for) {
  auto weights = fingerprint(tensors);
  const std::lock_guard lock(prepared_mutex_);
  const auto found = std::ranges::find_if(prepared_, [&](const auto& prepared) { return prepared->weights == weights; });
  if (found != prepared_.end()) return *found;

  auto made = std::make_shared<Prepared>();
  made->weights = std::move(weights);
  for (const Buffer& buffer : prepared_buffers()) {
    made->buffers.emplace_back(buffer.size_bytes);
    if (buffer.zeroed) std::memset(made->buffers.back().data(), 0, static_cast<size_t>(buffer.size_bytes));
  }
  for (const Launch& launch : prepare_) run(launch, tensors, workspace, made.get(), parallel_for);
  if (prepared_.size() == prepared_kept) prepared_.erase(prepared_.begin());
  prepared_.push_back(made);
  return made;
}

void CpuInstance::run(const Launch& launch, std::span<void* const> tensors, const Workspace& workspace, const Prepared* prepared,
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
      case Slot::Kind::tensor_map: AK_CHECK(false, "a plan for the CPU has no tensor maps");
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

void CpuInstance::call(std::span<void* const> inputs, std::span<void* const> outputs, ParallelFor parallel_for) {
  std::array<void*, max_tensors> tensors;
  AK_CHECK(inputs.size() + outputs.size() <= tensors.size(), "the constructor refuses sites with more tensors");
  std::ranges::copy(outputs, std::ranges::copy(inputs, tensors.begin()).out);
  auto workspace = workspaces_.take([this] { return make_workspace(); });
  for (size_t i = 0; i < buffers().size(); ++i) {
    if (buffers()[i].zeroed) std::memset(workspace->buffers[i].data(), 0, static_cast<size_t>(buffers()[i].size_bytes));
  }
  if (per_worker_zeroed_) std::memset(workspace->per_worker.data(), 0, static_cast<size_t>(workspace->per_worker.size_bytes()));
  const auto prepared = prepare_.empty() ? nullptr : prepared_for(tensors, *workspace, parallel_for);
  for (const Launch& launch : launches_) run(launch, tensors, *workspace, prepared.get(), parallel_for);
  workspaces_.give_back(std::move(workspace));
  count_call();
}

}  // namespace ak::runtime
