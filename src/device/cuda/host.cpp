// Checks a plan against its module, and moves memory only where it changed.
#include "device/cuda/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/file.h"

namespace ak::device::cuda {
namespace {

constexpr int64_t longest_gap = 32 << 10;  // between two changes that travel together
constexpr int64_t most_x = (int64_t{1} << 31) - 1, most_yz = 65535, portable_cluster = 8, usual_shared_bytes = 48 << 10;

int attribute(CUfunction function, CUfunction_attribute which) {
  int value = 0;
  check(driver().cuFuncGetAttribute(&value, which, function), "ask a kernel");
  return value;
}

/// Sizes in bytes of a kernel's parameters.
std::vector<size_t> parameter_sizes(CUfunction function) {
  std::vector<size_t> sizes;
  size_t offset = 0, size = 0;
  while (driver().cuFuncGetParamInfo(function, sizes.size(), &offset, &size) == CUDA_SUCCESS) sizes.push_back(size);
  return sizes;
}

}  // namespace

Host::Host(Context& context, std::filesystem::path module, Bindings facts)
    : context_(context), path_(std::move(module)), facts_(std::move(facts)) {}

Host::~Host() {
  if (context_.lost()) return;
  if (module_ != nullptr) driver().cuModuleUnload(module_);
  context_.give_back(arena_);
  context_.give_back(image_);
}

Outcome Host::load() {
  const std::string image = read_file(path_);
  if (image.size() < 64 || image.compare(0, 4, "\177ELF") != 0) return {Outcome::Kind::cannot_load, "the module is no cubin", 0, 0, 0};
  const CUresult result = driver().cuModuleLoadData(&module_, image.data());
  if (result == CUDA_SUCCESS) return {};
  module_ = nullptr;
  return {Outcome::Kind::cannot_load, "the driver does not load the module: " + text_of(result), 0, 0, 0};
}

std::span<std::byte> Host::arena(int64_t bytes) {
  if (arena_.bytes < bytes) {
    context_.give_back(std::exchange(arena_, {}));
    arena_ = context_.take_arena(bytes);
  }
  return {arena_.host, static_cast<size_t>(bytes)};
}

void Host::push(int64_t begin, int64_t bytes) {
  if (bytes > 0) dirty_.emplace_back(begin, begin + bytes);
}

CUresult Host::push_all() {
  std::ranges::sort(dirty_);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < dirty_.size() && result == CUDA_SUCCESS;) {
    auto [begin, end] = dirty_[i];
    for (++i; i < dirty_.size() && dirty_[i].first <= end + longest_gap; ++i) end = std::max(end, dirty_[i].second);
    result = driver().cuMemcpyHtoDAsync(arena_.device + static_cast<uint64_t>(begin), arena_.host + begin, static_cast<size_t>(end - begin),
                                        context_.stream());
  }
  dirty_.clear();
  return result;
}

void Host::pull(int64_t begin, int64_t bytes) {
  if (bytes <= 0 || context_.lost()) return;
  check(driver().cuMemcpyDtoHAsync(arena_.host + begin, arena_.device + static_cast<uint64_t>(begin), static_cast<size_t>(bytes),
                                   context_.stream()),
        "copy from the device");
  check(driver().cuStreamSynchronize(context_.stream()), "copy from the device");
}

