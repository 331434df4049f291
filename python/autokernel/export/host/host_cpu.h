// Calls the blocks of a CPU kernel's grid on PyTorch's threads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "host.h"

namespace autokernel_host {

constexpr int64_t alignment_bytes = 64;
constexpr int64_t shares_per_worker = 8;  // parts of the grid that a worker fetches, so that uneven blocks even out
constexpr size_t fingerprint_words = 64;  // of a weight's content that are looked at to notice that it was overwritten in place
constexpr size_t prepared_kept = 4;       // sets of prepared weights that are kept

/// As kernels/…/cpu.h publishes it.
struct KernelRecord {
  int32_t version, parameter_count;
  const void* parameters;
  void (*call)(int64_t block, int64_t worker, void* scratch, void* const* arguments);
};

class Buffer {
 public:
  explicit Buffer(int64_t bytes)
      : data_(static_cast<std::byte*>(::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)), std::align_val_t(alignment_bytes)))) {}
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(alignment_bytes)); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

inline int64_t whole_lines(int64_t bytes) { return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes; }

/// What one call in flight needs for itself.
struct Workspace {
  std::vector<Buffer> scratch;
  Buffer per_worker;

  explicit Workspace(const Plan& plan) : per_worker(whole_lines(plan.per_worker.bytes) * plan.workers) {
    for (const Scratch& each : plan.scratch) scratch.emplace_back(each.bytes);
  }
  void zero(const Plan& plan) const {
    for (size_t i = 0; i < scratch.size(); ++i) {
      if (plan.scratch[i].zeroed) std::memset(scratch[i].data(), 0, static_cast<size_t>(plan.scratch[i].bytes));
    }
    if (plan.per_worker.zeroed)
      std::memset(per_worker.data(), 0, static_cast<size_t>(whole_lines(plan.per_worker.bytes) * plan.workers));
  }
};

/// What [[prepare]] made of one set of weights.
struct Prepared {
  std::vector<uint64_t> weights;  // addresses, and words of the content
  std::vector<Buffer> buffers;
};

/// What a plan keeps between calls.
struct CpuState {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;
  std::vector<std::shared_ptr<const Prepared>> prepared;  // the most recently made last
};

inline void run(const Plan& plan, const Launch& launch, const std::vector<void*>& tensors, const Workspace& workspace,
                const Prepared* prepared) {
  std::vector<uint64_t> values;
  for (const Argument& argument : launch.arguments) {
    const auto index = static_cast<size_t>(argument.integer_or_index);
    switch (argument.kind) {
      case Argument::scratch: values.push_back(reinterpret_cast<uint64_t>(workspace.scratch[index].data())); break;
      case Argument::prepared: values.push_back(reinterpret_cast<uint64_t>(prepared->buffers[index].data())); break;
      default: values.push_back(value_of(argument, tensors));
    }
  }
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);

  const int64_t blocks = launch.blocks(), workers = std::min(plan.workers, blocks);
  const int64_t share = std::max<int64_t>(1, blocks / (plan.workers * shares_per_worker)), worker_bytes = whole_lines(plan.per_worker.bytes);
  std::atomic<int64_t> next = 0;
  // A worker is an index of the loop, not a thread, so that its number is below plan.workers however many threads PyTorch has.
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      std::byte* scratch = worker_bytes == 0 ? nullptr : workspace.per_worker.data() + worker * worker_bytes;
      for (int64_t first; (first = next.fetch_add(share, std::memory_order_relaxed)) < blocks;) {
        const int64_t last = std::min(first + share, blocks);
        for (int64_t block = first; block < last; ++block) launch.record->call(block, worker, scratch, arguments.data());
      }
    }
  };
  if (workers <= 1) {
    work(0, 1);
  } else {
    torch::stable::parallel_for(0, workers, 1, work);
  }
}

/// Other weights, or weights overwritten in place, give another one.
inline std::vector<uint64_t> fingerprint(const Plan& plan, const std::vector<Tensor>& inputs) {
  std::vector<uint64_t> words;
  for (const int64_t weight : plan.weights) {
    const Tensor& tensor = inputs[static_cast<size_t>(weight)];
    const auto* content = static_cast<const std::byte*>(tensor.data_ptr());
    words.push_back(reinterpret_cast<uint64_t>(content));
    int64_t last = 0;
    for (size_t i = 0; i < tensor.sizes().size(); ++i) last += (tensor.sizes()[i] - 1) * tensor.strides()[i];
    const size_t length = static_cast<size_t>(last + 1) * tensor.element_size() / sizeof(uint64_t), looked_at = std::min(length, fingerprint_words);
    for (size_t i = 0; i < looked_at; ++i) {
      uint64_t word;
      std::memcpy(&word, content + i * length / looked_at * sizeof word, sizeof word);
      words.push_back(word);
    }
  }
  return words;
}

inline std::shared_ptr<const Prepared> prepared_for(const Plan& plan, CpuState& state, const std::vector<Tensor>& inputs,
                                                    const std::vector<void*>& tensors, const Workspace& workspace) {
  auto weights = fingerprint(plan, inputs);
  const std::lock_guard lock(state.mutex);
  for (const auto& known : state.prepared) {
    if (known->weights == weights) return known;
  }
  auto made = std::make_shared<Prepared>();
  made->weights = std::move(weights);
  for (const Scratch& each : plan.prepared) {
    made->buffers.emplace_back(each.bytes);
    if (each.zeroed) std::memset(made->buffers.back().data(), 0, static_cast<size_t>(each.bytes));
  }
  for (const Launch& launch : plan.prepares) run(plan, launch, tensors, workspace, made.get());
  if (state.prepared.size() == prepared_kept) state.prepared.erase(state.prepared.begin());
  state.prepared.push_back(made);
  return made;
}

inline void call_on_cpu(const Plan& plan, CpuState& state, const std::vector<Tensor>& inputs, const std::vector<void*>& tensors) {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.idle.empty()) {
      workspace = std::move(state.idle.back());
      state.idle.pop_back();
    }
  }
  if (!workspace) workspace = std::make_unique<Workspace>(plan);
  workspace->zero(plan);
  const auto prepared = plan.prepares.empty() ? nullptr : prepared_for(plan, state, inputs, tensors, *workspace);
  for (const Launch& launch : plan.launches) run(plan, launch, tensors, *workspace, prepared.get());
  const std::lock_guard lock(state.mutex);
  state.idle.push_back(std::move(workspace));
}

}  // namespace autokernel_host
