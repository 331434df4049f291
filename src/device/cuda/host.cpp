// Checks a plan against its module, and moves memory only where it changed.
#include "device/cuda/host.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "device/cuda/cubin.h"
#include "device/cuda/images.h"

namespace ak::device::cuda {
namespace {

constexpr int64_t longest_gap = 32 << 10;  // between two changes that travel together

}  // namespace

Host::Host(Context& context, std::filesystem::path module, Bindings facts)
    : context_(context), path_(std::move(module)), facts_(std::move(facts)) {}

Host::~Host() {
  if (context_.lost()) return;
  for (const CUmodule module : modules_) driver().cuModuleUnload(module);
  context_.give_back(arena_);
  context_.give_back(image_);
}

Outcome Host::load() {
  try {
    for (const std::string& image : read_images(path_)) modules_.push_back(load_module(image));
  } catch (const Error& error) {
    return {Outcome::Kind::cannot_load, error.what(), 0, 0, 0};
  }
  return {};
}

std::span<std::byte> Host::arena(int64_t bytes) {
  if (arena_.bytes < bytes) {
    context_.give_back(std::exchange(arena_, {}));
    arena_ = context_.take_arena(bytes);
  }
  return {arena_.host, static_cast<size_t>(bytes)};
}

/// The arena has a copy in the machine's memory.
int64_t Host::most_scratch_bytes() const { return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / 2; }

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
  CUresult result = driver().cuMemcpyDtoHAsync(arena_.host + begin, arena_.device + static_cast<uint64_t>(begin),
                                               static_cast<size_t>(bytes), context_.stream());
  if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(context_.stream());
  if (result != CUDA_SUCCESS) context_.set_lost();
  check(result, "copy from the device");
}

/// Null where the tensor is absent.
CUdeviceptr Host::address_of(const kernel::Argument& argument, const Placement& placement) const {
  if (argument.kind == kernel::Argument::Kind::null) return 0;
  return arena_.device + static_cast<uint64_t>(placement.pointers.at(argument.name));
}

Launch Host::ready(const kernel::ConcreteLaunch& wanted, const kernel::ConcretePlan& plan, const Placement& placement) const {
  Launch launch{function_for(wanted, modules_.at(static_cast<size_t>(wanted.image)), facts_.at("shared_per_block")), wanted, {}, {}};
  for (const kernel::Argument& argument : std::exchange(launch.plan.arguments, {})) {
    using Kind = kernel::Argument::Kind;
    uint64_t bits = 0;
    if (argument.kind == Kind::integer || argument.kind == Kind::integer32) bits = static_cast<uint64_t>(argument.integer);
    if (argument.kind == Kind::real) bits = std::bit_cast<uint32_t>(static_cast<float>(argument.real));
    if (argument.kind == Kind::tensor || argument.kind == Kind::scratch) bits = address_of(argument, placement);
    if (argument.aligned && bits % kernel::Argument::vector_bytes != 0)
      throw Error(argument.name + " lies at no multiple of 16 bytes, as the module takes it to do");
    if (argument.kind == Kind::tensor_map) {
      const kernel::ConcreteTensorMap& map = *plan.find_tensor_map(argument.name);
      launch.maps[launch.arguments.size()] = encode(map, address_of(map.tensor, placement));
    }
    launch.arguments.push_back(bits);
  }
  return launch;
}

Outcome Host::install(const kernel::ConcretePlan& plan, const Placement& placement) {
  launches_.clear();
  prepares_.clear();
  zeros_ = placement.zeros;
  written_ = placement.written;
  if (placement.worker_scratch >= 0) return {Outcome::Kind::does_not_fit, "a device has no scratch per worker", 0, 0, 0};
  try {
    for (const kernel::ConcreteLaunch& each : plan.launches) launches_.push_back(ready(each, plan, placement));
    for (const kernel::ConcreteLaunch& each : plan.prepares) prepares_.push_back(ready(each, plan, placement));
  } catch (const Error& error) {
    return {Outcome::Kind::does_not_fit, error.what(), 0, 0, 0};
  }
  return {};
}

std::vector<KernelUse> Host::uses() const {
  std::vector<KernelUse> uses;
  for (const Launch& launch : launches_) {
    const KernelUse use = use_of(launch.plan, launch.function, facts_.at("threads_per_sm"));
    if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
  }
  return uses;
}

Outcome Host::failed(CUresult result) {
  const bool refused = result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == CUDA_ERROR_INVALID_VALUE ||
                       result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE || result == CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (refused) return {Outcome::Kind::does_not_fit, "the driver refuses the launch: " + text_of(result), 0, 0, 0};
  context_.set_lost();
  if (!is_fault_of_a_kernel(result))
    throw Error("the GPU failed while a kernel ran: " + text_of(result), "nvidia-smi says whether it is still there");
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
  outcome.second_us = timed.second_us;
  return outcome;
}

Outcome Host::prepare(double timeout_seconds) { return run(prepares_, timeout_seconds, {}); }
Outcome Host::launch(int, double timeout_seconds, const Moments& moments) { return run(launches_, timeout_seconds, moments); }

}  // namespace ak::device::cuda
