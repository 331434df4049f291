// Starting a host, asking it, and reading its end.
#include "device/cpu/host.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "core/error.h"
#include "device/cpu/sandbox.h"

namespace ak::device::cpu {
namespace {

constexpr int64_t look_every_us = 20'000;         // whether the process still lives
constexpr int64_t longest_awake_ns = 50'000'000;  // a launch that is longer gains nothing from the moment in which a sleeper wakes up

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Descriptor shared_memory(const char* name, int64_t bytes) {
  Descriptor fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), bytes) != 0) throw Error(std::string("cannot make shared memory: ") + ::strerror(errno));
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  return fd;
}

template <class Page>
Page* map_page(const Descriptor& fd) {
  void* address = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) throw Error(std::string("cannot map shared memory: ") + ::strerror(errno));
  return static_cast<Page*>(address);
}

/// Another descriptor of the same memory that cannot be mapped for writing.
Descriptor read_only(const Descriptor& fd) {
  Descriptor reader(::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.valid()) throw Error(std::string("cannot open shared memory again: ") + ::strerror(errno));
  return reader;
}

Descriptor copy_of(const std::filesystem::path& module) {
  const std::string content = read_file(module);
  Descriptor fd = shared_memory("candidate", 0);
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()))
    throw Error("cannot copy " + module.string());
  return read_only(fd);
}

/// Address space that the host maps for the arena: it may grow to all of the machine's memory.
int64_t arena_reserve() { return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE); }

std::string text_of(const char* text, size_t size) {
  std::string result(text, ::strnlen(text, size));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 32 || c > 126; }, ' ');
  return result;
}

/// What does not fit the command page, in words.
std::string excess_of(const kernel::ConcretePlan& plan, const Placement& placement) {
  size_t arguments = 0, longest = 0;
  for (const auto* list : {&plan.launches, &plan.prepares}) {
    for (const kernel::ConcreteLaunch& launch : *list) {
      arguments += launch.arguments.size();
      longest = std::max(longest, launch.arguments.size());
      if (launch.kernel.size() >= sizeof(LaunchEntry::kernel)) return "a kernel's name is too long";
    }
  }
  if (std::ranges::count_if(plan.scratch, [](const auto& scratch) { return scratch.per_worker; }) > 1)
    return "a plan has at most one scratch per worker";
  const bool fits = plan.launches.size() + plan.prepares.size() <= maximum_launches && arguments <= maximum_arguments && longest <= 256 &&
                    placement.zeros.size() <= maximum_zeros;
  return fits ? "" : "the plan has too many launches or arguments";
}

ArgumentEntry entry_of(const kernel::Argument& argument, const Placement& placement) {
  using Kind = kernel::Argument::Kind;
  switch (argument.kind) {
    case Kind::null: return {ArgumentEntry::null_pointer, 0, 0};
    case Kind::integer:
    case Kind::integer32: return {ArgumentEntry::integer, 0, argument.integer};
    case Kind::real: return {ArgumentEntry::real, 0, std::bit_cast<int32_t>(static_cast<float>(argument.real))};
    case Kind::tensor_map: AK_CHECK(false, "a plan for the CPU has no tensor maps");
    case Kind::tensor:
    case Kind::scratch: break;
  }
  return {ArgumentEntry::arena_pointer, 0, placement.pointers.at(argument.name)};
}

void add_launches(const std::vector<kernel::ConcreteLaunch>& launches, const Placement& placement, std::vector<LaunchEntry>& entries,
                  std::vector<ArgumentEntry>& arguments) {
  for (const kernel::ConcreteLaunch& launch : launches) {
    LaunchEntry entry{};
    launch.kernel.copy(entry.kernel, sizeof entry.kernel - 1);
    entry.blocks = launch.blocks();
    entry.first_argument = static_cast<int32_t>(arguments.size());
    entry.argument_count = static_cast<int32_t>(launch.arguments.size());
    entry.scratch_offset = placement.worker_scratch;
    entry.scratch_stride = placement.worker_stride;
    for (const kernel::Argument& argument : launch.arguments) arguments.push_back(entry_of(argument, placement));
    entries.push_back(entry);
  }
}

