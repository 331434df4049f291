// The judge's own kernels, timed as a candidate is.
#include "judge/cuda_machine.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "device/cuda/facts.h"
#include "device/cuda/host.h"
#include "judge/statistic.h"
#include "kernel/task.h"

namespace ak::judge {

namespace cuda = device::cuda;

namespace {

constexpr int floor_samples = 21, ceiling_samples = 9, launch_samples = 31;
constexpr int64_t ceiling_bytes = int64_t{1} << 30, vector_bytes = 16, move_threads = 256;
constexpr int64_t part_vectors = 6144;  // as a long row
constexpr int64_t multiply_rounds = 2000, multiply_blocks_a_sm = 8, scalar_flops_a_round = 32;
constexpr double longest_seconds = 10;

}  // namespace

CudaMachine::CudaMachine(int index, const std::filesystem::path& builtin, pid_t family)
    : context_(index, builtin),
      facts_(cuda::facts(context_.device())),
      nvml_(cuda::Nvml::open(cuda::bus_id(context_.device()))),
      family_(family) {}

std::vector<device::Stranger> CudaMachine::strangers() {
  return nvml_ ? cuda::strangers(nvml_->processes(), ::getpid(), family_) : std::vector<device::Stranger>();
}

Json CudaMachine::sandbox() { return Json::array({"device code"}); }

std::unique_ptr<device::Host> CudaMachine::new_host(const std::filesystem::path& module) {
  return std::make_unique<cuda::Host>(context_, module, facts_);
}

Floors CudaMachine::cold(const std::map<std::string, std::function<cuda::CUresult()>>& enqueue, int samples) {
  std::map<std::string, std::vector<double>> times;
  for (int i = 0; i <= samples; ++i) {
    for (const auto& [name, work] : enqueue) {
      const cuda::Context::Timed timed = context_.timed(work, longest_seconds);
      if (timed.timed_out) throw Error("a kernel of the judge's own does not end", "is another program using the GPU? see nvidia-smi");
      cuda::check(timed.result, "run a kernel of the judge's own");
      if (i > 0) times[name].push_back(timed.us);
    }
  }
  Floors result;
  for (const auto& [name, of_it] : times) result[name] = {median(of_it), std::ranges::min(of_it)};
  return result;
}

double CudaMachine::median_us(const std::function<cuda::CUresult()>& enqueue, int samples) {
  return cold({{"it", enqueue}}, samples).at("it").median_us;
}

Floors CudaMachine::floors(int64_t read_bytes, int64_t write_bytes) {
  const bool reads_only = kernel::Traffic{read_bytes, write_bytes}.is_read_only();  // then what is written counts as read
  const int64_t read = (read_bytes + (reads_only ? write_bytes : 0) + vector_bytes - 1) / vector_bytes,
                write = reads_only ? 0 : (write_bytes + vector_bytes - 1) / vector_bytes;
  const cuda::Arena arena = context_.take_arena(std::max<int64_t>((read + write) * vector_bytes, 1));
  const auto source = arena.device, target = arena.device + static_cast<uint64_t>(read * vector_bytes);
  std::map<std::string, std::function<cuda::CUresult()>> means;
  const auto add = [&](const std::string& name, const cuda::Launch& launch) {
    means[name] = [this, launch] { return context_.launch(launch); };
  };
  for (const int64_t vectors_a_thread : {1, 4, 8}) {
    const std::string name = "move_" + std::to_string(vectors_a_thread);
    const int64_t block_vectors = move_threads * vectors_a_thread;
    add(name, context_.builtin(("builtin_" + name).c_str(), (std::max(read, write) + block_vectors - 1) / block_vectors, move_threads,
                               {source, static_cast<uint64_t>(read), target, static_cast<uint64_t>(write)}));
  }
  if (reads_only) {
    for (const int64_t blocks : {2, 4})
      add("read_" + std::to_string(blocks),
          context_.builtin("builtin_read", blocks * facts_.find("sm_count")->second, 512, {source, static_cast<uint64_t>(read), source}));
    for (const int64_t threads : {32, 256})
      add("read_parts_" + std::to_string(threads),
          context_.builtin("builtin_read_parts", (read + part_vectors - 1) / part_vectors, threads,
                           {source, static_cast<uint64_t>(read), static_cast<uint64_t>(part_vectors), source}));
  } else if (read == write) {
    means["memcpy"] = [&] {
      return cuda::driver().cuMemcpyDtoDAsync(target, source, static_cast<size_t>(write * vector_bytes), context_.stream());
    };
  }
  const Floors floors = cold(means, floor_samples);
  context_.give_back(arena);
  return floors;
}

double CudaMachine::rate_of(const char* kernel, int64_t flops_a_round) {
  const cuda::Arena arena = context_.take_arena(vector_bytes);
  const int64_t blocks = multiply_blocks_a_sm * facts_.find("sm_count")->second;
  const cuda::Launch multiplying = context_.builtin(kernel, blocks, 256, {arena.device, static_cast<uint64_t>(multiply_rounds)});
  const double us = median_us([&] { return context_.launch(multiplying); }, ceiling_samples);
  context_.give_back(arena);
  return static_cast<double>(flops_a_round * multiply_rounds * blocks) / (us * 1e-6);
}

Json CudaMachine::ceilings() {
  const cuda::Launch nothing = context_.builtin("builtin_empty", 1, 32, {});
  const double launch_us = median_us([&] { return context_.launch(nothing); }, launch_samples);
  const double copy_us = floor_us(ceiling_bytes / 2, ceiling_bytes / 2), read_us = floor_us(ceiling_bytes, 0);
  const int64_t tensor_flops = 2 * context_.builtin_flops_a_round();
  return {{"copy_bytes_per_s", static_cast<double>(ceiling_bytes) / (copy_us * 1e-6)},
          {"read_bytes_per_s", static_cast<double>(ceiling_bytes) / (read_us * 1e-6)},
          {"flops_per_s",
           {{"float32", rate_of("builtin_multiply_float32", scalar_flops_a_round * 256)},
            {"float64", rate_of("builtin_multiply_float64", scalar_flops_a_round * 256)},
            {"float16", rate_of("builtin_multiply_float16", tensor_flops)},
            {"bfloat16", rate_of("builtin_multiply_bfloat16", tensor_flops)}}},
          {"launch_us", launch_us}};
}

}  // namespace ak::judge
