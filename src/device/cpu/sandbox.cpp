// Landlock with no rule, and a list of allowed calls for seccomp.
#include "device/cpu/sandbox.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/call_filter.h"
#include "core/confinement.h"
#include "core/error.h"

namespace ak::device::cpu {
namespace {

using Body = CallFilter::Body;

constexpr uint32_t allow = SECCOMP_RET_ALLOW, trap_call = SECCOMP_RET_TRAP | refused_call, trap_memory = SECCOMP_RET_TRAP | refused_memory;

/// Refuse a length above `maximum_bytes`.
void limit_length(Body& body, size_t argument, int64_t maximum_bytes) {
  const auto upper = static_cast<uint32_t>(maximum_bytes >> 32), lower = static_cast<uint32_t>(maximum_bytes);
  body.push_back(CallFilter::load_argument(argument, true));
  body.push_back(CallFilter::jump(BPF_JEQ, upper, 0, 3));  // equal upper halves: the lower decide
  body.push_back(CallFilter::load_argument(argument));
  body.push_back(CallFilter::jump(BPF_JGT, lower, 2, 0));
  body.push_back(CallFilter::result(allow));
  body.push_back(CallFilter::jump(BPF_JGE, upper, 0, 1));
  body.push_back(CallFilter::result(trap_memory));
  body.push_back(CallFilter::result(allow));
}

Body mapping(FilterStage stage, int64_t largest_mapping_bytes) {
  Body body;
  if (stage == FilterStage::running) CallFilter::when_bits(body, 2, PROT_EXEC, trap_call);
  CallFilter::when_bits(body, 3, MAP_SHARED | MAP_GROWSDOWN, trap_call);  // the limit of private memory counts neither
  limit_length(body, 1, largest_mapping_bytes);
  return body;
}

Body protection(FilterStage stage) {
  Body body;
  if (stage == FilterStage::running) CallFilter::when_bits(body, 2, PROT_EXEC, trap_call);
  body.push_back(CallFilter::result(allow));
  return body;
}

/// What an allocator says. Other advice changes the pages that the judge measures on, takes them away, or, from root, the machine's.
Body advice() {
  Body body;
  body.push_back(CallFilter::load_argument(2));
  body.push_back(CallFilter::jump(BPF_JEQ, MADV_DONTNEED, 2, 0));
  body.push_back(CallFilter::jump(BPF_JEQ, MADV_FREE, 1, 0));
  body.push_back(CallFilter::result(trap_call));
  body.push_back(CallFilter::result(allow));
  return body;
}

constexpr long allowed_calls[] = {
    SYS_futex,          SYS_munmap,          SYS_brk,
    SYS_mincore,        SYS_set_robust_list, SYS_rseq,
    SYS_rt_sigprocmask, SYS_rt_sigreturn,    SYS_sigaltstack,
    SYS_exit,           SYS_exit_group,      SYS_gettid,
    SYS_getpid,         SYS_sched_yield,     SYS_sched_getaffinity,
    SYS_getcpu,         SYS_clock_gettime,   SYS_clock_nanosleep,
    SYS_nanosleep,      SYS_gettimeofday,    SYS_getrandom,
    SYS_read,           SYS_write,           SYS_writev,
    SYS_pread64,        SYS_lseek,           SYS_close,
    SYS_fstat,          SYS_newfstatat,      SYS_sysinfo,
    SYS_uname,          SYS_getrusage,       SYS_restart_syscall,
    SYS_membarrier,
};

CallFilter filter(FilterStage stage, int64_t largest_mapping_bytes) {
  CallFilter filter;
  const auto answer = [&](long number, uint32_t action) { filter.when(number, {CallFilter::result(action)}); };
  for (const long number : allowed_calls) answer(number, allow);
  filter.when(SYS_mmap, mapping(stage, largest_mapping_bytes));
  filter.when(SYS_mprotect, protection(stage));
  filter.when(SYS_madvise, advice());
  Body growth;
  limit_length(growth, 2, largest_mapping_bytes);
  filter.when(SYS_mremap, growth);
  answer(SYS_clone3, answer_with(ENOSYS));  // the C library then uses clone, which is refused
  filter.when(SYS_tgkill, CallFilter::only_argument(0, static_cast<uint32_t>(::getpid()), trap_call));
  answer(SYS_ioctl, answer_with(ENOTTY));
  answer(SYS_sched_setaffinity, answer_with(EPERM));
  if (stage == FilterStage::loading) {
    filter.when(SYS_prctl, CallFilter::only_argument(0, PR_SET_DUMPABLE, answer_with(EPERM)));
    answer(SYS_openat, allow);
    answer(SYS_seccomp, allow);
  }
  answer(SYS_prctl, answer_with(EPERM));
  filter.otherwise(trap_call);
  return filter;
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
    AK_CALL(madvise),
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
  try {
    return restrict_files({}) > 0;
  } catch (const Error&) {
    return false;
  }
}

bool filter_calls(FilterStage stage, int64_t largest_mapping_bytes) { return filter(stage, largest_mapping_bytes).install(); }

const char* name_of_call(int number) {
  for (const CallName& each : call_names) {
    if (each.number == number) return each.name;
  }
  return nullptr;
}

}  // namespace ak::device::cpu
