// Built-in kernels on the path of a candidate give the floors and ceilings.
#include "judge/cpu_machine.h"

#include <algorithm>

#include "core/error.h"
#include "device/cpu/facts.h"
#include "judge/paired_timer.h"

namespace ak::judge {

namespace cpu = device::cpu;

namespace {

constexpr int floor_samples = 9, ceiling_samples = 9, launch_samples = 31, outside_samples = 15, waking_samples = 7, most_times = 3;
constexpr size_t least_clean_samples = 5;
constexpr int64_t ceiling_bytes = 128 << 20, read_part_bytes = 64 << 10;
constexpr int64_t multiply_rounds = 100'000, multiply_flops = 2 * 16 * 16 * multiply_rounds, shares_per_worker = 8;

cpu::LaunchEntry builtin_launch(const char* name, int64_t blocks, int32_t arguments) {
  cpu::LaunchEntry entry{};
  std::copy_n(name, std::char_traits<char>::length(name), entry.kernel);
  entry.blocks = blocks;
  entry.argument_count = arguments;
  entry.scratch_offset = -1;
  return entry;
}

cpu::ArgumentEntry integer(int64_t value) { return {cpu::ArgumentEntry::integer, 0, value}; }
cpu::ArgumentEntry pointer(int64_t offset) { return {cpu::ArgumentEntry::arena_pointer, 0, offset}; }

/// Of launches; the clean ones apart.
struct Times {
  std::vector<double> all, clean;

