// Classic BPF: every `when` is one comparison that jumps over its body.
#include "core/call_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ak {
namespace {

#if defined(__x86_64__)
constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#endif

sock_filter statement(int code, uint32_t value) { return BPF_STMT(static_cast<uint16_t>(code), value); }
sock_filter load(size_t offset) { return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }

}  // namespace

CallFilter::CallFilter()
    : program_{load(offsetof(seccomp_data, arch)), jump(BPF_JEQ, architecture, 1, 0), result(SECCOMP_RET_KILL_PROCESS),
               load(offsetof(seccomp_data, nr))} {}

sock_filter CallFilter::jump(int code, uint32_t value, size_t if_true, size_t if_false) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | code | BPF_K), value, static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false));
}

sock_filter CallFilter::load_argument(size_t index, bool upper_half) {
  return load(offsetof(seccomp_data, args) + 8 * index + (upper_half ? 4 : 0));
}

sock_filter CallFilter::result(uint32_t action) { return statement(BPF_RET | BPF_K, action); }

void CallFilter::when_bits(Body& body, size_t argument, uint32_t bits, uint32_t action) {
  body.push_back(load_argument(argument));
  body.push_back(jump(BPF_JSET, bits, 0, 1));
  body.push_back(result(action));
}

CallFilter::Body CallFilter::only_argument(size_t argument, uint32_t value, uint32_t action) {
  return {load_argument(argument), jump(BPF_JEQ, value, 0, 1), result(SECCOMP_RET_ALLOW), result(action)};
}

void CallFilter::when(long number, const Body& body) {
  program_.push_back(jump(BPF_JEQ, static_cast<uint32_t>(number), 0, body.size()));
  program_.insert(program_.end(), body.begin(), body.end());
}

bool CallFilter::install() {
  const sock_fprog list{static_cast<unsigned short>(program_.size()), program_.data()};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &list) == 0;
}

uint32_t answer_with(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

}  // namespace ak
