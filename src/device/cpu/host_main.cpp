// Map the pages, close the sandbox, load the candidate, then run blocks as the command page says, under libgomp.
#include "device/cpu/host_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/cpu/builtin.h"
#include "device/cpu/control.h"
#include "device/cpu/sandbox.h"

namespace ak::device::cpu {
namespace {

constexpr int64_t shares_per_worker = 8;   // parts of the grid that a worker fetches, as the runtime in a model does
constexpr int64_t spin_rounds = 20'000;    // on `go`, before sleeping; about a millisecond
constexpr int64_t probe_bytes = 64 << 20;  // an allocation that fails only where memory is used up

StatusPage* status = nullptr;  // the signal handlers' way to it

void on_refusal(int, siginfo_t* info, void*) {
  status->code = info->si_errno == refused_memory ? HostCode::out_of_memory : HostCode::forbidden_call;
  status->detail = info->si_syscall;
  ::_exit(112);
}

/// Report the signal, or that an allocation has failed before it. The default action is out of reach, since it needs a forbidden call.
void on_crash(int signal, siginfo_t*, void*) {
  void* probe = ::mmap(nullptr, probe_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  status->detail = signal;
  status->code = probe == MAP_FAILED && errno == ENOMEM ? HostCode::out_of_memory : HostCode::crashed;
  ::_exit(112);
}

void install_handlers() {
  static char stack[64 << 10];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = on_refusal;
  ::sigaction(SIGSYS, &action, nullptr);
  action.sa_sigaction = on_crash;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

/// What a kernel has to leave as it was, since its thread belongs to the model: rounding, denormals, masks of exceptions, and the
/// direction of string operations.
struct ProcessorState {
  uint64_t vector = 0, direction = 0;
  uint16_t x87 = 0;

  static ProcessorState now() {
    ProcessorState state;
#if defined(__x86_64__)
    state.direction = __builtin_ia32_readeflags_u64() & 0x400u;
    asm volatile("cld" ::: "cc");                      // what follows is compiled for it
    state.vector = __builtin_ia32_stmxcsr() & ~0x3fu;  // the lower bits say what has happened
    asm volatile("fnstcw %0" : "=m"(state.x87));
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(state.vector));
#endif
    return state;
  }
  bool operator==(const ProcessorState&) const = default;
};

struct ResolvedLaunch {
  const KernelRecord* record;
  int64_t blocks;
  char* scratch;
  int64_t scratch_stride;
  uint64_t values[256];
  void* arguments[256];
};

class Host {
 public:
  Host(const CommandPage& command, StatusPage& state, char* arena, int workers)
      : command_(command), status_(state), arena_(arena), workers_(workers) {}

  void load(const char* module);
  [[noreturn]] void serve();

 private:
  void install();
  bool resolve(const LaunchEntry& entry, ResolvedLaunch& launch, int32_t index);
  const KernelRecord* find(const char* kernel) const;
  bool parameters_agree(const LaunchEntry& entry, const KernelRecord& record);
  void run(uint32_t sequence);
  void wait_for_go(uint32_t sequence) const;
  void launch_all(int32_t begin, int32_t end, int workers);
  void fail(HostCode code, int32_t detail, const char* text);
  void finish(uint32_t sequence);

  const CommandPage& command_;
  StatusPage& status_;
  char* arena_;
  int workers_;
  void* module_ = nullptr;
  ResolvedLaunch launches_[maximum_launches];
  ZeroEntry zeros_[maximum_zeros];
  int32_t launch_count_ = 0, prepare_count_ = 0, zero_count_ = 0;
};

void Host::fail(HostCode code, int32_t detail, const char* text) {
  status_.code = code;
  status_.detail = detail;
  std::snprintf(status_.text, sizeof status_.text, "%s", text);
}

void Host::finish(uint32_t sequence) {
  status_.done.store(sequence, std::memory_order_release);
  futex_wake(status_.done);
}

void Host::load(const char* module) {
  if (std::strcmp(module, no_module) != 0) {
    module_ = ::dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (module_ == nullptr) fail(HostCode::cannot_load, 0, ::dlerror());
  }
  ::close(module_fd);
}

const KernelRecord* Host::find(const char* kernel) const {
  if (module_ == nullptr) return builtin_kernel(kernel);  // a candidate has only what the runtime will find in its module
  char symbol[160];
  std::snprintf(symbol, sizeof symbol, "ak_kernel_%s", kernel);
  return static_cast<const KernelRecord*>(::dlsym(module_, symbol));
}

bool Host::parameters_agree(const LaunchEntry& entry, const KernelRecord& record) {
  char text[512];
  if (record.version != 1 || record.parameter_count != entry.argument_count) {
    std::snprintf(text, sizeof text, "kernel %s has %d parameters after `scratch`, its launch passes %d arguments", entry.kernel,
                  record.parameter_count, entry.argument_count);
    fail(HostCode::parameters_differ, 0, text);
    return false;
  }
  static const char* const names[] = {"a pointer", "an integer", "a float"};
  for (int32_t i = 0; i < entry.argument_count; ++i) {
    const int32_t passed = command_.arguments[entry.first_argument + i].kind;
    const KernelParameter wanted{passed <= ArgumentEntry::arena_pointer ? 0
                                 : passed == ArgumentEntry::integer     ? 1
                                                                        : 2,
                                 passed == ArgumentEntry::real ? 4 : 8};
    const KernelParameter has = record.parameters[i];
    if (has.kind == wanted.kind && has.size_bytes == wanted.size_bytes) continue;
    std::snprintf(text, sizeof text, "parameter %d of kernel %s is %s of %d bytes, its launch passes %s of %d bytes", i + 1, entry.kernel,
                  names[std::clamp(has.kind, 0, 2)], has.size_bytes, names[wanted.kind], wanted.size_bytes);
    fail(HostCode::parameters_differ, i, text);
    return false;
  }
  return true;
}

bool Host::resolve(const LaunchEntry& entry, ResolvedLaunch& launch, int32_t index) {
  launch.record = find(entry.kernel);
  if (launch.record == nullptr) {
    char text[512];
    std::snprintf(text, sizeof text, "the module has no kernel %s: AK_KERNEL(%s) is missing", entry.kernel, entry.kernel);
    fail(HostCode::no_kernel, index, text);
    return false;
  }
  if (!parameters_agree(entry, *launch.record)) return false;
  launch.blocks = entry.blocks;
  launch.scratch = entry.scratch_offset < 0 ? nullptr : arena_ + entry.scratch_offset;
  launch.scratch_stride = entry.scratch_offset < 0 ? 0 : entry.scratch_stride;
  for (int32_t i = 0; i < entry.argument_count; ++i) {
    const ArgumentEntry& argument = command_.arguments[entry.first_argument + i];
    launch.values[i] = static_cast<uint64_t>(argument.value);
    if (argument.kind == ArgumentEntry::arena_pointer) launch.values[i] = reinterpret_cast<uint64_t>(arena_ + argument.value);
    launch.arguments[i] = &launch.values[i];
  }
  return true;
}

void Host::install() {
  launch_count_ = prepare_count_ = 0;
  for (int32_t i = 0; i < command_.launch_count + command_.prepare_count; ++i) {
    if (!resolve(command_.launches[i], launches_[i], i)) return;
  }
  zero_count_ = command_.zero_count;
  std::memcpy(zeros_, command_.zeros, sizeof zeros_);
  launch_count_ = command_.launch_count;
  prepare_count_ = command_.prepare_count;
}

void Host::launch_all(int32_t begin, int32_t end, int workers) {
  const ProcessorState before = ProcessorState::now();
  for (int32_t i = begin; i < end; ++i) {
    const ResolvedLaunch& launch = launches_[i];
    const auto call = launch.record->call;
    if (launch.blocks == 1 || workers == 1) {
      for (int64_t block = 0; block < launch.blocks; ++block) call(block, 0, launch.scratch, launch.arguments);
      if (ProcessorState::now() != before) status_.code = HostCode::state_changed;
      continue;
    }
#pragma omp parallel num_threads(workers)
    {
      const int64_t worker = omp_get_thread_num();
      void* scratch = launch.scratch == nullptr ? nullptr : launch.scratch + worker * launch.scratch_stride;
#pragma omp for schedule(dynamic, std::max <int64_t>(1, launch.blocks / (workers * shares_per_worker))) nowait
      for (int64_t block = 0; block < launch.blocks; ++block) call(block, worker, scratch, launch.arguments);
      if (ProcessorState::now() != before) status_.code = HostCode::state_changed;  // the same from any thread
    }
  }
}

void Host::wait_for_go(uint32_t sequence) const {
  for (int64_t round = 0; round < spin_rounds; ++round) {
    if (command_.go.load(std::memory_order_acquire) == sequence) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (;;) {
    const uint32_t seen = command_.go.load(std::memory_order_acquire);
    if (seen == sequence) return;
    futex_wait(command_.go, seen, 1'000'000);
  }
}

void Host::run(uint32_t sequence) {
  const int workers = std::clamp(command_.workers, 1, workers_);
  const bool preparing = command_.verb == Request::prepare;
#pragma omp parallel num_threads(workers)
  { asm volatile("" ::: "memory"); }  // the team is awake when the clock starts, as it is within a model
  status_.armed.store(sequence, std::memory_order_release);
  futex_wake(status_.armed);
  wait_for_go(sequence);
  if (preparing) {
    launch_all(launch_count_, launch_count_ + prepare_count_, workers);
  } else {
    for (int32_t i = 0; i < zero_count_; ++i) std::memset(arena_ + zeros_[i].offset, 0, static_cast<size_t>(zeros_[i].bytes));
    launch_all(0, launch_count_, workers);
  }
}

void Host::serve() {
  uint32_t seen = 0;
  finish(seen + 1);  // loaded, or failed to
  for (;;) {
    const uint32_t sequence = command_.request.load(std::memory_order_acquire);
    if (sequence == seen) {
      futex_wait(command_.request, seen, 10'000'000);
      continue;
    }
    seen = sequence;
    if (command_.verb == Request::install) {
      status_.armed.store(sequence, std::memory_order_release);
      install();
    } else {
      run(sequence);
    }
    finish(sequence + 1);
  }
}

void* map(int fd, int64_t bytes, int protection) {
  void* address = ::mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) ::_exit(113);
  ::close(fd);
  return address;
}

}  // namespace

int host_main(int count, char** arguments) {
  if (count != 6) return 113;
  const int64_t memory_bytes = std::atoll(arguments[2]), arena_bytes = std::atoll(arguments[3]);
  const int workers = std::atoi(arguments[4]);
  const auto& command = *static_cast<const CommandPage*>(map(command_fd, sizeof(CommandPage), PROT_READ));
  status = static_cast<StatusPage*>(map(status_fd, sizeof(StatusPage), PROT_READ | PROT_WRITE));
  char* arena = static_cast<char*>(map(arena_fd, arena_bytes, PROT_READ | PROT_WRITE));
  static Host host(command, *status, arena, workers);

  install_handlers();
#pragma omp parallel num_threads(workers)
  { asm volatile("" ::: "memory"); }
  int32_t reached = limit_process(memory_bytes) ? sandbox_limits : 0;
  if (close_files()) reached |= sandbox_files;
  bool calls = filter_calls(FilterStage::loading, memory_bytes);
  host.load(arguments[5]);
  if (!hide_process()) reached &= ~sandbox_limits;
  calls = filter_calls(FilterStage::running, memory_bytes) && calls;
  status->sandbox = reached | (calls ? sandbox_calls : 0);
  host.serve();
}

}  // namespace ak::device::cpu