  void add(const device::Outcome& outcome) {
    all.push_back(outcome.us);
    if (is_clean(outcome.us, outcome.waited_us)) clean.push_back(outcome.us);
  }
  double fastest() const { return std::ranges::min(all); }
  /// Where other work disturbs nearly every launch, the fastest is nearest to the truth.
  double usual() const { return clean.size() >= least_clean_samples ? median(clean) : fastest(); }
};

int64_t page_aligned(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

CpuMachine::CpuMachine(std::filesystem::path executable, int workers, const cpu::HostLimits& limits, double longest_run_seconds)
    : executable_(std::move(executable)),
      workers_(workers),
      limits_(limits),
      longest_run_seconds_(longest_run_seconds),
      flusher_(cpu::flush_bytes(), cpu::available_cpus()) {}

Bindings CpuMachine::facts() const { return cpu::facts(workers_); }

Json CpuMachine::sandbox() {
  const int32_t reached = builtin_host().sandbox();
  Json sandbox = Json::array();
  if ((reached & cpu::sandbox_limits) != 0) sandbox.push_back("limits");
  if ((reached & cpu::sandbox_calls) != 0) sandbox.push_back("calls");
  if ((reached & cpu::sandbox_files) != 0) sandbox.push_back("files");
  return sandbox;
}

std::unique_ptr<device::Host> CpuMachine::new_host(const std::filesystem::path& module) {
  return std::make_unique<cpu::Host>(executable_, module, workers_, limits_);
}

bool CpuMachine::has_spare_cpu(int workers) const { return workers < cpu::available_cpus(); }

cpu::Host& CpuMachine::builtin_host() {
  if (!builtin_ || !builtin_->alive()) {
    builtin_ = std::make_unique<cpu::Host>(executable_, std::nullopt, workers_, limits_);
    const device::Outcome loaded = builtin_->load();
    if (!loaded.ok())
      throw Error("the candidate host does not start: " + (loaded.text.empty() ? std::string("it gave no sign of life") : loaded.text));
  }
  return *builtin_;
}

Floor CpuMachine::cold(const cpu::Program& program, int samples) {
  cpu::Host& host = builtin_host();
  Times times;
  device::Outcome outcome = host.install(program);
  for (int i = 0; i <= most_times * samples && static_cast<int>(times.clean.size()) < samples && outcome.ok(); ++i) {
    if (i > 0) flusher_.flush();
    outcome = host.launch(workers_, longest_run_seconds_);
    if (i > 0) times.add(outcome);
  }
  if (!outcome.ok()) throw Error("a built-in kernel fails: " + outcome.text);
  return {times.usual(), times.fastest()};  // a floor that is too high accuses the honest
}

Floors CpuMachine::floors(int64_t read_bytes, int64_t write_bytes) {
  const int64_t source = 0, target = page_aligned(read_bytes) + 4096, blocks = workers_ * shares_per_worker;
  const int64_t total = target + page_aligned(write_bytes);
  std::ranges::fill(builtin_host().arena(total), std::byte{1});
  Floors floors;
  for (const auto& [name, kernel] : {std::pair("memcpy", "builtin.copy"), std::pair("stream", "builtin.stream")}) {
    cpu::Program program;
    program.arguments = {pointer(source), integer(read_bytes), pointer(target), integer(write_bytes), integer(blocks)};
    program.launches = {builtin_launch(kernel, blocks, 5)};
    floors[name] = cold(program, floor_samples);
    if (write_bytes == 0) break;
  }
  return floors;
}

std::optional<double> CpuMachine::idle_outside_us() {
  cpu::Host& host = builtin_host();
  std::vector<double> outside_us;
  device::Outcome outcome = host.install(empty_program());
  for (int i = 0; i <= outside_samples && outcome.ok(); ++i) {
    flusher_.flush();
    outcome = host.launch(workers_, longest_run_seconds_);
    if (outcome.outside_us) outside_us.push_back(*outcome.outside_us);
  }
  if (outside_us.empty()) return std::nullopt;
  return std::ranges::max(outside_us);
}

std::optional<double> CpuMachine::waking_us() {
  cpu::Host& host = builtin_host();
  Times usual, stopped;
  const auto enough = [](const Times& times) { return static_cast<int>(times.clean.size()) >= waking_samples; };
  device::Outcome outcome = host.install(empty_program());
  for (int i = 0; i < most_times * waking_samples && !(enough(usual) && enough(stopped)) && outcome.ok(); ++i) {
    flusher_.flush();
    outcome = host.launch(workers_, longest_run_seconds_);
    if (!outcome.ok()) break;
    usual.add(outcome);
    outcome = host.launch(workers_, longest_run_seconds_, {.while_stopped = [this] { flusher_.flush(); }});
    stopped.add(outcome);
  }
  if (!outcome.ok()) return std::nullopt;
  return std::max(0.0, stopped.usual() - usual.usual());
}

cpu::Program CpuMachine::empty_program() const {
  cpu::Program nothing;
  nothing.launches = {builtin_launch("builtin.empty", workers_, 0)};
  return nothing;
}

Json CpuMachine::ceilings() {
  const double launch_us = cold(empty_program(), launch_samples).median_us;

  std::ranges::fill(builtin_host().arena(ceiling_bytes), std::byte{1});
  cpu::Program reading;
  reading.arguments = {pointer(0), integer(ceiling_bytes)};
  reading.launches = {builtin_launch("builtin.read", ceiling_bytes / read_part_bytes, 2)};
  const double read_us = cold(reading, ceiling_samples).median_us, copy_us = floor_us(ceiling_bytes / 2, ceiling_bytes / 2);

  cpu::Program multiplying;
  multiplying.arguments = {integer(multiply_rounds)};
  multiplying.launches = {builtin_launch("builtin.multiply", workers_ * shares_per_worker, 1)};
  const double flops =
      static_cast<double>(multiply_flops * workers_ * shares_per_worker) / (cold(multiplying, ceiling_samples).median_us * 1e-6);
  return {{"copy_bytes_per_s", static_cast<double>(ceiling_bytes) / (copy_us * 1e-6)},
          {"read_bytes_per_s", static_cast<double>(ceiling_bytes) / (read_us * 1e-6)},
          {"flops_per_s", {{"float32", flops}, {"float16", flops}, {"bfloat16", flops}, {"float64", flops / 2}}},
          {"launch_us", launch_us}};
}

}  // namespace ak::judge
