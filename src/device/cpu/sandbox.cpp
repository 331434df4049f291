// Landlock and seccomp without libraries: rule set with no rule, and a list of allowed calls as a BPF program.
#include "device/cpu/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace ak::device::cpu {
namespace {

#if defined(__x86_64__)
constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#endif

using Program = std::vector<sock_filter>;

sock_filter statement(int code, uint32_t value) { return BPF_STMT(static_cast<uint16_t>(code), value); }
sock_filter jump(int code, uint32_t value, size_t if_true, size_t if_false) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | code | BPF_K), value, static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false));
}
sock_filter load(size_t offset) { return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter load_argument(size_t index, bool upper_half = false) {
  return load(offsetof(seccomp_data, args) + 8 * index + (upper_half ? 4 : 0));
}
sock_filter result(uint32_t action) { return statement(BPF_RET | BPF_K, action); }

constexpr uint32_t allow = SECCOMP_RET_ALLOW, trap_call = SECCOMP_RET_TRAP | refused_call, trap_memory = SECCOMP_RET_TRAP | refused_memory;
constexpr uint32_t answer(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

/// `body`, which returns on every path, for the call `number`; the number stays loaded otherwise.
void when(Program& program, long number, const Program& body) {
  program.push_back(jump(BPF_JEQ, static_cast<uint32_t>(number), 0, body.size()));
  program.insert(program.end(), body.begin(), body.end());
}

/// Refuse where any of `bits` is set in the lower half of an argument.
void refuse_bits(Program& program, size_t argument, uint32_t bits) {
  program.push_back(load_argument(argument));
  program.push_back(jump(BPF_JSET, bits, 0, 1));
  program.push_back(result(trap_call));
}

/// Refuse a length above `maximum_bytes`.
void limit_length(Program& program, size_t argument, int64_t maximum_bytes) {
  program.push_back(load_argument(argument, true));
  program.push_back(jump(BPF_JEQ, static_cast<uint32_t>(maximum_bytes >> 32), 0, 3));  // equal upper halves: the lower decide
  program.push_back(load_argument(argument));
  program.push_back(jump(BPF_JGT, static_cast<uint32_t>(maximum_bytes), 2, 0));
  program.push_back(result(allow));
  program.push_back(jump(BPF_JGE, static_cast<uint32_t>(maximum_bytes >> 32), 0, 1));
  program.push_back(result(trap_memory));
  program.push_back(result(allow));
}

Program mapping(FilterStage stage, int64_t largest_mapping_bytes) {
  Program body;
  if (stage == FilterStage::running) {
    refuse_bits(body, 2, PROT_EXEC);
    refuse_bits(body, 3, MAP_SHARED);
  }
  limit_length(body, 1, largest_mapping_bytes);
  return body;
}

Program protection(FilterStage stage) {
  Program body;
  if (stage == FilterStage::running) refuse_bits(body, 2, PROT_EXEC);
  body.push_back(result(allow));
  return body;
}

Program only_argument(uint32_t value) { return {load_argument(0), jump(BPF_JEQ, value, 0, 1), result(allow), result(trap_call)}; }

constexpr long allowed_calls[] = {
    SYS_futex,
    SYS_munmap,
    SYS_brk,
    SYS_madvise,
    SYS_mincore,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_exit,
    SYS_exit_group,
    SYS_gettid,
    SYS_getpid,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getcpu,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_read,
    SYS_write,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_sysinfo,
    SYS_uname,
    SYS_getrusage,
    SYS_restart_syscall,
    SYS_membarrier,
};

Program filter(FilterStage stage, int64_t largest_mapping_bytes) {
  Program program = {load(offsetof(seccomp_data, arch)), jump(BPF_JEQ, architecture, 1, 0), result(SECCOMP_RET_KILL_PROCESS),
                     load(offsetof(seccomp_data, nr))};
  for (const long number : allowed_calls) when(program, number, {result(allow)});
  when(program, SYS_mmap, mapping(stage, largest_mapping_bytes));
  when(program, SYS_mprotect, protection(stage));
  Program growth;
  limit_length(growth, 2, largest_mapping_bytes);
  when(program, SYS_mremap, growth);
  when(program, SYS_clone3, {result(answer(ENOSYS))});  // the C library then uses clone, which is refused
  when(program, SYS_tgkill, only_argument(static_cast<uint32_t>(::getpid())));
  when(program, SYS_ioctl, {result(answer(ENOTTY))});
  when(program, SYS_sched_setaffinity, {result(answer(EPERM))});
  if (stage == FilterStage::loading)
    when(program, SYS_prctl, {load_argument(0), jump(BPF_JEQ, PR_SET_DUMPABLE, 0, 1), result(allow), result(answer(EPERM))});
  when(program, SYS_prctl, {result(answer(EPERM))});
  if (stage == FilterStage::loading) {
    when(program, SYS_openat, {result(allow)});
    when(program, SYS_seccomp, {result(allow)});
  }
  program.push_back(result(trap_call));
  return program;
}

struct CallName {
  int number;
  const char* name;
};
#define AK_CALL(name) \
  { SYS_##name, #name }
constexpr CallName call_names[] = {
#if defined(__x86_64__)
    AK_CALL(open),
    AK_CALL(creat),
    AK_CALL(fork),
    AK_CALL(vfork),
    AK_CALL(access),
    AK_CALL(unlink),
    AK_CALL(stat),
    AK_CALL(readlink),
    AK_CALL(pipe),
    AK_CALL(poll),
#endif
    AK_CALL(openat),
    AK_CALL(socket),
    AK_CALL(connect),
    AK_CALL(clone),
    AK_CALL(execve),
    AK_CALL(execveat),
    AK_CALL(ptrace),
    AK_CALL(process_vm_readv),
    AK_CALL(process_vm_writev),
    AK_CALL(kill),
    AK_CALL(tgkill),
    AK_CALL(tkill),
    AK_CALL(mmap),
    AK_CALL(mprotect),
    AK_CALL(rt_sigaction),
    AK_CALL(memfd_create),
    AK_CALL(unlinkat),
    AK_CALL(mount),
    AK_CALL(setrlimit),
    AK_CALL(prlimit64),
    AK_CALL(seccomp),
    AK_CALL(bpf),
    AK_CALL(io_uring_setup),
    AK_CALL(ftruncate),
    AK_CALL(timer_create),
    AK_CALL(setitimer),
    AK_CALL(faccessat),
    AK_CALL(readlinkat),
    AK_CALL(pipe2),
    AK_CALL(dup),
    AK_CALL(shmget),
    AK_CALL(ppoll),
};
#undef AK_CALL

}  // namespace

bool limit_process([[maybe_unused]] int64_t memory_bytes) {
  const auto limit = [](auto resource, int64_t value) {
    const rlimit both{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
    return ::setrlimit(resource, &both) == 0;
  };
  bool all = limit(RLIMIT_CORE, 0) && limit(RLIMIT_FSIZE, 0) && limit(RLIMIT_NOFILE, 32);
#if !defined(__SANITIZE_ADDRESS__)  // whose shadow is private memory of its own
  all = limit(RLIMIT_DATA, memory_bytes) && all;
#endif
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && all;
}

bool hide_process() { return ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0; }

bool close_files() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = (1u << 13) - 1;               // all of version 1
  if (version >= 2) attributes.handled_access_fs |= 1u << 13;  // refer
  if (version >= 3) attributes.handled_access_fs |= 1u << 14;  // truncate
  const long rules = ::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (rules < 0) return false;
  const bool restricted = ::syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  ::close(static_cast<int>(rules));
  return restricted;
}

bool filter_calls(FilterStage stage, int64_t largest_mapping_bytes) {
  Program program = filter(stage, largest_mapping_bytes);
  const sock_fprog list{static_cast<unsigned short>(program.size()), program.data()};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &list) == 0;
}

const char* name_of_call(int number) {
  for (const CallName& each : call_names) {
    if (each.number == number) return each.name;
  }
  return nullptr;
}

}  // namespace ak::device::cpu
