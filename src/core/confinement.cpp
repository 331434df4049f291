// A Landlock rule set and a list of refused calls.
#include "core/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/call_filter.h"
#include "core/error.h"
#include "core/file.h"

namespace ak {
namespace {

using Access = FileRule::Access;

constexpr uint64_t read_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t first_version = (1u << 13) - 1, refer = 1u << 13, truncate_file = 1u << 14;  // versions 1, 2 and 3
constexpr uint64_t file_only = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE | truncate_file;

/// As the kernel reads it; older headers end earlier.
struct Handled {
  uint64_t files = 0, network = 0, scoped = 0;
};

Handled handled_by(long version) {
  Handled handled;
  handled.files = first_version | (version >= landlock_with_moves ? refer : 0) | (version >= 3 ? truncate_file : 0);
  if (version >= 4) handled.network = 3;                     // TCP: bind, connect
  if (version >= landlock_with_signals) handled.scoped = 3;  // abstract sockets, signals
  return handled;
}

size_t size_for(long version) { return sizeof(uint64_t) * (version >= landlock_with_signals ? 3 : version >= 4 ? 2 : 1); }

uint64_t rights(Access access, uint64_t all) {
  switch (access) {
    case Access::read: return read_access;
    case Access::run: return read_access | LANDLOCK_ACCESS_FS_EXECUTE;
    case Access::write: return all & ~uint64_t{LANDLOCK_ACCESS_FS_EXECUTE};
  }
  return 0;
}

void add(int rules, const FileRule& rule, uint64_t all) {
  const Descriptor file(::open(rule.path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return;  // what is not there needs no right
  uint64_t access = rights(rule.access, all);
  if (!std::filesystem::is_directory(rule.path)) access &= file_only;
  const landlock_path_beneath_attr attributes{access, file.get()};
  if (::syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &attributes, 0) != 0)
    throw Error("Landlock refuses a rule for " + rule.path.string() + ": " + ::strerror(errno));
}

/// Namespaces, mounts, other processes, keys, the kernel itself, clocks, sockets: nothing that a computation needs.
constexpr long refused_calls[] = {
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_setsid,
    SYS_setpgid,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsmount,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_io_uring_setup,
    SYS_userfaultfd,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_acct,
    SYS_quotactl,
    SYS_open_by_handle_at,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_shmget,
    SYS_shmat,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_syslog,
};

/// Before the refusals: the first that knows a call decides.
void allow_local_sockets(CallFilter& filter) {
  filter.when(SYS_socket, CallFilter::only_argument(0, AF_UNIX, answer_with(EPERM)));
  for (const long number : {SYS_bind, SYS_listen, SYS_accept, SYS_accept4}) filter.when(number, {CallFilter::result(SECCOMP_RET_ALLOW)});
}

void allow_threads_only(CallFilter& filter) {
  CallFilter::Body body;
  CallFilter::when_bits(body, 0, CLONE_THREAD, SECCOMP_RET_ALLOW);
  body.push_back(CallFilter::result(answer_with(EPERM)));
  filter.when(SYS_clone, body);
  for (const long number : {
         SYS_execve, SYS_execveat,
#if defined(__x86_64__)
             SYS_fork, SYS_vfork
#endif
       })
    filter.when(number, {CallFilter::result(answer_with(EPERM))});
}

void refuse_namespaces(CallFilter& filter) {
  CallFilter::Body body;
  CallFilter::when_bits(body, 0, CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
                        answer_with(EPERM));
  body.push_back(CallFilter::result(SECCOMP_RET_ALLOW));
  filter.when(SYS_clone, body);
}

void signals_to_itself_only(CallFilter& filter) {
  const auto own = static_cast<uint32_t>(::getpid());
  for (const long number : {SYS_kill, SYS_tgkill}) filter.when(number, CallFilter::only_argument(0, own, answer_with(EPERM)));
  for (const long number : {SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_send_signal})
    filter.when(number, {CallFilter::result(answer_with(EPERM))});
}

}  // namespace

int landlock_version() {
  return static_cast<int>(std::max(0L, ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION)));
}

int restrict_files(std::span<const FileRule> rules) {
  const int version = landlock_version();
  if (version < 1) return 0;
  const Handled handled = handled_by(version);
  const Descriptor set(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, size_for(version), 0)));
  if (!set.valid()) throw Error(std::string("Landlock refuses a rule set: ") + ::strerror(errno));
  for (const FileRule& rule : rules) add(set.get(), rule, handled.files);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::syscall(SYS_landlock_restrict_self, set.get(), 0) != 0)
    throw Error(std::string("Landlock refuses to restrict the process: ") + ::strerror(errno));
  return version;
}

bool restrict_calls(const CallRules& rules) {
  CallFilter filter;
  if (rules.local_sockets) allow_local_sockets(filter);
  for (const long number : refused_calls) filter.when(number, {CallFilter::result(answer_with(EPERM))});
  filter.when(SYS_clone3, {CallFilter::result(answer_with(ENOSYS))});  // the C library then uses clone, whose flags can be read
  rules.programs ? refuse_namespaces(filter) : allow_threads_only(filter);
  if (!rules.signals_scoped) signals_to_itself_only(filter);
  filter.otherwise(SECCOMP_RET_ALLOW);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return filter.install();
}

}  // namespace ak