struct Schedule {
  double ran_us = 0, waited_us = 0;  // on a CPU; ready to run without one
};

/// The first two numbers of a thread's schedstat, in nanoseconds. The time on a CPU is exact where the thread sleeps.
Schedule schedule_of(const Descriptor& file) {
  char text[128];
  const ssize_t count = ::pread(file.get(), text, sizeof text - 1, 0);
  if (count <= 0) return {};
  text[count] = '\0';
  char* second = nullptr;
  const double ran_ns = ::strtod(text, &second);
  return {ran_ns * 1e-3, ::strtod(second, nullptr) * 1e-3};
}

}  // namespace

Host::Host(const std::filesystem::path& executable, const std::optional<std::filesystem::path>& module, int workers,
           const HostLimits& limits)
    : workers_(workers), limits_(limits) {
  const Descriptor command = shared_memory("command", sizeof(CommandPage)), state = shared_memory("status", sizeof(StatusPage));
  const Descriptor reader = read_only(command), nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  arena_fd_ = shared_memory("arena", 4096);
  command_ = map_page<CommandPage>(command);
  status_ = map_page<StatusPage>(state);
  Descriptor candidate;
  ProcessOptions options;
  options.arguments = {executable.string(),
                       "--host",
                       std::to_string(limits.memory_bytes),
                       std::to_string(arena_reserve()),
                       std::to_string(workers),
                       module ? "/proc/self/fd/" + std::to_string(module_fd) : no_module};
  options.clear_environment = true;
  // Workers wait for the next launch awake for a moment only, so that they are asleep while the judge empties the caches; each stays on a
  // CPU of its own, since two that spin on one CPU keep each other waiting where the machine is busy.
  options.environment = {{"OMP_NUM_THREADS", std::to_string(workers)},
                         {"OMP_DYNAMIC", "false"},
                         {"OMP_PROC_BIND", "true"},
                         {"GOMP_SPINCOUNT", "3000"},
                         {"PATH", "/usr/bin:/bin"}};
  options.descriptors = {{0, nothing.get()},         {1, nothing.get()},       {2, nothing.get()},
                         {command_fd, reader.get()}, {status_fd, state.get()}, {arena_fd, arena_fd_.get()}};
  if (module) {
    candidate = copy_of(*module);
    options.descriptors.emplace_back(module_fd, candidate.get());
  }
  process_ = Process::start(options);
}

Host::~Host() {
  process_.reset();
  if (command_ != nullptr) ::munmap(command_, sizeof(CommandPage));
  if (status_ != nullptr) ::munmap(status_, sizeof(StatusPage));
  if (!arena_.empty()) ::munmap(arena_.data(), arena_.size());
}

std::span<std::byte> Host::arena(int64_t bytes) {
  if (static_cast<int64_t>(arena_.size()) < bytes) {
    const int64_t rounded = (bytes + (1 << 20) - 1) >> 20 << 20;
    if (!arena_.empty()) ::munmap(arena_.data(), arena_.size());
    arena_ = {};
    if (::ftruncate(arena_fd_.get(), rounded) != 0) throw Error(std::string("cannot grow the arena: ") + ::strerror(errno));
    void* address = ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd_.get(), 0);
    if (address == MAP_FAILED) throw Error(std::string("cannot map the arena: ") + ::strerror(errno));
    arena_ = {static_cast<std::byte*>(address), static_cast<size_t>(rounded)};
  }
  return arena_.first(static_cast<size_t>(bytes));
}

Outcome Host::end_of_process(const ExitStatus& status) const {
  Outcome outcome{Outcome::Kind::crashed, status.text(), status.signal.value_or(0), 0};
  if (status_->code == HostCode::out_of_memory) {
    outcome.kind = Outcome::Kind::out_of_memory;
    outcome.text = "more than " + std::to_string(limits_.memory_bytes >> 20) + " MiB of private memory";
  } else if (status_->code == HostCode::forbidden_call || status.signal == SIGSYS) {
    const char* name = name_of_call(status_->detail);
    outcome.kind = Outcome::Kind::forbidden;
    outcome.text = name != nullptr ? name : "system call " + std::to_string(status_->detail);
  } else if (status_->code == HostCode::crashed) {
    outcome.signal = status_->detail;
    outcome.text = ExitStatus{.signal = outcome.signal}.text();
  }
  return outcome;
}

