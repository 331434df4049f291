// Start of a device, launches, and the clock.
#include "device/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "device/cuda/cubin.h"

namespace ak::device::cuda {
namespace {

constexpr int64_t least_flush_bytes = int64_t{64} << 20;
constexpr int flush_factor = 4;  // times the L2: its replacement is not strictly by age
constexpr size_t most_spare_arenas = 4;
constexpr int64_t arena_step = int64_t{2} << 20;
constexpr std::chrono::milliseconds awake(5);  // a longer launch is waited for asleep
constexpr double calibration_seconds = 10;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return 0.5 * (values[values.size() / 2] + values[(values.size() - 1) / 2]);
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "ask the device");
  return value;
}

}  // namespace

Context::Context(int index, const std::filesystem::path& builtin) {
  const Driver& cuda = driver();
  check(cuda.cuDeviceGet(&device_, index), "find the device");
  check(cuda.cuCtxCreate(&context_, 0, device_), "make a context");
  check(cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream");
  builtin_ = load_module(read_file(builtin));
  CUdeviceptr flops = 0;
  size_t size = 0;
  check(cuda.cuModuleGetGlobal(&flops, &size, builtin_, "builtin_flops_a_round"), "find the judge's own constants");
  check(cuda.cuMemcpyDtoHAsync(&flops_a_round_, flops, sizeof flops_a_round_, stream_), "read the judge's own constants");
  flush_bytes_ = std::max(least_flush_bytes, flush_factor * int64_t{attribute(device_, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)});
  check(cuda.cuMemAlloc(&flush_buffer_, static_cast<size_t>(flush_bytes_)), "allocate memory");
  reading_ = this->builtin("builtin_read", 2 * attribute(device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 512,
                           {flush_buffer_, static_cast<uint64_t>(flush_bytes_ / 16), flush_buffer_});
  check(cuda.cuMemsetD8Async(flush_buffer_, 1, static_cast<size_t>(flush_bytes_), stream_), "fill memory");
  check(cuda.cuStreamSynchronize(stream_), "run anything");
  start_second_clock();
}

void Context::start_second_clock() {
  check(driver().cuMemAlloc(&stamps_, 2 * max_repeats * sizeof(uint64_t)), "allocate memory");
  check(driver().cuModuleGetFunction(&stamp_, builtin_, "builtin_stamp"), "find a kernel of the judge's own");
  const Launch nothing = builtin("builtin_empty", 1, 32, {});
  const auto run = [&] { return timed([&] { return launch(nothing); }, calibration_seconds, max_repeats / 2); };
  run();
  const Timed timed = run();
  check(timed.result, "run a kernel of the judge's own");
  stamps_cost_us_ = timed.second_us - timed.us;
}

CUresult Context::stamp(int which) const {
  Launch launch;
  launch.function = stamp_;
  launch.arguments = {stamps_ + static_cast<uint64_t>(which) * sizeof(uint64_t)};
  return this->launch(launch);
}

Launch Context::builtin(const char* name, int64_t blocks, int64_t threads, std::vector<uint64_t> arguments) const {
  Launch launch;
  check(driver().cuModuleGetFunction(&launch.function, builtin_, name), "find a kernel of the judge's own");
  launch.plan.grid[0] = blocks;
  launch.plan.block[0] = threads;
  launch.arguments = std::move(arguments);
  return launch;
}

CUresult Context::launch(const Launch& launch) const {
  if (launch.plan.blocks() == 0) return CUDA_SUCCESS;
  std::vector<CUlaunchAttribute> attributes = attributes_of(launch.plan);
  CUlaunchConfig config = config_of(launch.plan);
  config.stream = stream_;
  config.attributes = attributes.data();
  config.attribute_count = static_cast<unsigned>(attributes.size());
  std::vector<void*> parameters;
  for (const uint64_t& argument : launch.arguments) parameters.push_back(const_cast<uint64_t*>(&argument));
  for (const auto& [place, map] : launch.maps) parameters[place] = const_cast<CUtensorMap*>(&map);
  return driver().cuLaunchKernelEx(&config, launch.function, parameters.data(), nullptr);
}

CUresult Context::flush() const { return launch(reading_); }

Context::Timed Context::timed(const std::function<CUresult()>& enqueue, double timeout_seconds, int repeats,
                              const std::function<CUresult(int)>& before) {
  const Driver& cuda = driver();
  AK_CHECK(repeats <= max_repeats, "there are stamps for every repeat");
  while (events_.size() < static_cast<size_t>(repeats)) {
    auto& [begin, end] = events_.emplace_back();
    check(cuda.cuEventCreate(&begin, 0), "make an event");
    check(cuda.cuEventCreate(&end, 0), "make an event");
  }
  Timed timed;
  std::vector<bool> queued_in_time(static_cast<size_t>(repeats));
  const auto then = [&](const auto& next) {
    if (timed.result == CUDA_SUCCESS) timed.result = next();
  };
  for (int i = 0; i < repeats; ++i) {
    const CUevent begin = events_[static_cast<size_t>(i)].first, end = events_[static_cast<size_t>(i)].second;
    if (before) then([&] { return before(i); });
    then([&] { return flush(); });
    then([&] { return stamp(2 * i); });
    then([&] { return cuda.cuEventRecord(begin, stream_); });
    then(enqueue);
    then([&] { return cuda.cuEventRecord(end, stream_); });
    then([&] { return stamp(2 * i + 1); });
    queued_in_time[static_cast<size_t>(i)] = cuda.cuEventQuery(begin) == CUDA_ERROR_NOT_READY;
  }
  if (timed.result != CUDA_SUCCESS) return timed;
  const CUevent last = events_[static_cast<size_t>(repeats - 1)].second;
  const auto start = std::chrono::steady_clock::now();
  while ((timed.result = cuda.cuEventQuery(last)) == CUDA_ERROR_NOT_READY) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > std::chrono::duration<double>(timeout_seconds * repeats)) {
      timed.timed_out = true;
      return timed;
    }
    if (waited > awake) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::vector<uint64_t> stamps(2 * static_cast<size_t>(repeats));  // ns
  then([&] { return cuda.cuMemcpyDtoHAsync(stamps.data(), stamps_, stamps.size() * sizeof stamps[0], stream_); });
  then([&] { return cuda.cuStreamSynchronize(stream_); });
  std::vector<double> us, second_us;
  for (size_t i = 0; i < static_cast<size_t>(repeats); ++i) {
    float milliseconds = 0;
    then([&] { return cuda.cuEventElapsedTime(&milliseconds, events_[i].first, events_[i].second); });
    us.push_back(1000.0 * milliseconds);
    if (!queued_in_time[i]) continue;
    second_us.push_back(1e-3 * static_cast<double>(static_cast<int64_t>(stamps[2 * i + 1] - stamps[2 * i])) - stamps_cost_us_);
  }
  timed.us = median(us);
  timed.second_us = second_us.empty() ? 0 : median(second_us);
  return timed;
}

Arena Context::take_arena(int64_t bytes) {
  const auto spare = std::ranges::find_if(spare_, [&](const Arena& arena) { return arena.bytes >= bytes && arena.bytes <= 4 * bytes; });
  if (spare != spare_.end()) {
    const Arena arena = *spare;
    spare_.erase(spare);
    return arena;
  }
  Arena arena;
  arena.bytes = (bytes + arena_step - 1) / arena_step * arena_step;
  const auto allocate = [&] {
    const CUresult result = driver().cuMemAlloc(&arena.device, static_cast<size_t>(arena.bytes));
    if (result != CUDA_ERROR_OUT_OF_MEMORY || spare_.empty()) return result;
    for (const Arena& each : std::exchange(spare_, {})) {
      driver().cuMemFree(each.device);
      driver().cuMemFreeHost(each.host);
    }
    return driver().cuMemAlloc(&arena.device, static_cast<size_t>(arena.bytes));
  };
  check(allocate(), "allocate the case's memory on the device");
  void* host = nullptr;
  check(driver().cuMemHostAlloc(&host, static_cast<size_t>(arena.bytes), 0), "allocate page-locked memory");
  arena.host = static_cast<std::byte*>(host);
  return arena;
}

void Context::give_back(Arena arena) {
  if (arena.bytes == 0 || lost_) return;
  spare_.push_back(arena);
  if (spare_.size() <= most_spare_arenas) return;
  driver().cuMemFree(spare_.front().device);
  driver().cuMemFreeHost(spare_.front().host);
  spare_.erase(spare_.begin());
}

}  // namespace ak::device::cuda