std::string Host::misfit(const Launch& launch) const {
  const int64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const int64_t most_threads = attribute(launch.function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (threads > most_threads) return fmt::format("a block has {} threads; the compiled kernel allows {}", threads, most_threads);
  if (launch.grid[0] > most_x || launch.grid[1] > most_yz || launch.grid[2] > most_yz)
    return fmt::format("a grid of {} x {} x {} is larger than the device's", launch.grid[0], launch.grid[1], launch.grid[2]);
  const int64_t fixed = attribute(launch.function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), most = facts_.find("shared_per_block")->second;
  if (fixed + launch.shared_bytes > most)
    return fmt::format("{} bytes of shared memory, of them {} static: the device has {} for a block", fixed + launch.shared_bytes, fixed,
                       most);
  for (size_t i = 0; i < 3; ++i) {
    if (launch.cluster[i] < 1 || launch.grid[i] % launch.cluster[i] != 0)
      return fmt::format("a grid of {} blocks is no multiple of a cluster of {}", launch.grid[i], launch.cluster[i]);
  }
  return {};
}

std::string Host::fill(const kernel::ConcreteLaunch& concrete, const Placement& placement, Launch& launch) {
  if (driver().cuModuleGetFunction(&launch.function, module_, concrete.kernel.c_str()) != CUDA_SUCCESS)
    return fmt::format("the module has no kernel '{}'; is it extern \"C\"?", concrete.kernel);
  launch.grid = concrete.grid;
  launch.block = concrete.block;
  launch.cluster = concrete.cluster;
  launch.shared_bytes = concrete.shared_bytes;
  launch.overlap = concrete.overlap;
  launch.cooperative = concrete.cooperative;
  const std::vector<size_t> sizes = parameter_sizes(launch.function);
  if (sizes.size() != concrete.arguments.size())
    return fmt::format("{} takes {} arguments, the plan gives {}", concrete.kernel, sizes.size(), concrete.arguments.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    using Kind = kernel::Argument::Kind;
    const kernel::Argument& argument = concrete.arguments[i];
    const size_t size = argument.kind == Kind::real ? sizeof(float) : sizeof(int64_t);
    if (sizes[i] != size) return fmt::format("argument {} of {} has {} bytes, the plan gives {}", i, concrete.kernel, sizes[i], size);
    uint64_t bits = 0;
    if (argument.kind == Kind::integer) bits = static_cast<uint64_t>(argument.integer);
    if (argument.kind == Kind::real) bits = std::bit_cast<uint32_t>(static_cast<float>(argument.real));
    if (argument.kind == Kind::tensor || argument.kind == Kind::scratch)
      bits = arena_.device + static_cast<uint64_t>(placement.pointers.at(argument.name));
    launch.arguments.push_back(bits);
  }
  const std::string misfit = this->misfit(launch);
  if (!misfit.empty()) return concrete.kernel + ": " + misfit;
  if (launch.shared_bytes > usual_shared_bytes)
    check(driver().cuFuncSetAttribute(launch.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      static_cast<int>(launch.shared_bytes)),
          "give a kernel its shared memory");
  if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > portable_cluster)
    check(driver().cuFuncSetAttribute(launch.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
          "give a kernel its clusters");
  return {};
}

Outcome Host::install(const kernel::ConcretePlan& plan, const Placement& placement) {
  launches_.clear();
  prepares_.clear();
  zeros_ = placement.zeros;
  written_ = placement.written;
  if (placement.worker_scratch >= 0) return {Outcome::Kind::does_not_fit, "a device has no scratch per worker", 0, 0, 0};
  for (const auto& [list, ready] : {std::pair(&plan.launches, &launches_), std::pair(&plan.prepares, &prepares_)}) {
    for (const kernel::ConcreteLaunch& each : *list) {
      const std::string why = fill(each, placement, ready->emplace_back());
      if (!why.empty()) return {Outcome::Kind::does_not_fit, why, 0, 0, 0};
    }
  }
  return {};
}

Outcome Host::failed(CUresult result) {
  const bool refused = result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == CUDA_ERROR_INVALID_VALUE ||
                       result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE || result == CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (refused) return {Outcome::Kind::does_not_fit, "the driver refuses the launch: " + text_of(result), 0, 0, 0};
  context_.set_lost();
  return {Outcome::Kind::crashed, text_of(result), 0, 0, 0};
}

CUresult Host::keep_image() {
  if (image_.bytes < arena_.bytes) {
    context_.give_back(std::exchange(image_, {}));
    image_ = context_.take_arena(arena_.bytes);
  }
  CUresult result = CUDA_SUCCESS;
  for (const auto& [begin, bytes] : written_) {
    const auto at = static_cast<uint64_t>(begin);
    if (result == CUDA_SUCCESS)
      result = driver().cuMemcpyDtoDAsync(image_.device + at, arena_.device + at, static_cast<size_t>(bytes), context_.stream());
  }
  return result;
}

CUresult Host::restore_image() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [begin, bytes] : written_) {
    const auto at = static_cast<uint64_t>(begin);
    if (result == CUDA_SUCCESS)
      result = driver().cuMemcpyDtoDAsync(arena_.device + at, image_.device + at, static_cast<size_t>(bytes), context_.stream());
  }
  return result;
}

Outcome Host::run(const std::vector<Launch>& launches, double timeout_seconds, const Moments& moments) {
  const auto enqueue = [&] {
    CUresult result = CUDA_SUCCESS;
    for (const auto& [begin, bytes] : zeros_) {
      if (result == CUDA_SUCCESS && bytes > 0)
        result = driver().cuMemsetD8Async(arena_.device + static_cast<uint64_t>(begin), 0, static_cast<size_t>(bytes), context_.stream());
    }
    for (size_t i = 0; i < launches.size() && result == CUDA_SUCCESS; ++i) result = context_.launch(launches[i]);
    return result;
  };
  const auto before = [&](int repeat) {
    if (moments.at_start) moments.at_start(repeat, moments.repeats);
    CUresult result = push_all();
    if (result == CUDA_SUCCESS && moments.repeats > 1) result = repeat == 0 ? keep_image() : restore_image();
    return result;
  };
  const Context::Timed timed = context_.timed(enqueue, timeout_seconds, moments.repeats, before);
  if (timed.timed_out) {
    context_.set_lost();
    return {Outcome::Kind::timed_out, {}, 0, 0, 0};
  }
  if (timed.result != CUDA_SUCCESS) return failed(timed.result);
  if (moments.at_end) moments.at_end();
  Outcome outcome;
  outcome.us = timed.us;
  return outcome;
}

Outcome Host::prepare(double timeout_seconds) { return run(prepares_, timeout_seconds, {}); }
Outcome Host::launch(int, double timeout_seconds, const Moments& moments) { return run(launches_, timeout_seconds, moments); }

}  // namespace ak::device::cuda