Outcome Host::failure_of_status() const {
  switch (status_->code) {
    case HostCode::none: return {};
    case HostCode::cannot_load: return {Outcome::Kind::cannot_load, text_of(status_->text, sizeof status_->text), 0, 0};
    case HostCode::no_kernel:
    case HostCode::parameters_differ: return {Outcome::Kind::does_not_fit, text_of(status_->text, sizeof status_->text), 0, 0};
    case HostCode::state_changed:
      return {Outcome::Kind::state_changed, "the rounding, the treatment of denormals or the direction of string operations", 0, 0};
    default: return {Outcome::Kind::tampered, "the host's status page", 0, 0};
  }
}

bool Host::status_is_clean() const {
  const auto* begin = reinterpret_cast<const unsigned char*>(status_) + offsetof(StatusPage, code);
  const auto* end = reinterpret_cast<const unsigned char*>(status_) + sizeof(StatusPage);
  return std::all_of(begin, begin + 8, [](unsigned char byte) { return byte == 0; }) && status_->sandbox == sandbox_ &&
         std::all_of(begin + 12, end, [](unsigned char byte) { return byte == 0; });
}

Outcome Host::tampered() {
  process_->kill();
  ended_ = true;
  return {Outcome::Kind::tampered, "the host's status page", 0, 0};
}

Outcome Host::wait_for(const std::atomic<uint32_t>& word, uint32_t value, int64_t deadline_ns, int64_t awake_until_ns) {
  while (word.load(std::memory_order_acquire) != value && now_ns() < awake_until_ns) {
  }
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == value) return {};
    const uint32_t before = value == 1 ? 0 : value - 2;  // what the word was when the host was last heard of
    if (seen != before) return tampered();
    const int64_t left_us = (deadline_ns - now_ns()) / 1000;
    if (left_us <= 0) {
      process_->kill();
      ended_ = true;
      return {Outcome::Kind::timed_out, {}, 0, 0};
    }
    futex_wait(word, seen, std::min(left_us, look_every_us));
    if (word.load(std::memory_order_acquire) == seen) {
      if (const auto status = process_->wait(std::chrono::milliseconds(0))) {
        ended_ = true;
        return end_of_process(*status);
      }
    }
  }
}

void Host::watch_threads() {
  std::error_code ignored;
  std::vector<std::filesystem::path> threads = {"/proc/thread-self"};
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process_->pid()) + "/task", ignored))
    threads.push_back(thread.path());
  for (const auto& thread : threads) {
    Descriptor file(::open((thread / "schedstat").c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) schedules_.push_back(std::move(file));
  }
}

double Host::waited_us() const {
  double us = 0;
  for (const Descriptor& file : schedules_) us += schedule_of(file).waited_us;
  return us;
}

double Host::ran_us() const {
  double us = 0;
  for (size_t i = 1; i < schedules_.size(); ++i) us += schedule_of(schedules_[i]).ran_us;
  return us;
}

Outcome Host::load() {
  const Outcome waited = wait_for(status_->done, 1, now_ns() + static_cast<int64_t>(limits_.load_seconds * 1e9));
  if (!waited.ok()) return waited;
  sandbox_ = status_->sandbox;
  watch_threads();
  const Outcome failure = failure_of_status();
  return failure.ok() && !filters_hold() ? tampered() : failure;
}

/// What the host claims of its filters, the kernel has to confirm: a constructor could have taken over before the second.
bool Host::filters_hold() const {
  if ((sandbox_ & sandbox_calls) == 0) return true;
  const auto filters = [](const std::string& process) -> std::optional<int64_t> {
    const auto text = read_file_if_exists("/proc/" + process + "/status");
    const size_t at = text ? text->find("\nSeccomp_filters:") : std::string::npos;
    if (at == std::string::npos) return std::nullopt;  // Linux before 5.9
    return ::strtoll(text->c_str() + at + ::strlen("\nSeccomp_filters:"), nullptr, 10);
  };
  const auto ours = filters("self"), theirs = filters(std::to_string(process_->pid()));
  return !ours || !theirs || *theirs == *ours + 2;
}

void Host::fill_command(const Program& program) {
  AK_CHECK(program.launches.size() + program.prepares.size() <= maximum_launches && program.arguments.size() <= maximum_arguments &&
               program.zeros.size() <= maximum_zeros,
           "a program fits the command page");
  std::copy(program.launches.begin(), program.launches.end(), command_->launches);
  std::copy(program.prepares.begin(), program.prepares.end(), command_->launches + program.launches.size());
  std::copy(program.arguments.begin(), program.arguments.end(), command_->arguments);
  std::copy(program.zeros.begin(), program.zeros.end(), command_->zeros);
  command_->launch_count = static_cast<int32_t>(program.launches.size());
  command_->prepare_count = static_cast<int32_t>(program.prepares.size());
  command_->argument_count = static_cast<int32_t>(program.arguments.size());
  command_->zero_count = static_cast<int32_t>(program.zeros.size());
}

Outcome Host::install(const kernel::ConcretePlan& plan, const Placement& placement) {
  const std::string excess = excess_of(plan, placement);
  if (!excess.empty()) return {Outcome::Kind::does_not_fit, excess};
  Program program;
  add_launches(plan.launches, placement, program.launches, program.arguments);
  add_launches(plan.prepares, placement, program.prepares, program.arguments);
  for (const auto& [begin, bytes] : placement.zeros) program.zeros.push_back({begin, bytes});
  return install(program);
}

Outcome Host::install(const Program& program) {
  AK_CHECK(alive(), "the host lives");
  launched_ = false;
  fill_command(program);
  command_->verb = Request::install;
  sequence_ += 2;
  command_->request.store(sequence_, std::memory_order_release);
  futex_wake(command_->request);
  const Outcome waited = wait_for(status_->done, sequence_ + 1, now_ns() + static_cast<int64_t>(limits_.load_seconds * 1e9));
  return waited.ok() ? failure_of_status() : waited;
}

Outcome Host::run(Request verb, int workers, double timeout_seconds, const Moments& moments) {
  AK_CHECK(alive(), "the host lives");
  const double ran_before_us = ran_us();
  std::optional<double> outside_us;
  if (launched_ && verb == Request::launch) outside_us = ran_before_us - last_launch_.ran_us - last_launch_.clocked_us;
  launched_ = false;
  command_->verb = verb;
  command_->workers = workers;
  sequence_ += 2;
  command_->request.store(sequence_, std::memory_order_release);
  futex_wake(command_->request);
  Outcome outcome = wait_for(status_->armed, sequence_, now_ns() + static_cast<int64_t>(limits_.load_seconds * 1e9));
  if (!outcome.ok()) return outcome;

  if (moments.while_stopped) {
    stop();
    moments.while_stopped();
  }
  if (moments.at_start) moments.at_start(0, 1);
  const double waited_before_us = waited_us();
  const int64_t start = now_ns();
  command_->go.store(sequence_, std::memory_order_release);
  if (moments.while_stopped) resume();
  futex_wake(command_->go);
  outcome = wait_for(status_->done, sequence_ + 1, start + static_cast<int64_t>(timeout_seconds * 1e9),
                     moments.awake ? start + longest_awake_ns : 0);
  const int64_t end = now_ns();
  if (!outcome.ok()) return outcome;
  if (moments.at_end) moments.at_end();
  if (status_->code == HostCode::state_changed) return failure_of_status();
  if (!status_is_clean()) return tampered();
  outcome.us = static_cast<double>(end - start) * 1e-3;
  outcome.outside_us = outside_us;
  launched_ = verb == Request::launch;
  last_launch_ = {ran_before_us, outcome.us * workers};
  outcome.waited_us = waited_us() - waited_before_us;
  return outcome;
}

}  // namespace ak::device::cpu
